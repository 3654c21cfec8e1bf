//! Who steers a run: everything that happens is shown to each in turn.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::record::{Decision, Event};
use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};
use bellwether_runtime::journal;
use bellwether_runtime::membership::WorkerId;
use clap::Args;

use super::autoscale::{AutoscaleArguments, Autoscaler};
use super::stragglers::{Replacer, StragglerArguments};
use crate::runs::RunDir;

/// Memberships that are remembered: steps are reported some time after they were done.
const KEPT: usize = 8;

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

/// Who trained from some step on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Began {
    step: u64,
    /// Who computes.
    pub(super) workers: BTreeSet<WorkerId>,
    /// Whether others receive the state meanwhile, which takes processors and links too.
    pub(super) receiving: bool,
}

/// Who trained which step: the last memberships, by the boundary at which they began.
#[derive(Debug, Default)]
pub(super) struct Memberships(Vec<Began>);

impl Memberships {
    /// Takes note of a membership; other lines say nothing here.
    pub(super) fn note(&mut self, event: &Event) {
        if let Event::Membership { step, workers, shadows, .. } = event {
            // A recovery may begin at an earlier boundary than the membership before it.
            self.0.retain(|began| began.step < *step);
            self.0.push(Began {
                step: *step,
                workers: workers.iter().copied().collect(),
                receiving: !shadows.is_empty(),
            });
            self.0.drain(..self.0.len().saturating_sub(KEPT));
        }
    }

    /// Who trained a step.
    pub(super) fn at(&self, step: u64) -> Option<&Began> {
        self.0.iter().rev().find(|began| began.step <= step)
    }
}

/// All that was decided about the number of workers of a run since it began.
pub(super) fn decisions(run: &RunDir) -> Vec<Decision> {
    let lines = journal::read(&run.journal_file()).unwrap_or_default();
    let decided = |event| match event {
        Event::Decided(decision) if decision.workers > 0 => Some(decision),
        _ => None,
    };
    lines.into_iter().filter_map(|line| decided(line.event)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_belongs_to_the_membership_in_force() {
        let began = |step, workers: &[u64], shadows: &[u64]| Event::Membership {
            epoch: 1,
            step,
            workers: workers.to_vec(),
            bounds: Vec::new(),
            shadows: shadows.to_vec(),
            accumulation: 1,
            reason: String::new(),
        };
        let mut memberships = Memberships::default();
        assert_eq!(memberships.at(3), None);
        memberships.note(&began(0, &[1], &[]));
        memberships.note(&began(5, &[1], &[2]));
        memberships.note(&began(9, &[1, 2], &[]));
        let workers = |memberships: &Memberships, step| {
            memberships.at(step).map(|began| (began.workers.len(), began.receiving))
        };
        assert_eq!(workers(&memberships, 4), Some((1, false)));
        assert_eq!(workers(&memberships, 8), Some((1, true)));
        assert_eq!(workers(&memberships, 9), Some((2, false)));
        // A crash takes the run back behind the last boundary.
        memberships.note(&began(7, &[2], &[]));
        assert_eq!(workers(&memberships, 9), Some((1, false)));
    }
}
