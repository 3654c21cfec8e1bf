//! The time of a run whose protocol changes: synchronous first, asynchronous later, or any list of phases.
//!
//! # Model
//!
//! ```text
//! T = sum_i s_i W / r_i + (m - 1) T_switch
//! one switch after a share f:  T(f) = f W / (n r_bsp) + (1 - f) W / r_asp + T_switch
//! ```
//!
//! | symbol       | meaning                                                          | unit    |
//! |--------------|------------------------------------------------------------------|---------|
//! | W            | work of the whole run                                            | units   |
//! | s_i, r_i     | share of the work in phase i; its rate, all workers together   | 1, units/s |
//! | m            | phases with any work                                          | 1       |
//! | n, r_bsp, r_asp | workers; synchronous steps per second, of n units each; asynchronous units per second | 1, 1/s, 1/s |
//! | T_switch     | seconds that a switch stalls the run                             | s       |
//!
//! A unit may be anything that all phases count alike: the batch of one worker, as published, or a sample.
//!
//! # Source
//!
//! Li, Mangoubi, Xu and Guo, Sync-Switch, ICDCS 2021, for one switch from synchronous to asynchronous training.
//!
//! # Assumes
//!
//! Rates do not change within a phase, nor with what came before it. The work is the same whatever the protocol: what
//! staleness does to it is in [`crate::staleness`].
//!
//! # Valid
//!
//! Runs without stragglers, losses and changes of the number of workers.
//!
//! # Checked by
//!
//! The published runs of `data/sync-switch` in `tests/it/hybrid.rs`; `examples/accuracy_hybrid.rs` prints them.
//!
//! ```
//! use bellwether_model::hybrid::{Phase, time_s};
//! // The published check: 500 steps of 8 units at 0.82 steps/s, then 60,000 units at 40.8 units/s: 2,080 s.
//! let phases = [
//!     Phase { share: 0.0625, units_per_s: 8.0 * 0.82 },
//!     Phase { share: 0.9375, units_per_s: 40.8 },
//! ];
//! let seconds = time_s(64_000.0, &phases, 0.0)?;
//! assert_eq!(seconds.round(), 2080.0);
//! # Ok::<(), bellwether_core::InputError>(())
//! ```

use bellwether_core::InputError;

use crate::common::check;

const PLACE: &str = "stretches";

/// The sum of the shares may differ from 1 by this much: they were written with few digits.
const ROUNDING: f64 = 1e-6;

/// A part of a run under one protocol.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Its share of the run's work, 0 to 1.
    pub share: f64,
    /// Units of work per second, all workers together.
    pub units_per_s: f64,
}

/// Seconds of a run of `work_units` with these phases, each switch between two that have work taking `switch_s`.
///
/// # Errors
///
/// Returns an error on any of these: no phase; shares below 0 or that do not sum to 1; a rate that is not positive,
/// where there is work; work or seconds that are not finite.
pub fn time_s(work_units: f64, phases: &[Phase], switch_s: f64) -> Result<f64, InputError> {
    check::negative(PLACE, "the work in units", work_units)?;
    check::negative(PLACE, "a switch in seconds", switch_s)?;
    for phase in phases {
        check::negative(PLACE, "a share of the work", phase.share)?;
    }
    let total = phases.iter().fold(0.0, |sum, phase| sum + phase.share);
    if (total - 1.0).abs() > ROUNDING {
        return Err(InputError::new(PLACE, format!("the shares of the work sum to {total}"))
            .hint("every unit of work is in one stretch: they sum to 1"));
    }
    let worked = || phases.iter().filter(|phase| phase.share > 0.0);
    for phase in worked() {
        check::not_positive(PLACE, "the rate of a stretch in units/s", phase.units_per_s)?;
    }
    let working_s: f64 = worked().map(|phase| phase.share * work_units / phase.units_per_s).sum();
    let switches = worked().count().saturating_sub(1);
    Ok(working_s + switches as f64 * switch_s)
}
