//! The error of bad input: what is wrong, where, and what to do about it.

use std::fmt;

/// Input that a user gave and that cannot be used. The command line renders it and exits with 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// What is wrong, in one sentence.
    pub what: String,
    /// Where: a file, a key, a flag.
    pub place: String,
    /// What the user can do about it; empty when the sentence already says it.
    pub hint: String,
}

impl InputError {
    /// An error at `place`, without a hint.
    pub fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        InputError { what: what.into(), place: place.into(), hint: String::new() }
    }

    /// The same error with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}
