//! Refusals of numbers that no model can use.
//!
//! Each says what is wrong at which place, and what the number must be.

use std::fmt::Display;

use bellwether_core::InputError;
use bellwether_core::prediction::Link;

/// Most workers a model is asked about: where each one costs a loop turn, a wrong number must not hang.
pub(crate) const WORKERS_MAX: u32 = 1_000_000;

/// Refuses what is below 0 or no finite number.
pub(crate) fn negative(place: impl Display, what: impl Display, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    let what = format!("{what} is {value}");
    Err(InputError::new(place.to_string(), what).hint("it must be a finite number, at least 0"))
}

/// Refuses what is 0, below 0 or no finite number.
pub(crate) fn not_positive(place: impl Display, what: impl Display, value: f64) -> Result<(), InputError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    let what = format!("{what} is {value}");
    Err(InputError::new(place.to_string(), what).hint("it must be a finite number above 0"))
}

/// Refuses a link that nothing can pass.
pub(crate) fn link(place: impl Display, which: &str, link: &Link) -> Result<(), InputError> {
    let bandwidth = format_args!("the bandwidth of {which} in bytes/s");
    not_positive(&place, bandwidth, link.bandwidth_bytes_per_s)?;
    negative(&place, format_args!("the latency of {which} in seconds"), link.latency_s)
}

/// Refuses 0 workers, and more than [`WORKERS_MAX`].
pub(crate) fn workers(place: impl Display, workers: u32) -> Result<(), InputError> {
    count(place, "workers", workers)
}

/// Refuses 0 servers, and more than [`WORKERS_MAX`].
pub(crate) fn servers(place: impl Display, servers: u32) -> Result<(), InputError> {
    count(place, "servers", servers)
}

fn count(place: impl Display, of: &str, number: u32) -> Result<(), InputError> {
    if (1..=WORKERS_MAX).contains(&number) {
        return Ok(());
    }
    let what = format!("the number of {of} is {number}");
    Err(InputError::new(place.to_string(), what).hint(format!("it must be from 1 to {WORKERS_MAX}")))
}
