//! What checks of a job are made of.

use std::fmt::Display;

use crate::error::InputError;

pub(super) type Check = Result<(), InputError>;

/// Refuses a key for what is wrong with it, unless it holds.
pub(super) fn ensure(holds: bool, key: &str, what: impl Display, hint: &str) -> Check {
    if holds { Ok(()) } else { Err(InputError::new(key, what).hint(hint)) }
}
