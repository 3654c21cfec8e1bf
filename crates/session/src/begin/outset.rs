//! Where a run begins: at its first step, or where it was left.

use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_core::record::RunOutcome;
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::run_dir::RunDir;

use super::store;
use crate::error::RunError;
use crate::{Note, Observe, Progress};

/// Where a run begins.
pub(crate) struct Outset {
    /// The numbers of workers that are allowed.
    pub(crate) workers: WorkerRange,
    /// Scheduled changes of the number of workers.
    pub(crate) schedule: Vec<(u64, u32)>,
    /// Steps that are done.
    pub(crate) first_step: u64,
    /// Whether the run was told a number of workers while it trained, which still holds.
    pub(crate) is_scaled: bool,
}

/// What was asked for.
pub(crate) struct Asked<'s> {
    /// The allowed numbers of workers, if they were given now.
    pub(crate) workers: Option<WorkerRange>,
    /// Those of the job.
    pub(crate) range: WorkerRange,
    /// The schedule.
    pub(crate) schedule: &'s [(u64, u32)],
    /// Whether the run finds its number of workers itself.
    pub(crate) autoscaled: bool,
}

impl Outset {
    /// Of a new run, or of `resumed`.
    ///
    /// # Errors
    ///
    /// Returns an error for a run that is finished, or whose journal cannot be read.
    pub(crate) fn find(
        asked: &Asked<'_>,
        (job, resumed): (&CheckedJob, Option<&RunDir>),
        observe: &mut Observe<'_>,
    ) -> Result<Outset, RunError> {
        let range = asked.workers.unwrap_or(asked.range);
        let mut outset =
            Outset { workers: range, schedule: asked.schedule.to_vec(), first_step: 0, is_scaled: false };
        let Some(run) = resumed else { return Ok(outset) };
        let history = unfinished(job, run)?;
        outset.first_step = history.committed();
        if outset.schedule.is_empty() && !asked.autoscaled {
            outset.schedule = run.schedule().unwrap_or_else(|why| {
                observe(Progress::Note(Note::ScheduleLost(why)));
                Vec::new()
            });
        }
        if asked.workers.is_some() {
            // What is asked for now overrules what the schedule said for the steps that are done.
            outset.schedule.retain(|(step, _)| *step > history.committed());
        } else if let Some(count) = history.scaled_to {
            outset.workers = WorkerRange { min: count, max: range.max.max(count) };
            outset.is_scaled = true;
        }
        Ok(outset)
    }
}

/// The past of a run that is to be taken up again; a finished one is not, unless its result is nowhere.
fn unfinished(job: &CheckedJob, run: &RunDir) -> Result<RunHistory, RunError> {
    let history = run.history()?;
    let is_finished = history.outcome() == Some(&RunOutcome::Finished);
    if !is_finished || history.last_checkpoint().is_none_or(|path| !store::is_there(job, &path)) {
        return Ok(history);
    }
    Err(RunError::Finished { run: run.name.clone(), steps: history.committed() })
}
