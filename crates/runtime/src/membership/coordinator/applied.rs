//! How far the active members are, counted, so that a report costs the same however many there are.
//!
//! The counts hold between two looks of the machine at the whole: until the next one, only reports change how far
//! members are.

use std::collections::BTreeMap;

use super::{Coordinator, Worker};
use crate::membership::WorkerId;

/// How many members have applied how many steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Applied(BTreeMap<u64, usize>);

impl FromIterator<u64> for Applied {
    fn from_iter<I: IntoIterator<Item = u64>>(steps: I) -> Applied {
        let mut applied = Applied::default();
        steps.into_iter().for_each(|step| *applied.0.entry(step).or_default() += 1);
        applied
    }
}

impl Applied {
    /// The fewest and the most steps of a member; 0 where there is none.
    pub(super) fn ends(&self) -> (u64, u64) {
        let least = self.0.first_key_value().map_or(0, |(step, _)| *step);
        (least, self.0.last_key_value().map_or(0, |(step, _)| *step))
    }

    /// A member that was there is here now.
    pub(super) fn moves(&mut self, from: u64, to: u64) {
        if let Some(count) = self.0.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&from);
            }
        }
        *self.0.entry(to).or_default() += 1;
    }
}

impl Worker {
    /// Steps that it has applied in this membership, as far as it told.
    pub(super) fn applied_in(&self, epoch: u64) -> u64 {
        if self.epoch == epoch { self.step } else { 0 }
    }
}

impl Coordinator {
    /// How far the active members are, one by one.
    pub(super) fn count_applied(&self) -> Applied {
        let epoch = self.current.epoch;
        let applied = |id: WorkerId| self.workers.get(&id).map_or(0, |w| w.applied_in(epoch));
        self.current.active.iter().map(|m| applied(m.worker)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_that_follow_each_report_are_those_of_all_members(
            mut steps in prop::collection::vec(0u64..6, 1..12),
            moves in prop::collection::vec((0usize..12, 0u64..8), 0..60),
        ) {
            let mut applied: Applied = steps.iter().copied().collect();
            for (member, step) in moves {
                let member = member % steps.len();
                applied.moves(steps[member], step);
                steps[member] = step;
                prop_assert_eq!(&applied, &steps.iter().copied().collect::<Applied>());
                let ends = (steps.iter().min().copied(), steps.iter().max().copied());
                prop_assert_eq!((Some(applied.ends().0), Some(applied.ends().1)), ends);
            }
        }
    }
}
