//! What a script declares: its job, as far as the script decides it, and the tensors of its model.

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::workload::{Layout, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// Keys that need not be the same in a worker's script: they decide no bits, or name places on its own machine.
const FREE: &[&str] = &[
    "name",
    "workers",
    "epochs",
    "steps",
    "evaluation",
    "checkpoint",
    "verdict",
    "model.python",
    "model.script",
    "model.arguments",
    "model.device",
    "model.environment",
];

/// The part of a declaration that a worker needs.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Declaration {
    /// A part of a job.
    pub(crate) job: Value,
    layout: Names,
}

#[derive(Debug, Clone, Deserialize)]
struct Names {
    parameters: Vec<(String, Vec<usize>)>,
    state: Vec<(String, Vec<usize>)>,
}

impl Declaration {
    /// Reads a declaration.
    pub(crate) fn parse(text: &str) -> Result<Declaration, InputError> {
        serde_json::from_str(text).map_err(|error| InputError::new("declaration", error))
    }

    /// The tensors of the model.
    pub(crate) fn layout(&self) -> Layout {
        let tensors = |names: &[(String, Vec<usize>)]| {
            names.iter().map(|(name, shape)| Tensor { name: name.clone(), shape: shape.clone() }).collect()
        };
        Layout { parameters: tensors(&self.layout.parameters), state: tensors(&self.layout.state) }
    }

    /// A number of samples that the script counted.
    pub(crate) fn samples(&self, key: &str) -> u64 {
        self.job["data"][key].as_u64().unwrap_or(0)
    }

    /// The digest of the layout, in which workers of one job agree.
    pub(crate) fn layout_digest(&self) -> &str {
        self.job["model"]["layout"].as_str().unwrap_or("unknown")
    }

    /// Whether the script declares the job that the run has.
    pub(crate) fn agrees(&self, job: &Job) -> Result<(), InputError> {
        let run = serde_json::to_value(job).map_err(|error| InputError::new("job", error))?;
        match difference("", &self.job, &run) {
            None => Ok(()),
            Some((key, here, there)) => {
                let what = format!("{key} is {here} in the script here, and the run has {there}");
                Err(InputError::new("script", what).hint(
                    "a script must declare the same job in every worker; start all of them with the same one",
                ))
            }
        }
    }
}

/// The first key of `here` that `there` has not, or has otherwise, with both values.
fn difference(key: &str, here: &Value, there: &Value) -> Option<(String, String, String)> {
    if FREE.contains(&key) {
        return None;
    }
    let Value::Object(table) = here else {
        return (!same(here, there)).then(|| (key.to_owned(), shown(here), shown(there)));
    };
    table.iter().find_map(|(name, value)| {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        difference(&key, value, &there[name.as_str()])
    })
}

/// Whether two values are the same; 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        // What is null in a script need not be in the job at all.
        _ => a == b,
    }
}

/// A value for people; long ones are cut.
fn shown(value: &Value) -> String {
    let text = if value.is_null() { "none".into() } else { value.to_string() };
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
