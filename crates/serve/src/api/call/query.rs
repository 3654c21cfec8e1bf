//! What stands after the question mark, read by what the route says of it.

use std::collections::BTreeMap;

use axum::http::Uri;
use bellwether_core::{InputError, ParseError};
use serde_json::{Value, json};

use super::super::failure::{Failure, echo};

/// A parameter that a route knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A whole number.
    Whole { min: u64, max: u64, default: u64 },
    /// A finite number, if it is given.
    Number,
    /// `true` or `false`, the latter where nothing is said.
    Flag,
    /// One of these, if it is given.
    Choice(&'static [&'static str]),
    /// Any text, if it is given.
    Text,
}

impl Kind {
    /// Its JSON schema.
    pub(crate) fn schema(self) -> Value {
        match self {
            Kind::Whole { min, max, default } => {
                json!({"type": "integer", "minimum": min, "maximum": max, "default": default})
            }
            Kind::Number => json!({"type": "number"}),
            Kind::Flag => json!({"type": "boolean", "default": false}),
            Kind::Choice(words) => json!({"type": "string", "enum": words}),
            Kind::Text => json!({"type": "string"}),
        }
    }

    /// Reads the parameter `name`.
    fn read(self, name: &str, text: &str) -> Result<Given, ParseError> {
        let wrong = |expected: &str| Err(ParseError::new(name, echo(text), expected));
        match self {
            Kind::Whole { min, max, .. } => match text.parse() {
                Ok(number) if (min..=max).contains(&number) => Ok(Given::Whole(number)),
                _ => wrong(&format!("a whole number from {min} to {max}")),
            },
            Kind::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Given::Number(number)),
                _ => wrong("a number such as 12.5"),
            },
            Kind::Flag => match text {
                "true" => Ok(Given::Flag(true)),
                "false" => Ok(Given::Flag(false)),
                _ => wrong("true or false"),
            },
            Kind::Choice(words) => match words.iter().find(|word| **word == text) {
                Some(word) => Ok(Given::Text((*word).to_owned())),
                None => Err(ParseError::one_of(name, &echo(text), words)),
            },
            Kind::Text => Ok(Given::Text(text.to_owned())),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Given {
    Whole(u64),
    Number(f64),
    Flag(bool),
    Text(String),
}

/// The parameters of a request: those that were given, and the defaults of the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<&'static str, Given>);

impl Query {
    /// Reads the parameters that `known` describes.
    pub(crate) fn read(known: &[Parameter], uri: &Uri) -> Result<Query, Failure> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map_err(|error| Failure::invalid("query", error.body_text()))?.0;
        let mut query = Query::default();
        for (name, text) in pairs {
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
                let failure =
                    Failure::invalid("query", format!("there is no parameter `{}` here", echo(&name)));
                let none = names.is_empty();
                return Err(failure.hint(if none {
                    "leave it out: this takes no parameters".to_owned()
                } else {
                    bellwether_core::parse::did_you_mean(&name, &names)
                }));
            };
            let place = || format!("query, `{name}`");
            let given = parameter.kind.read(&name, &text).map_err(|error| {
                let InputError { what, place, hint, .. } = error.at(place());
                Failure::invalid(place, what).hint(hint)
            })?;
            if query.0.insert(parameter.name, given).is_some() {
                return Err(Failure::invalid(place(), "it is given twice").hint("give it once"));
            }
        }
        for parameter in known {
            if let Kind::Whole { default, .. } = parameter.kind {
                query.0.entry(parameter.name).or_insert(Given::Whole(default));
            }
        }
        Ok(query)
    }

    /// A whole number, its default where none was given.
    ///
    /// # Panics
    ///
    /// When the route declares no such parameter.
    pub(crate) fn whole(&self, name: &str) -> usize {
        match self.0.get(name) {
            Some(Given::Whole(number)) => usize::try_from(*number).unwrap_or(usize::MAX),
            _ => unreachable!("a route reads the whole numbers that it declares"),
        }
    }

    /// A number, if one was given.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(Given::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether a flag is set.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Given::Flag(true))
    }

    /// A text or a choice, if one was given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Given::Text(text)) => Some(text),
            _ => None,
        }
    }
}
