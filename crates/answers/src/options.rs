//! Options by name, as a program in another language says them: `{"bandwidth": "10Gbps", "seed": 3}`.
//!
//! The names are those of the command's options, with `_` for `-`; the values are read by what reads the command's.

use std::fmt::Display;
use std::ops::RangeInclusive;

use bellwether_core::units::Bytes;
use bellwether_core::{InputError, ParseError};
use serde_json::{Map, Value};

/// Options that were not taken yet.
#[derive(Debug)]
pub struct Options(Map<String, Value>);

impl Options {
    /// Reads a JSON object. An option that is `null` was not given.
    ///
    /// # Errors
    ///
    /// A text that is not a JSON object.
    pub fn read(text: &str) -> Result<Options, InputError> {
        serde_json::from_str(text).map(Options).map_err(|error| InputError::new("options", error))
    }

    /// The option as text, if it was given.
    pub fn text(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name)? {
            Value::Null => None,
            value => Some(word(&value)),
        }
    }

    /// The option as it must be given.
    pub(crate) fn needed(&mut self, name: &str) -> Result<String, InputError> {
        self.text(name).ok_or_else(|| InputError::new(name, "it is not given"))
    }

    /// The option as what it stands for.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Result<T, ParseError>,
    ) -> Result<Option<T>, InputError> {
        self.text(name).map(|text| read(&text).map_err(|error| error.at(flag(name)))).transpose()
    }

    /// The option as a whole number of `range`.
    pub(crate) fn whole<T: TryFrom<u64>>(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<T>, InputError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        let wrong = || InputError::new(flag(name), format!("{text} is not in {least}..={most}"));
        number.map(Some).ok_or_else(wrong)
    }

    /// The option as a number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, InputError> {
        self.parsed(name, |text| text.parse().map_err(|_| ParseError::new("number", text, "such as 0.95")))
    }

    /// The option as a number of bytes, such as 1MiB.
    ///
    /// # Errors
    ///
    /// Another text.
    pub fn bytes(&mut self, name: &str) -> Result<Option<u64>, InputError> {
        Ok(self.parsed(name, |text| text.parse())?.map(|Bytes(bytes)| bytes))
    }

    /// The option as a list of texts; one text is a list of what its commas separate.
    pub fn list(&mut self, name: &str) -> Vec<String> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(word).collect(),
            Some(value) => word(&value).split(',').map(|text| text.trim().to_owned()).collect(),
        }
    }

    /// Whether the option was given and is true.
    pub(crate) fn is_set(&mut self, name: &str) -> bool {
        self.0.remove(name) == Some(Value::Bool(true))
    }

    /// Refuses options of which one excludes the other.
    pub(crate) fn exclusive(&self, names: &[&str]) -> Result<(), InputError> {
        let mut given = names.iter().filter(|name| self.0.get(**name).is_some_and(|value| !value.is_null()));
        match (given.next(), given.next()) {
            (Some(one), Some(other)) => {
                Err(InputError::new(flag(other), format!("cannot be used with {}", flag(one))))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what was not taken.
    ///
    /// # Errors
    ///
    /// Names an option that there is not.
    pub fn end(self) -> Result<(), InputError> {
        match self.0.keys().next() {
            Some(name) => Err(InputError::new(name, "there is no such option")),
            None => Ok(()),
        }
    }
}

/// A value as on a command line.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The command's name of an option.
fn flag(name: impl Display) -> String {
    format!("--{}", name.to_string().replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_command_reads_its_own() {
        let mut options =
            Options::read(r#"{"seeds": 0, "device": ["a=1", "b=2"], "region": "x, y"}"#).unwrap();
        let error = options.whole::<u64>("seeds", 1..=9).unwrap_err();
        assert_eq!(error.to_string(), "--seeds: 0 is not in 1..=9");
        assert_eq!(options.list("device"), ["a=1", "b=2"]);
        assert_eq!(options.list("region"), ["x", "y"]);
        options.end().unwrap();
    }

    #[test]
    fn unknown_and_contradictory_options_are_refused() {
        let options = Options::read(r#"{"steps": 3, "epochs": 2, "target_loss": null}"#).unwrap();
        let error = options.exclusive(&["steps", "epochs", "target_loss"]).unwrap_err();
        assert_eq!(error.to_string(), "--epochs: cannot be used with --steps");
        options.exclusive(&["steps", "target_loss"]).unwrap();
        assert!(options.end().unwrap_err().to_string().contains("there is no such option"));
    }
}
