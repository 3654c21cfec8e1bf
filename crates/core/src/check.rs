//! Refusals of numbers that nothing can be computed from: what is wrong at which place, and what the number must be.

use std::fmt::Display;

use crate::InputError;

/// Refuses what is below 0 or no finite number.
///
/// # Errors
///
/// Returns an error for such a number, at `place`, where it is said to be `what`.
pub fn negative(place: impl Display, what: impl Display, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    let what = format!("{what} is {value}");
    Err(InputError::new(place.to_string(), what).hint("it must be a finite number, at least 0"))
}

/// Refuses what is 0, below 0 or no finite number.
///
/// # Errors
///
/// Returns an error for such a number, at `place`, where it is said to be `what`.
pub fn not_positive(place: impl Display, what: impl Display, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    let what = format!("{what} is {value}");
    Err(InputError::new(place.to_string(), what).hint("it must be a finite number above 0"))
}
