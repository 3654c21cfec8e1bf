//! Directors steer a run while it goes on: everything that happens is shown to each director in turn.

use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};

pub(crate) mod autoscale;
pub(crate) mod batch;
pub(crate) mod lead;
pub(crate) mod machines;
mod memberships;
mod phases;
pub(crate) mod revocations;
pub(crate) mod rung;
pub(crate) mod servers;
pub(crate) mod shares;
pub(crate) mod slurm;
pub(crate) mod stop;
pub(crate) mod stragglers;
pub(crate) mod synchronise;
pub(crate) mod windows;

/// Several directors as one; without any, nothing has to be shown.
pub(crate) fn together(directors: Vec<Box<dyn Director>>) -> Option<Box<dyn Director>> {
    (!directors.is_empty()).then(|| Box::new(Together(directors)) as Box<dyn Director>)
}

struct Together(Vec<Box<dyn Director>>);

impl Director for Together {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        self.0.iter_mut().flat_map(|director| director.direct(seen, now)).collect()
    }
}
