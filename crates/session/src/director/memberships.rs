//! Who trained which step of a run, as its journal tells.

use std::collections::BTreeSet;

use bellwether_core::record::Event;
use bellwether_runtime::membership::WorkerId;

/// Memberships that are remembered: steps are reported some time after they were done.
const KEPT: usize = 8;

/// Who trained from some step on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Began {
    step: u64,
    /// Who computes.
    pub(crate) workers: BTreeSet<WorkerId>,
    /// Whether others receive the state meanwhile, which takes processors and links too.
    pub(crate) receiving: bool,
}

/// Who trained which step: the last memberships, by the boundary at which they began.
#[derive(Debug, Default)]
pub(crate) struct Memberships(Vec<Began>);

impl Memberships {
    /// Takes note of a membership; other lines say nothing here.
    pub(crate) fn note(&mut self, event: &Event) {
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
    pub(crate) fn at(&self, step: u64) -> Option<&Began> {
        self.0.iter().rev().find(|began| began.step <= step)
    }
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
