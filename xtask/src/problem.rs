//! What a check has to say: where, what, and what to do about it.

use std::fmt;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    line: usize,
    message: String,
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of_file(path: &str, message: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), line: 0, message: message.into() }
    }

    /// A problem at a line, counted from 1.
    pub(crate) fn at_line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The problems as text, to compare with in tests.
#[cfg(test)]
pub(crate) fn shown(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}
