//! How programs write what they found: tables, CSV, numbers, spans of time, parts of sentences, and plots.
//!
//! Every function returns text; the programs print it. A number, a time or a colour is written in one way everywhere.

pub mod colour;
pub mod csv;
pub mod duration;
pub mod figure;
pub mod plot;
pub mod summary;
pub mod table;
pub mod words;

/// A value as indented JSON, which people can read too. A value that is not JSON becomes an empty text.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A value as JSON in one line. A value that is not JSON becomes an empty text.
pub fn json_line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
