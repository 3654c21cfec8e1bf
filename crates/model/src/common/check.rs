//! Refusals of numbers, links and counts that no model can use.
//!
//! Each says what is wrong at which place, and what the number must be.

use std::fmt::Display;

use bellwether_core::InputError;
pub(crate) use bellwether_core::check::{negative, not_positive};
use bellwether_core::prediction::Link;

/// Most workers a model is asked about: where each one costs a loop turn, a wrong number must not hang.
pub(crate) const WORKERS_MAX: u32 = 1_000_000;

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
