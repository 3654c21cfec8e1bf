//! One training session of a search: a run of this same program, read from its journal.
//!
//! The run is a process of its own in a folder of its own, so that it outlives a search that is killed: the next search finds
//! it finished, waits for it, or takes it up again from its checkpoint, and its time is that of all its coordinators.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::record::{Event, Line, RunOutcome};
use bellwether_runtime::journal;
use bellwether_runtime::order::SampleOrder;
use bellwether_sched::tune::Outcome;

use crate::failure::Failure;
use crate::history::{History, Left};
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};

/// Time between two looks at a run.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two lines on how far it is.
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

/// Trains `job` to its end as the run `name`, or what is left of that run.
pub(super) fn train(folder: &StateDir, name: &str, job: &Job, printer: &Printer) -> Result<Trained, Failure> {
    let mut tried = false;
    loop {
        let run = folder.create_named(name, job)?;
        if run.is_alive().map_err(|e| Failure::at(run.path.display().to_string(), e))? {
            follow(&run, None, printer)?;
            continue;
        }
        match History::read(&run)?.left() {
            Some(Left::Ended(RunOutcome::Finished)) => return trained(&run, job, None),
            Some(Left::Ended(end @ (RunOutcome::Failed(_) | RunOutcome::Broken(_)))) => {
                if end.has_diverged() {
                    return trained(&run, job, Some(Outcome::Diverged));
                }
                if tried {
                    let hint = format!("journal.jsonl and the logs in {} tell more", run.path.display());
                    return Err(InputError::new(name, end.to_string()).hint(hint).into());
                }
                // What kept it from training then may be over.
                fs::remove_dir_all(&run.path).map_err(|e| Failure::at(run.path.display().to_string(), e))?;
            }
            Some(Left::Ended(RunOutcome::Stopped)) if tried => {
                let what = format!("{name} was stopped; with --resume the search goes on from there");
                return Err(Failure::No(what));
            }
            _ => {
                let child = start(folder, &run)?;
                follow(&run, Some(child), printer)?;
                tried = true;
            }
        }
    }
}

/// Takes the run up, from the beginning where there is nothing of it yet.
fn start(folder: &StateDir, run: &RunDir) -> Result<Child, Failure> {
    let said = run.said_file();
    let file = File::create(&said).map_err(|e| Failure::at(said.display().to_string(), e))?;
    let program = std::env::current_exe().map_err(|e| Failure::at("this program", e))?;
    Command::new(program)
        .args(["run", "--resume", &run.name, "--format", "json", "--state-dir"])
        .arg(folder.path())
        .env("BELLWETHER_NO_PROGRESS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .map_err(|e| Failure::at("this program", e))
}

/// Waits until the run has no coordinator any more: until `child` ends, where it is ours.
fn follow(run: &RunDir, mut child: Option<Child>, printer: &Printer) -> Result<(), Failure> {
    let mut told = Instant::now();
    loop {
        let status = match &mut child {
            Some(child) => child.try_wait().map_err(|e| Failure::at("this program", e))?,
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
            return Err(Failure::at(&run.name, what));
        }
        if !printer.quiet && told.elapsed() >= PERIOD {
            told = Instant::now();
            let history = History::read(run)?;
            let total = history.total_steps().map_or(String::new(), |total| format!("/{total}"));
            printer.note(format_args!("  step {}{total}", history.committed()));
        }
        std::thread::sleep(LOOK);
    }
}

fn lines(run: &RunDir) -> Result<Vec<Line>, Failure> {
    let path = run.journal_file();
    journal::read(&path).map_err(|e| Failure::at(path.display().to_string(), e))
}

/// Seconds that coordinators of the run lived, as their lines tell.
fn seconds(lines: &[Line]) -> f64 {
    let begins = |line: &Line| matches!(line.event, Event::CoordinatorStarted { .. });
    let lives = lines.chunk_by(|_, next| !begins(next));
    lives.map(|life| (life[life.len() - 1].time_s - life[0].time_s).max(0.0)).sum()
}

fn trained(run: &RunDir, job: &Job, outcome: Option<Outcome>) -> Result<Trained, Failure> {
    let lines = lines(run)?;
    let evaluated = lines.iter().rev().find_map(|line| match line.event {
        Event::Evaluated { loss, accuracy, .. } => {
            Some(accuracy.map_or(Outcome::Loss(loss), Outcome::Accuracy))
        }
        _ => None,
    });
    let outcome = outcome.or(evaluated).ok_or_else(|| {
        InputError::new(
            &run.name,
            "nothing was evaluated in the end, so that no share is better than another",
        )
        .hint("a job needs held-out samples (data.held_out) to be tuned")
    })?;
    let order = lines.iter().find_map(|line| match line.event {
        Event::TaskKnown { training_samples: samples, batch, virtual_nodes, .. } => {
            Some(SampleOrder { samples, batch, virtual_nodes, seed: job.seed })
        }
        _ => None,
    });
    let samples = order.map_or(0, |order| order.samples_before(journal::resumed(&lines).committed));
    Ok(Trained { outcome, seconds: seconds(&lines), samples, folder: run.path.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time_s: f64, event: Event) -> Line {
        Line { time_s, event }
    }

    fn started(time_s: f64) -> Line {
        line(time_s, Event::CoordinatorStarted { process: 1, version: String::new(), resumed: false })
    }

    fn end(time_s: f64) -> Line {
        line(time_s, Event::Ended { step: 1, outcome: RunOutcome::Finished, params_digest: None })
    }

    #[test]
    fn time_between_two_coordinators_does_not_count() {
        let lines = [started(10.0), line(13.0, Event::RolledBack { to: 0 }), started(100.0), end(102.0)];
        assert!((seconds(&lines) - 5.0).abs() < 1e-9);
        assert!(seconds(&[]) == 0.0);
    }
}
