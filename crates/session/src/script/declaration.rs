//! What a script says of its job.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_runtime::workload::{
    Evaluation, Layout, Loss, MicroBatch, Tensor, Weights, Workload, WorkloadError,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Script;

/// The form of a declaration that this release reads.
const VERSION: u32 = 1;

/// Most elements of a tensor's shape.
const DIMENSIONS_MAX: usize = 32;

/// What a script says of its job, in one line of JSON.
#[derive(Debug, Clone, Deserialize)]
pub struct Declaration {
    version: u32,
    /// The interpreter that runs the script.
    python: PathBuf,
    /// The script.
    script: PathBuf,
    #[serde(default)]
    arguments: Vec<String>,
    /// The tables of a job file, as far as the script knows them.
    pub job: Map<String, Value>,
    layout: Names,
    /// What it has imported from installed packages.
    #[serde(default)]
    pub(super) modules: Vec<String>,
    /// File with the initial weights: all parameters, then all state, as little-endian `f32`.
    #[serde(default)]
    pub initial: Option<PathBuf>,
}

/// Names and shapes.
#[derive(Debug, Clone, Deserialize)]
struct Names {
    parameters: Vec<(String, Vec<usize>)>,
    state: Vec<(String, Vec<usize>)>,
}

impl Declaration {
    /// Reads the line that a script wrote.
    ///
    /// # Errors
    ///
    /// Returns an error if it is of another release, or does not describe a job.
    pub(super) fn read(line: &[u8], script: &str) -> Result<Declaration, InputError> {
        let wrong = |what: String| {
            InputError::new(script, format!("what it declares cannot be read: {what}"))
                .hint("install the Python package `bellwether` of the same release as this command")
        };
        let mut declaration: Declaration = serde_json::from_slice(line).map_err(|e| wrong(e.to_string()))?;
        if declaration.version != VERSION {
            return Err(wrong(format!(
                "it has version {}, this command reads {VERSION}",
                declaration.version
            )));
        }
        declaration.check().map_err(|what| InputError::new(script, what))?;
        let layout = declaration.layout();
        let values = layout.parameter_count() + layout.state_count();
        if let Some(Value::Object(model)) = declaration.job.get_mut("model") {
            model.insert("values".into(), values.into());
        }
        Ok(declaration)
    }

    /// Refuses layouts that cannot be one.
    fn check(&self) -> Result<(), String> {
        let Names { parameters, state } = &self.layout;
        for tensors in [parameters, state] {
            let mut names = std::collections::BTreeSet::new();
            for (name, shape) in tensors {
                let count = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
                if count.is_none_or(|count| count > 1 << 40) || shape.len() > DIMENSIONS_MAX {
                    return Err(format!("the tensor `{name}` has the impossible shape {shape:?}"));
                }
                if !names.insert(name) {
                    return Err(format!("two tensors are called `{name}`"));
                }
            }
        }
        if parameters.is_empty() {
            return Err("the model has no parameter to train".into());
        }
        Ok(())
    }

    /// The script that said this.
    pub fn script(&self) -> Script {
        let Declaration { script, arguments, python, .. } = self;
        let environment = self.environment();
        Script { path: script.clone(), arguments: arguments.clone(), python: python.clone(), environment }
    }

    /// The variables that every process of the script is started with.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let said = self.job.get("model").and_then(|model| model.get("environment"));
        let pairs = said.and_then(Value::as_object).into_iter().flatten();
        pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string()))).collect()
    }

    fn layout(&self) -> Layout {
        let tensors = |list: &[(String, Vec<usize>)]| {
            let tensor =
                |(name, shape): &(String, Vec<usize>)| Tensor { name: name.clone(), shape: shape.clone() };
            list.iter().map(tensor).collect()
        };
        Layout { parameters: tensors(&self.layout.parameters), state: tensors(&self.layout.state) }
    }

    fn samples(&self, part: &str) -> u64 {
        self.job.get("data").and_then(|data| data.get(part)).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// A workload that only other processes can compute. Its kernel class is not known before one of them says it.
pub(super) struct Declared {
    layout: Layout,
    training_samples: u64,
    held_out_samples: u64,
}

impl Declared {
    pub(super) fn new(declaration: &Declaration) -> Declared {
        Declared {
            layout: declaration.layout(),
            training_samples: declaration.samples("training_samples"),
            held_out_samples: declaration.samples("held_out_samples"),
        }
    }
}

fn elsewhere() -> WorkloadError {
    WorkloadError::new("only a worker that runs the script can compute this")
}

impl Workload for Declared {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        self.training_samples
    }

    fn held_out_samples(&self) -> u64 {
        self.held_out_samples
    }

    fn initialize(&mut self, _: u64, parameters: &mut [f32], state: &mut [f32]) {
        parameters.fill(0.0);
        state.fill(0.0);
    }

    fn gradient(
        &mut self,
        _: Weights<'_>,
        _: MicroBatch<'_>,
        _: u64,
        _: &mut [f32],
        _: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        Err(elsewhere())
    }

    fn evaluate(&mut self, _: Weights<'_>, _: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        Err(elsewhere())
    }

    fn fingerprint(&self) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(layout: &str) -> String {
        format!(
            "{{\"version\":1,\"python\":\"/usr/bin/python3\",\"script\":\"/t.py\",\"job\":{{\"data\":{{\"training_samples\":7}}}},\"layout\":{layout}}}"
        )
    }

    #[test]
    fn a_declaration_describes_a_workload() {
        let text = line("{\"parameters\":[[\"w\",[2,3]],[\"b\",[]]],\"state\":[]}");
        let declared = Declared::new(&Declaration::read(text.as_bytes(), "t.py").expect("a declaration"));
        assert_eq!((declared.layout.parameter_count(), declared.training_samples()), (7, 7));
        assert_eq!(declared.fingerprint(), "");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (layout, what) in [
            ("{\"parameters\":[],\"state\":[]}", "no parameter"),
            ("{\"parameters\":[[\"w\",[4294967296,4294967296]]],\"state\":[]}", "impossible shape"),
            ("{\"parameters\":[[\"w\",[1]],[\"w\",[1]]],\"state\":[]}", "two tensors"),
            ("[]", "cannot be read"),
        ] {
            let error = Declaration::read(line(layout).as_bytes(), "t.py").expect_err("refused");
            assert!(error.what.contains(what), "{error}");
        }
        let newer =
            line("{\"parameters\":[[\"w\",[1]]],\"state\":[]}").replace("\"version\":1", "\"version\":2");
        assert!(Declaration::read(newer.as_bytes(), "t.py").expect_err("refused").what.contains("version 2"));
    }
}
