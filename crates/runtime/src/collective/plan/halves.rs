//! Which values of a plan's vectors are bfloat16 numbers, and what they take on a connection.

use std::ops::Range;

use super::CollectivePlan;
use crate::bfloat;

impl CollectivePlan {
    /// The same plan for sums whose first `halves` values are rounded to bfloat16 at every node of the tree, as an
    /// [`Accumulator`](crate::tree::Accumulator) [rounds](crate::tree::Accumulator::round_leading) them: each of them
    /// travels in two bytes. All workers must plan with the same number. What a
    /// [gathering](CollectivePlan::gather) brings are not sums: there it changes nothing.
    ///
    /// # Panics
    ///
    /// If the vector has fewer values.
    #[must_use]
    pub fn with_bfloat16(mut self, halves: usize) -> CollectivePlan {
        assert!(halves <= self.length, "{halves} of {} values cannot be rounded", self.length);
        if !self.phase.begins_with_results() {
            self.halves = halves;
        }
        self
    }

    /// How many values of a part of the vector, from its beginning, are bfloat16 numbers.
    pub(in crate::collective) fn halves_in(&self, part: &Range<usize>) -> usize {
        self.halves.clamp(part.start, part.end) - part.start
    }

    /// Bytes of a frame with this part of each of some vectors.
    pub(in crate::collective) fn bytes(&self, part: &Range<usize>, vectors: usize) -> usize {
        vectors * bfloat::bytes(part.len(), self.halves_in(part))
    }
}
