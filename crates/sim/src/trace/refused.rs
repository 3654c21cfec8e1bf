//! Rows of a trace that are not jobs, and why.

use std::fmt;

use bellwether_core::ParseError;

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Row of the file, from 1 (of a JSON list: its element).
    pub row: usize,
    /// The job's name; empty where it has none.
    pub job: String,
    /// Why it was refused.
    pub why: RowError,
}

/// Why a row of a trace is not a job that can be simulated. Many unfinished jobs are normal in a log; many cells that
/// cannot be read show that the file has another format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowError {
    /// A cell cannot be read.
    Cell {
        /// Name of its column; empty in a format without columns.
        column: String,
        /// What is wrong with its text.
        error: ParseError,
    },
    /// A cell holds bytes that are not UTF-8 text.
    NotText {
        /// Name of its column.
        column: String,
    },
    /// The row has more or fewer cells than the table has columns.
    Columns {
        /// Cells of the row.
        found: usize,
        /// Columns of the table.
        expected: usize,
    },
    /// The row does not contain what every job needs.
    Missing(&'static str),
    /// How much work the job holds is not known: it never ran, or it still ran when the log was written.
    Unfinished(&'static str),
    /// A value that no job can have, or several that contradict one another.
    Impossible(String),
    /// An earlier row has this name.
    Duplicate {
        /// That row.
        row: usize,
    },
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowError::Cell { column, error } if column.is_empty() => write!(f, "{error}"),
            RowError::Cell { column, error } => write!(f, "{column}: {error}"),
            RowError::NotText { column } => write!(f, "{column}: is not UTF-8 text"),
            RowError::Columns { found, expected } => write!(f, "has {found} columns instead of {expected}"),
            RowError::Missing(what) | RowError::Unfinished(what) => f.write_str(what),
            RowError::Impossible(what) => f.write_str(what),
            RowError::Duplicate { row } => write!(f, "has the name of the job in row {row}"),
        }
    }
}

impl std::error::Error for RowError {}

impl From<ParseError> for RowError {
    /// The error of a cell, where there is no column.
    fn from(error: ParseError) -> RowError {
        RowError::Cell { column: String::new(), error }
    }
}
