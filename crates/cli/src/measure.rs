//! Measures a job for a moment and makes its profile, for `profile` and for the choice of a number of workers.

use bellwether_core::job::Job;
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::Profile;
use bellwether_runtime::membership::TraineeDescription;

use crate::failure::Failure;
use crate::printer::Printer;

mod asynchronous;
mod build;
mod by_parts;
mod setup;
mod synchronous;

pub(crate) use build::median;
pub(crate) use setup::How;
pub(crate) use synchronous::measure as measure_synchronous;

/// Measures what the job does first: that is what its profile says.
///
/// # Errors
///
/// What keeps it from being trained.
pub(crate) fn measure(
    job: &Job,
    trainee: &TraineeDescription,
    how: &How,
    printer: &Printer,
) -> Result<Profile, Failure> {
    match job.sync.policy.stretches(job.total_steps(trainee.training_samples)).first() {
        Some((_, Protocol::Asp | Protocol::Ssp(_))) => asynchronous::measure(job, trainee, how, printer),
        _ => synchronous::measure(job, trainee, how, printer),
    }
}
