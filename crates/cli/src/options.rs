//! Arguments that several verbs share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
}

/// How a result of many rows is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
    /// For spreadsheets.
    Csv,
}

/// Where runs are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StateArguments {
    /// Folder of the runs [default: $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// What `--set KEY=VALUE` says: the key and the value.
///
/// # Errors
///
/// A text without `=`.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}
