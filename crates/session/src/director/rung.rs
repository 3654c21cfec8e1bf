//! A trial of a sweep waits at its rung: once it was evaluated there, the sweep says whether it goes on.
//!
//! The sweep writes the step into the run's folder, where it may change while the run goes on, and pauses a trial that
//! is not to go on. Until it has decided, the trial trains: what it trains meanwhile is a part of it in any case, and a
//! trial that goes on need not be started again. A sweep that is gone decides nothing: then the trial stops with a
//! checkpoint a little after the last rung that it was given.

use std::time::{Duration, Instant};

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::run_dir::RunDir;

/// Between two looks at the step.
const PERIOD: Duration = Duration::from_millis(50);

/// How long a sweep has to decide.
const DECIDING: Duration = Duration::from_secs(2);

/// Who asks, for the journal.
const BY: &str = "the trial has reached its rung, and its sweep does not say that it goes on";

/// Stops a run at its rung unless the sweep lets it go on.
struct Landing {
    run: RunDir,
    /// The last step at which the run was evaluated.
    evaluated: Option<u64>,
    looked: Option<Instant>,
    /// Since when it has been at its rung.
    landed: Option<Instant>,
    has_stopped: bool,
}

/// One for a run that may have rungs: the job of a daemon or of a sweep.
pub(crate) fn director(run: &RunDir) -> Option<Box<dyn Director>> {
    if !run.is_served() {
        return None;
    }
    let (history, _) = run.follow_history();
    let evaluated = history.evaluation.map(|evaluation| evaluation.step);
    Some(Box::new(Landing { run: run.clone(), evaluated, looked: None, landed: None, has_stopped: false }))
}

impl Landing {
    /// Whether the run is at its rung. A step that cannot be read is none.
    fn has_landed(&self, total_steps: u64) -> bool {
        let rung = self.run.rung().ok().flatten().filter(|rung| *rung < total_steps);
        rung.zip(self.evaluated).is_some_and(|(rung, evaluated)| evaluated >= rung)
    }
}

impl Director for Landing {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let is_due = match seen {
            RunEvent::Journal(Event::Evaluated { step, .. }) => {
                self.evaluated = self.evaluated.max(Some(*step));
                true
            }
            RunEvent::Tick => self.looked.is_none_or(|looked| looked.elapsed() >= PERIOD),
            _ => false,
        };
        if !is_due || self.has_stopped {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        self.landed = match self.has_landed(now.total_steps) {
            true => self.landed.or(self.looked),
            false => None,
        };
        self.has_stopped = self.landed.is_some_and(|landed| landed.elapsed() >= DECIDING);
        if self.has_stopped { vec![DirectorCommand::Stop { by: BY.into() }] } else { Vec::new() }
    }
}
