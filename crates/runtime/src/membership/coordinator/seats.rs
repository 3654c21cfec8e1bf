//! A membership in which each worker's place is found at once: it is looked up in every message, and there may be a
//! thousand places.

use std::ops::Deref;

use crate::membership::{Membership, WorkerId};

/// A membership that changes only as a whole, with its workers in the order of their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Seats {
    membership: Membership,
    /// Active members, each with its rank.
    ranks: Vec<(WorkerId, usize)>,
    shadows: Vec<WorkerId>,
}

impl From<Membership> for Seats {
    fn from(membership: Membership) -> Seats {
        let mut ranks: Vec<_> = membership.active.iter().map(|m| m.worker).zip(0..).collect();
        ranks.sort_unstable();
        let mut shadows: Vec<_> = membership.shadows.iter().map(|m| m.worker).collect();
        shadows.sort_unstable();
        Seats { membership, ranks, shadows }
    }
}

impl Deref for Seats {
    type Target = Membership;

    fn deref(&self) -> &Membership {
        &self.membership
    }
}

impl Seats {
    /// As [`Membership::rank`].
    pub(super) fn rank(&self, worker: WorkerId) -> Option<usize> {
        let place = self.ranks.partition_point(|(other, _)| *other < worker);
        self.ranks.get(place).filter(|(other, _)| *other == worker).map(|(_, rank)| *rank)
    }

    /// As [`Membership::shadows`].
    pub(super) fn shadows(&self, worker: WorkerId) -> bool {
        self.shadows.binary_search(&worker).is_ok()
    }

    /// As [`Membership::contains`].
    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.rank(worker).is_some() || self.shadows(worker)
    }

    /// What each update covers is settled when a recovery ends.
    pub(super) fn accumulate(&mut self, steps: u32) {
        self.membership.accumulation = steps;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::membership::{Active, Shadow};

    proptest! {
        #[test]
        fn every_worker_is_found_where_the_membership_has_it(
            active in prop::collection::vec(1u64..40, 0..20),
            shadows in prop::collection::vec(1u64..40, 0..10),
        ) {
            let address = String::new;
            let membership = Membership {
                active: active.iter().map(|id| Active { worker: *id, address: address(), nodes: 0..1 }).collect(),
                shadows: shadows.iter().map(|id| Shadow { worker: *id, address: address() }).collect(),
                ..Membership::default()
            };
            let seats = Seats::from(membership.clone());
            for worker in 0..41 {
                prop_assert_eq!(seats.rank(worker), membership.rank(worker));
                prop_assert_eq!(seats.shadows(worker), membership.shadows(worker));
                prop_assert_eq!(seats.contains(worker), membership.contains(worker));
            }
        }
    }
}
