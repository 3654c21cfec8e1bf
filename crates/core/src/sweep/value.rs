//! Values of varied keys, and a value for each key of a trial.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ARGUMENT;

/// A value as it stands in a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A number without a fraction.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text, such as a word or a quantity with its unit.
    Text(String),
    /// Several values, such as the widths of layers.
    List(Vec<Value>),
}

/// A value for each key that is varied in a trial.
pub type Sample = BTreeMap<String, Value>;

impl Value {
    /// It as a number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn toml(&self) -> toml::Value {
        match self {
            Value::Flag(flag) => toml::Value::Boolean(*flag),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Number(number) => toml::Value::Float(*number),
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::List(values) => toml::Value::Array(values.iter().map(Value::toml).collect()),
        }
    }
}

/// As it would stand in a job file, but texts without quotes.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            value => value.toml().fmt(f),
        }
    }
}

/// What a sample changes: keys of the job file with their values as TOML, as `--set` takes them, and the arguments of
/// the script.
///
/// ```
/// # use bellwether_core::sweep::{Sample, Value, overrides};
/// let sample = Sample::from([
///     ("--width".into(), Value::Integer(8)),
///     ("optimizer.kind".into(), Value::Text("adam".into())),
/// ]);
/// let (keys, arguments) = overrides(&sample);
/// assert_eq!(keys, [("optimizer.kind".to_string(), "\"adam\"".to_string())]);
/// assert_eq!(arguments, ["--width=8"]);
/// ```
pub fn overrides(sample: &Sample) -> (Vec<(String, String)>, Vec<String>) {
    let (mut keys, mut arguments) = (Vec::new(), Vec::new());
    for (key, value) in sample {
        if key.starts_with(ARGUMENT) {
            arguments.push(format!("{key}={value}"));
        } else {
            keys.push((key.clone(), value.toml().to_string()));
        }
    }
    (keys, arguments)
}
