//! The two phases of a step in which every worker keeps an optimizer's state for some parts of the parameters only.
//!
//! Between an all-reduce's two halves, the owner of a part computes its new parameters. First all gradients are
//! *scattered*: the owner adds up those of its parts, and the workers that keep a copy of its state get the sum too.
//! Then the new parameters are *gathered*: everyone gets them from the owners. One of `W` members that own the same
//! amount sends about `(W-1)/W` of the vector in each phase, and in the first `1/W` of it for each further copy.

use std::collections::BTreeSet;
use std::ops::Range;

use bellwether_core::groups::Groups;

use super::cut::{Cut, Held, segments};
use super::{
    CollectivePlan, Lengths, Member, Mode, PlanError, Sizes, bucket_values, bulk_piece, check_members,
};
use crate::collective::route::Sequence;

/// What of an all-reduce a collective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collective) enum Phase {
    /// All of it.
    Whole,
    /// Adds up; the sum of a part goes to those who hold it.
    Scatter,
    /// Brings everyone what the owners have.
    Gather,
    /// Brings what the owners have to those for whom it is.
    Deliver,
}

impl Phase {
    /// Whether there is nothing to add up: owners have from the start what they send.
    pub(in crate::collective) fn begins_with_results(self) -> bool {
        matches!(self, Phase::Gather | Phase::Deliver)
    }
}

impl CollectivePlan {
    /// The plan of worker `me` for the first phase, in which everyone is a peer of everyone and all are members.
    ///
    /// `held` are the parts of the parameters, in ascending order without gaps; the model's state behind them is dealt
    /// out evenly among all members, and each has its part alone. A collective leaves in `out` the sums that this
    /// worker holds, and does not touch the others. It takes buckets as others do.
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn scatter(
        virtual_nodes: u32,
        members: Vec<Member>,
        me: u64,
        lengths: impl Into<Lengths>,
        held: &[Held],
    ) -> Result<CollectivePlan, PlanError> {
        let (lengths, sizes) = (lengths.into(), Sizes::usual(members.len()));
        let plan = Self::in_one_group(virtual_nodes, members, Vec::new(), me, lengths, sizes)?;
        plan.in_phase(Phase::Scatter, (lengths, sizes), held)
    }

    /// The plan of worker `me`, a member or a shadow, for the second phase, in which everyone is a peer of everyone:
    /// all members [share](crate::collective::Collective::share) what they own, with the same parts as in
    /// [`scatter`](CollectivePlan::scatter).
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn gather(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        lengths: impl Into<Lengths>,
        held: &[Held],
    ) -> Result<CollectivePlan, PlanError> {
        let (lengths, sizes) = (lengths.into(), Sizes::usual(members.len()));
        let plan = Self::in_one_group(virtual_nodes, members, shadows, me, lengths, sizes)?;
        plan.in_phase(Phase::Gather, (lengths, sizes), held)
    }

    /// The plan of worker `me` for parts that some members have and others, members or shadows, are to get: the first
    /// of a part's ranks [shares](crate::collective::Collective::share) it with the rest of them, where shadows have
    /// the ranks behind those of the members. Parts are in ascending order, and need not cover the vector.
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn deliver(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        length: usize,
        parts: &[Held],
    ) -> Result<CollectivePlan, PlanError> {
        let (lengths, sizes) = (Lengths::from(length), Sizes::usual(members.len()));
        let plan = Self::in_one_group(virtual_nodes, members, shadows, me, lengths, sizes)?;
        let mut all = Vec::new();
        let mut covered = 0;
        // What is for no one else lies with any member.
        let still = |values| Held { values, ranks: vec![0] };
        for part in parts {
            all.extend((covered < part.values.start).then(|| still(covered..part.values.start)));
            all.push(part.clone());
            covered = part.values.end;
        }
        all.extend((covered < length).then(|| still(covered..length)));
        plan.in_phase(Phase::Deliver, (lengths, sizes), &all)
    }

    fn in_one_group(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        lengths: Lengths,
        sizes: Sizes,
    ) -> Result<CollectivePlan, PlanError> {
        check_members(virtual_nodes, &members)?;
        let one = Groups::one(members.len());
        Self::with_groups(virtual_nodes, members, shadows, me, lengths, (one, sizes))
    }

    /// A plan in one group for these lengths, for one phase instead of the whole.
    pub(in crate::collective) fn in_phase(
        mut self,
        phase: Phase,
        (lengths, sizes): (Lengths, Sizes),
        held: &[Held],
    ) -> Result<CollectivePlan, PlanError> {
        let members = self.members.len();
        let shadows = if phase == Phase::Deliver { self.shadows.len() } else { 0 };
        check_held(held, lengths.parameters, (members, shadows))?;
        let state = lengths.parameters..lengths.total();
        let state =
            segments(&state, members).enumerate().map(|(rank, values)| Held { values, ranks: vec![rank] });
        self.held = held.iter().cloned().chain(state).collect();
        let piece = bulk_piece(self.length, &self.groups, sizes.piece_bytes);
        let bucket = bucket_values(lengths, members, piece, sizes.bucket_bytes);
        self.cut = Cut::parts(lengths, members, (bucket, piece), &self.held);
        if (0..members).any(|column| self.cut.pieces(column) > u32::MAX as usize) {
            return Err(PlanError::TooLong(self.length));
        }
        (self.phase, self.mode) = (phase, Mode::Bulk);
        if phase.begins_with_results() {
            self.partials.fill(0);
            self.within.clear();
        }
        self.routes = self.routes_of(self.seat);
        Ok(self)
    }

    /// Where the pieces lie that this worker adds up in bulk mode, or brings to a gathering, in the order in which they
    /// travel; none at a shadow.
    pub fn own_pieces(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let pieces = move |column| (0..self.pieces(column)).map(move |piece| self.piece_range(column, piece));
        self.own_column().into_iter().flat_map(pieces)
    }

    /// The pieces of a column that this rank holds.
    pub(super) fn held_by(&self, rank: usize, column: usize) -> Sequence {
        let is_held = |piece: &u32| {
            let start = self.piece_range(column, *piece as usize).start;
            let part = self.held.partition_point(|part| part.values.end <= start);
            self.held[part].ranks.contains(&rank)
        };
        let pieces = u32::try_from(self.pieces(column)).expect("the plan bounds the number of pieces");
        Sequence::listed(column, (0..pieces).filter(is_held).collect())
    }
}

fn check_held(held: &[Held], parameters: usize, (members, shadows): (usize, usize)) -> Result<(), PlanError> {
    let mut covered = 0;
    for (part, found) in held.iter().enumerate() {
        let Held { values, ranks } = found;
        let distinct: BTreeSet<&usize> = ranks.iter().filter(|rank| **rank < members + shadows).collect();
        let is_owned = ranks.first().is_some_and(|owner| *owner < members);
        let are_held = is_owned && distinct.len() == ranks.len();
        if values.start != covered || values.end < values.start || !are_held {
            return Err(PlanError::Part { part, found: found.clone(), expected_start: covered });
        }
        covered = values.end;
    }
    if covered == parameters { Ok(()) } else { Err(PlanError::Parts { covered, parameters }) }
}
