//! A trial of a sweep waits at its rung: the run stops with a checkpoint once it was evaluated there.
//!
//! The sweep writes the step into the run's folder, where it may change while the run goes on. A sweep that is gone
//! changes nothing: the trial still stops at the last rung that it was given.

use std::time::{Duration, Instant};

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::run_dir::RunDir;

/// Between two looks at the step.
const PERIOD: Duration = Duration::from_millis(50);

/// Who asks, for the journal.
const BY: &str = "the sweep: the trial has reached its rung";

/// Stops a run at its rung.
struct Landing {
    run: RunDir,
    /// The last step at which the run was evaluated.
    evaluated: Option<u64>,
    looked: Option<Instant>,
    has_stopped: bool,
}

/// One for a run that may have rungs: the job of a daemon or of a sweep.
pub(crate) fn director(run: &RunDir) -> Option<Box<dyn Director>> {
    if !run.is_served() {
        return None;
    }
    let (history, _) = run.follow_history();
    let evaluated = history.evaluation.map(|evaluation| evaluation.step);
    Some(Box::new(Landing { run: run.clone(), evaluated, looked: None, has_stopped: false }))
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
        self.has_stopped = self.has_landed(now.total_steps);
        if self.has_stopped { vec![DirectorCommand::Stop { by: BY.into() }] } else { Vec::new() }
    }
}
