//! Who steers a run: everything that happens is shown to each in turn.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::record::{Decision, Event};
use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};
use bellwether_runtime::membership::WorkerId;
use clap::Args;

use super::autoscale::{AutoscaleArguments, Autoscaler};
use super::stragglers::{Replacer, StragglerArguments};
use crate::runs::RunDir;

/// What a user may say about it.
#[derive(Debug, Clone, Args)]
pub(crate) struct SteerArguments {
    #[command(flatten)]
    pub(super) autoscale: AutoscaleArguments,
    #[command(flatten)]
    pub(super) stragglers: StragglerArguments,
}

/// Several directors as one; nobody has to be shown anything where there are none.
pub(super) fn together(directors: Vec<Box<dyn Director>>) -> Option<Box<dyn Director>> {
    (!directors.is_empty()).then(|| Box::new(Steering(directors)) as Box<dyn Director>)
}

struct Steering(Vec<Box<dyn Director>>);

impl Director for Steering {
    fn direct(&mut self, seen: Seen<'_>, now: &Now<'_>) -> Vec<DirectorCommand> {
        self.0.iter_mut().flat_map(|director| director.direct(seen, now)).collect()
    }
}

impl SteerArguments {
    /// Finds out, before anything is begun, whether a job with this range of workers can be steered so.
    ///
    /// # Errors
    ///
    /// See [`AutoscaleArguments::check`].
    pub(super) fn check(&self, range: WorkerRange) -> Result<(), InputError> {
        self.autoscale.check(range)
    }

    /// Whoever has something to do in this run.
    ///
    /// # Errors
    ///
    /// What the autoscaler cannot work with.
    pub(super) fn directors(
        &self,
        job: &Job,
        range: WorkerRange,
        run: &RunDir,
        speeds: &BTreeMap<WorkerId, f64>,
    ) -> Result<Vec<Box<dyn Director>>, InputError> {
        let mut directors: Vec<Box<dyn Director>> = Vec::new();
        if let Some(autoscaler) = Autoscaler::new(&self.autoscale, job, range, run)? {
            directors.push(Box::new(autoscaler));
        }
        if let Some(per_hour) = self.stragglers.per_hour(self.autoscale.autoscale.is_some()) {
            directors.push(Box::new(Replacer::new(per_hour, speeds.clone())));
        }
        Ok(directors)
    }
}

/// All that was decided about the number of workers of a run since it began.
pub(super) fn decisions(run: &RunDir) -> Vec<Decision> {
    let decided = |event| match event {
        Event::Decided(decision) if decision.workers > 0 => Some(decision),
        _ => None,
    };
    // A journal that cannot be read tells of none.
    let lines = run.journal().into_iter().flat_map(|journal| journal.lines().map_while(Result::ok));
    lines.filter_map(|line| decided(line.event)).collect()
}
