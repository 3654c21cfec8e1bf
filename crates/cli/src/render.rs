//! How verbs write what they found: tables, CSV, numbers, spans of time, sentences and plots.

pub(crate) mod colour;
pub(crate) mod csv;
pub(crate) mod duration;
pub(crate) mod figure;
pub(crate) mod outlook;
pub(crate) mod plot;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod words;

/// A value as JSON for people too: indented.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
