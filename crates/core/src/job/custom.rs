//! Models and data of one's own: a job names them and carries their options; the program that trains it builds them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Data, Model};
use crate::error::InputError;
use crate::spelling::advice;

/// The table `options` of a custom model or of custom data. Only the program that trains the job knows what may be in
/// it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CustomOptions(BTreeMap<String, Value>);

impl CustomOptions {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An option whose value the job's text cannot keep: numbers that are not finite become `null` there.
    pub(super) fn lost(&self) -> Option<&str> {
        fn is_lost(value: &Value) -> bool {
            match value {
                Value::Null => true,
                Value::Array(items) => items.iter().any(is_lost),
                Value::Object(table) => table.values().any(is_lost),
                _ => false,
            }
        }
        self.0.iter().find(|(_, value)| is_lost(value)).map(|(name, _)| name.as_str())
    }

    fn read<T: DeserializeOwned>(&self, place: &str) -> Result<T, InputError> {
        let table = Value::Object(self.0.clone().into_iter().collect());
        serde_json::from_value(table).map_err(|error| {
            let message = error.to_string();
            match advice(&message) {
                Some((what, hint)) => InputError::new(place, what).hint(hint),
                None => InputError::new(place, message),
            }
        })
    }
}

impl Model {
    /// The options of a custom model, in the type that the program which trains it has for them.
    ///
    /// # Errors
    ///
    /// A built-in model; options that do not fit the type.
    ///
    /// ```
    /// use bellwether_core::job::Model;
    /// #[derive(serde::Deserialize)]
    /// struct Options { features: usize }
    ///
    /// let text = r#"{ "kind": "custom", "name": "line", "options": { "features": 4 } }"#;
    /// let model: Model = serde_json::from_str(text).unwrap();
    /// let Options { features } = model.options().unwrap();
    /// assert_eq!(features, 4);
    /// ```
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, InputError> {
        match self {
            Model::Custom { options, .. } => options.read("model.options"),
            _ => Err(built_in("model.kind", "model")),
        }
    }
}

impl Data {
    /// The options of custom data, in the type that the program which trains the job has for them.
    ///
    /// # Errors
    ///
    /// Built-in data; options that do not fit the type.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, InputError> {
        match self {
            Data::Custom { options, .. } => options.read("data.options"),
            _ => Err(built_in("data.kind", "data")),
        }
    }
}

fn built_in(place: &str, what: &str) -> InputError {
    InputError::new(
        place,
        format!("this program trains {what} of its own, and the job names built-in {what}"),
    )
    .hint("write kind = \"custom\"")
}
