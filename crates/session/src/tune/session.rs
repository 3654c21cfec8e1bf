//! One training session of a search: a run of another process, read from its journal.
//!
//! The run is a process of its own in a folder of its own, so that it outlives a search that is killed: the
//! next search finds it finished, waits for it, or takes it up again from its checkpoint, and its time is
//! that of all its coordinators.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
            follow(&run, None, tell)?;
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
                let child = start(folder, &run, program)?;
                follow(&run, Some(child), tell)?;
                tried = true;
            }
        }
    }
}

/// Resumes the run, from the beginning if nothing exists yet.
fn start(folder: &StateDir, run: &RunDir, program: &Path) -> Result<Child, SearchError> {
    let said = run.said_file();
    let file = File::create(&said).map_err(|e| at(said.display().to_string(), e))?;
    Command::new(program)
        .args(["run", "--resume", &run.name, "--format", "json", "--state-dir"])
        .arg(folder.path())
        .env("BELLWETHER_NO_PROGRESS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .map_err(|e| at("this program", e).into())
}

/// Waits until the run has no coordinator any more: until `child` ends, where it is ours.
fn follow(run: &RunDir, mut child: Option<Child>, tell: &mut Tell<'_>) -> Result<(), SearchError> {
    let mut told = Instant::now();
    loop {
        let status = match &mut child {
            Some(child) => child.try_wait().map_err(|e| at("this program", e))?,
            None if run.is_alive().unwrap_or(false) => None,
            None => return Ok(()),
        };
        if let Some(status) = status {
            // 1 is a run that failed, of which its journal tells.
            if matches!(status.code(), Some(0 | 1 | 3)) {
                return Ok(());
            }
            let said = fs::read_to_string(run.said_file()).unwrap_or_default();
            let said = said.trim().trim_start_matches("error: ");
            let what = format!("the run ended ({status}): {said}");
            return Err(at(&run.name, what).into());
        }
        if told.elapsed() >= PERIOD {
            told = Instant::now();
            let history = run.history()?;
            tell(Progress::Step { committed: history.committed(), total: history.total_steps() });
        }
        std::thread::sleep(LOOK);
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
    });
    let samples = order.map_or(0, |order| order.samples_before(history.committed()));
    Ok(Trained { outcome, seconds: history.lived_s(), samples, folder: run.path.clone() })
}
