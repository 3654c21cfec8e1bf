//! One training session of a search: a run of another process, read from its journal.
//!
//! The run is a process of its own in a folder of its own, so that it outlives a search that is killed: the
//! next search finds it finished, waits for it, or takes it up again from its checkpoint, and its time is
//! that of all its coordinators.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::record::RunOutcome;
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::order::SampleOrder;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_sched::tune::Outcome;

use super::{Progress, SearchError, Tell};
use crate::error::at;
use crate::process::{Life, Resume, RunProcess, Tie};

/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two words on how far it is.
const PERIOD: Duration = Duration::from_secs(10);

/// A session that ended.
#[derive(Debug)]
pub(super) struct Trained {
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    pub(super) samples: u64,
    /// Where it lies.
    pub(super) folder: PathBuf,
}

/// Trains `job` to its end as the run `name`, or what is left of that run, by `program`.
pub(super) fn train(
    folder: &StateDir,
    name: &str,
    job: &Job,
    program: &Path,
    tell: &mut Tell<'_>,
) -> Result<Trained, SearchError> {
    let mut tried = false;
    loop {
        let run = folder.create_named(name, job)?;
        if run.is_alive().map_err(|e| at(run.path.display().to_string(), e))? {
            follow(RunProcess::of(run), tell)?;
            continue;
        }
        let history = run.history()?;
        match history.outcome() {
            Some(RunOutcome::Finished) => return trained(&run, &history, job, None),
            Some(end @ (RunOutcome::Failed(_) | RunOutcome::Broken(_))) => {
                if end.has_diverged() {
                    return trained(&run, &history, job, Some(Outcome::Diverged));
                }
                if tried {
                    let hint = format!("journal.jsonl and the logs in {} tell more", run.path.display());
                    return Err(InputError::new(name, end.to_string()).hint(hint).into());
                }
                // What kept it from training then may be over.
                fs::remove_dir_all(&run.path).map_err(|e| at(run.path.display().to_string(), e))?;
            }
            Some(RunOutcome::Stopped) if tried => {
                return Err(SearchError::Stopped { run: name.into() });
            }
            _ => {
                // Resumed from the beginning if nothing exists yet.
                let mut process = RunProcess::of(run.clone());
                process.start(program, &Resume::of(&run), Tie::Shares).map_err(|e| at("this program", e))?;
                follow(process, tell)?;
                tried = true;
            }
        }
    }
}

/// Waits until the run has no process any more that leads it. `process` is one that was started here.
fn follow(mut process: RunProcess, tell: &mut Tell<'_>) -> Result<(), SearchError> {
    let mut told = Instant::now();
    while process.look() != Life::Gone {
        if told.elapsed() >= PERIOD {
            told = Instant::now();
            let history = process.run().history()?;
            tell(Progress::Step { committed: history.committed(), total: history.total_steps() });
        }
        std::thread::sleep(LOOK);
    }
    let run = process.run().name.clone();
    let Some(own) = process.own() else { return Ok(()) };
    match own.exit().map_err(|e| at("this program", e))? {
        // 1 is a run that failed, of which its journal tells.
        Some(status) if !matches!(status.code(), Some(0 | 1 | 3)) => {
            let said = own.said(u64::MAX);
            let said = said.trim().trim_start_matches("error: ");
            Err(at(run, format!("the run ended ({status}): {said}")).into())
        }
        _ => Ok(()),
    }
}

fn trained(
    run: &RunDir,
    history: &RunHistory,
    job: &Job,
    outcome: Option<Outcome>,
) -> Result<Trained, SearchError> {
    let evaluated =
        history.evaluation.map(|last| last.accuracy.map_or(Outcome::Loss(last.loss), Outcome::Accuracy));
    let outcome = outcome.or(evaluated).ok_or_else(|| {
        InputError::new(
            &run.name,
            "nothing was evaluated in the end, so that no share is better than another",
        )
        .hint("a job needs held-out samples (data.held_out) to be tuned")
    })?;
    let order = history.task.as_ref().map(|task| SampleOrder {
        samples: task.training_samples,
        batch: task.batch,
        virtual_nodes: task.virtual_nodes,
        seed: job.seed,
        block: job.data.order_block(),
    });
    let samples = order.map_or(0, |order| order.samples_before(history.committed()));
    Ok(Trained { outcome, seconds: history.lived_s(), samples, folder: run.path.clone() })
}
