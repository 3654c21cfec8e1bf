//! The job of a trial, as it is given to an engine.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job, WorkerRange};
use bellwether_core::sweep::{Ladder, Unit};

use crate::ledger::Task;
use crate::request::Submission;

/// A sample laid over the job file.
#[derive(Debug, Clone)]
pub struct Laid {
    /// What is trained; its paths are absolute.
    pub job: CheckedJob,
    /// What is known of its task.
    pub task: Task,
}

/// A trial's job with its name, which is accepted once for each `key`; it begins with one worker.
pub(super) fn named(laid: Laid, name: &str, key: String) -> Result<Submission, InputError> {
    let one = Some(WorkerRange { min: 1, max: 1 });
    Ok(Submission { workers: one, ..Submission::named(laid.job, laid.task, name, key)? })
}

/// Steps of a unit of length.
pub(super) fn unit_steps(unit: Unit, job: &CheckedJob, task: Task) -> u64 {
    match unit {
        Unit::Steps => 1,
        Unit::Epochs => task.training_samples.div_ceil(job.batch.size.max(1)).max(1),
    }
}

/// Gives a job the length of a whole trial, and evaluations at every rung.
pub(super) fn stretch(job: &mut Job, ladder: Ladder, unit: Unit, unit_steps: u64) {
    (job.epochs, job.steps) = match unit {
        Unit::Epochs => (Some(ladder.maximum), None),
        Unit::Steps => (None, Some(ladder.maximum)),
    };
    let every = ladder.minimum.saturating_mul(unit_steps);
    let own = job.evaluation.every_steps;
    if own == 0 || !every.is_multiple_of(own) {
        job.evaluation.every_steps = every;
    }
}
