//! Why nothing was measured: always something in the input or in the environment.

use std::fmt;

use bellwether_core::InputError;

/// There is no report, for this reason.
#[derive(Debug)]
pub(crate) struct Failure(InputError);

impl Failure {
    /// Something failed at `place`.
    pub(crate) fn at(place: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure(InputError::new(place, why.to_string()))
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
