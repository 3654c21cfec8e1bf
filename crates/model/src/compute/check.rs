//! Refusals of numbers that no model can use, shared by the models.

use bellwether_core::InputError;

/// Most workers a model is asked about: where each one costs a loop turn, a wrong number must not hang.
pub(crate) const WORKERS_MAX: u32 = 1_000_000;

/// Refuses what is below 0 or no finite number.
pub(crate) fn negative(place: &str, what: &str, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(InputError::new(place, format!("{what} is {value}")).hint("it must be a finite number, at least 0"))
}

/// Refuses what is 0, below 0 or no finite number.
pub(crate) fn not_positive(place: &str, what: &str, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(InputError::new(place, format!("{what} is {value}")).hint("it must be a finite number above 0"))
}

/// Refuses 0 workers, and more than [`WORKERS_MAX`].
pub(crate) fn workers(place: &str, workers: u32) -> Result<(), InputError> {
    if (1..=WORKERS_MAX).contains(&workers) {
        return Ok(());
    }
    Err(InputError::new(place, format!("the number of workers is {workers}"))
        .hint(format!("it must be from 1 to {WORKERS_MAX}")))
}
