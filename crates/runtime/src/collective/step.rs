//! What all peers have in common while one collective runs.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use bellwether_memory::Arena;

use super::inputs::Kept;
use super::plan::{CollectivePlan, Cut};
use super::route::{Headers, Way};
use crate::frame::Stamp;

/// What does not change while one collective runs, and how far it is.
pub(super) struct Step<'a> {
    pub(super) plan: &'a CollectivePlan,
    pub(super) stamp: Stamp,
    /// None yet while the worker still computes.
    pub(super) control: Option<Cow<'a, [u8]>>,
    pub(super) own: Own<'a>,
    /// Where the partial sums and `out` lie, for peers who can read them there.
    pub(super) lent: Option<Vec<u8>>,
    pub(super) done: Done,
    /// Control bytes of the group's members, and of all members, once they are here and a peer is to get them.
    pub(super) of_group: Option<Vec<u8>>,
    pub(super) of_all: Option<Vec<u8>>,
    pub(super) began: Instant,
}

impl Step<'_> {
    /// What the control frame with this index holds; `None` if there is none, or not all of it is here yet.
    pub(super) fn control_bytes(&self, way: &Way, index: usize) -> Option<&[u8]> {
        match way.controls.get(index)? {
            Headers::Own => self.control.as_deref(),
            Headers::Group => self.of_group.as_deref(),
            Headers::All => self.of_all.as_deref(),
        }
    }
}

/// This worker's own partial sums.
#[derive(Debug)]
pub(super) enum Own<'a> {
    /// All of them.
    Whole(&'a [&'a [f32]]),
    /// Those of the buckets that are ready so far.
    Buckets(Vec<Vec<&'a [f32]>>),
}

impl<'a> Own<'a> {
    /// Buckets that are ready.
    pub(super) fn ready(&self) -> usize {
        match self {
            Own::Whole(_) => usize::MAX,
            Own::Buckets(buckets) => buckets.len(),
        }
    }

    /// Where the partial sums lie in this arena, if all are known and lie there.
    pub(super) fn offsets(&self, arena: &Arena) -> Option<Vec<u64>> {
        match self {
            Own::Whole(partials) => partials.iter().map(|partial| arena.offset_of(partial)).collect(),
            Own::Buckets(_) => None,
        }
    }

    /// Values of the partial sum with this number, within one piece that is ready.
    pub(super) fn values(&self, cut: &Cut, number: usize, range: Range<usize>) -> &'a [f32] {
        match self {
            Own::Whole(partials) => &partials[number][range],
            Own::Buckets(buckets) => {
                let bucket = cut.bucket_of(range.start);
                let start = cut.buckets[bucket].start;
                &buckets[bucket][number][range.start - start..range.end - start]
            }
        }
    }
}

/// Pieces that are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Of the own column, added up over the members of the group.
    pub(super) within: usize,
    /// Of those among them that are this worker's, added up over the groups.
    pub(super) across: usize,
    /// Of the own column, from its beginning, those whose result is here.
    pub(super) results: usize,
}

/// Where the values lie that go to peers.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) out: &'a [f32],
    /// Sums of the group, which wait to cross to others.
    pub(super) kept: &'a Kept,
}
