//! The last leaf of a range, added while it is computed: a part of the vector that is whole has its final sums before
//! the others have theirs.

use std::ops::Range;

use super::{Accumulator, add_assign};
use crate::bfloat;

/// The partial sums, open for the last leaf.
#[derive(Debug)]
pub(crate) struct LastLeaf<'a> {
    /// The parts of the vector, in the order of the ranges that were asked for.
    pub(crate) parts: Vec<Part<'a>>,
    /// Where the sums that are left in the end lie in the accumulator's arena, if all do.
    pub(crate) offsets: Option<Vec<u64>>,
}

/// The partial sums of a range of the vector.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    range: Range<usize>,
    sums: Vec<&'a mut [f32]>,
    /// Additions that the leaf brings; where there are none it is a sum of its own.
    merges: usize,
    /// Values of the leaf that have not come.
    missing: usize,
    /// Leading values of the part that are rounded to bfloat16.
    halves: usize,
}

impl Accumulator {
    /// Opens the sums for what is left: the last leaf, or the sum of this many leaves that make a maximal node.
    /// `ranges` partition the vector.
    ///
    /// # Panics
    ///
    /// If other leaves are missing, or `ranges` do not partition the vector.
    pub(crate) fn open_last(&mut self, leaves: u32, ranges: &[Range<usize>]) -> LastLeaf<'_> {
        let merges = self.last_merges(leaves);
        if merges == 0 {
            self.leaf();
        }
        let mut offsets = Some(Vec::new());
        let left = self.stack.len() + 1 - merges;
        for sum in self.stack.iter().chain(&self.filling).take(left) {
            let offset = self.arena.as_ref().and_then(|arena| arena.offset_of(sum));
            offsets = offsets.zip(offset).map(|(mut all, offset)| {
                all.push(offset);
                all
            });
        }
        let mut parts: Vec<Part<'_>> = ranges
            .iter()
            .map(|range| {
                let halves = self.halves.clamp(range.start, range.end) - range.start;
                Part { range: range.clone(), sums: Vec::new(), merges, missing: range.len(), halves }
            })
            .collect();
        let mut ascending: Vec<usize> = (0..ranges.len()).collect();
        ascending.sort_by_key(|place| ranges[*place].start);
        for sum in self.stack.iter_mut().chain(&mut self.filling) {
            let mut rest: &mut [f32] = sum;
            for place in &ascending {
                let (here, behind) = rest.split_at_mut(ranges[*place].len());
                parts[*place].sums.push(here);
                rest = behind;
            }
            assert!(rest.is_empty(), "the ranges partition the vector");
        }
        LastLeaf { parts, offsets }
    }

    /// All parts are whole: the sums are complete.
    ///
    /// # Panics
    ///
    /// See [`open_last`](Accumulator::open_last).
    pub(crate) fn close_last(&mut self, leaves: u32) {
        let merges = self.last_merges(leaves);
        self.stack.extend(self.filling.take());
        for _ in 1..merges {
            self.free.extend(self.stack.pop());
        }
        self.pushed = self.merges.len();
    }

    /// Additions that follow the arrival of what is left. Within the sum of several leaves they are done.
    fn last_merges(&self, leaves: u32) -> usize {
        assert_eq!(self.pushed + leaves as usize, self.merges.len(), "only the last leaves are missing");
        match leaves {
            1 => self.merges.last().map_or(0, |merges| *merges as usize),
            _ => 0,
        }
    }
}

impl<'a> Part<'a> {
    /// Whether all values of the leaf have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Takes those values of the leaf that belong here; the first of `values` is at `start` of the whole vector. Says
    /// whether they were awaited.
    pub(crate) fn take(&mut self, start: usize, values: &[f32]) -> bool {
        let range = self.range.start.max(start)..self.range.end.min(start + values.len());
        if range.is_empty() {
            return true;
        }
        let Some(missing) = self.missing.checked_sub(range.len()) else { return false };
        self.missing = missing;
        let values = &values[range.start - start..range.end - start];
        let here = range.start - self.range.start..range.end - self.range.start;
        let halves = self.halves.clamp(here.start, here.end) - here.start;
        let sum = self.sums.last_mut().expect("a part has the leaf's sum");
        let (rounded, sum) = sum[here].split_at_mut(halves);
        let (of_rounded, values) = values.split_at(halves);
        if self.merges == 0 {
            rounded.iter_mut().zip(of_rounded).for_each(|(sum, value)| *sum = bfloat::round(*value));
            sum.copy_from_slice(values);
        } else {
            let add = |(sum, value): (&mut f32, &f32)| *sum = bfloat::round(*sum + bfloat::round(*value));
            rounded.iter_mut().zip(of_rounded).for_each(add);
            add_assign(sum, values);
        }
        true
    }

    /// The final partial sums.
    pub(crate) fn close(mut self) -> Vec<&'a [f32]> {
        for _ in 1..self.merges {
            let right = self.sums.pop().expect("a merge has a right operand");
            let left = self.sums.last_mut().expect("a merge has a left operand");
            bfloat::add_assign(left, right, self.halves);
        }
        self.sums.into_iter().map(|sum| &*sum).collect()
    }
}
