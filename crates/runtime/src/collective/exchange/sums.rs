//! The additions of a collective: over the members of a group, then over the groups.

use std::ops::Range;

use super::{Exchange, lost};
use crate::collective::CollectiveError;
use crate::collective::headers;
use crate::collective::inputs::Source;
use crate::collective::peer::{Peer, place};
use crate::collective::plan::{CollectivePlan, Mode};
use crate::collective::route::Route;
use crate::collective::step::Done;

/// The values `range` of a vector that goes into the sum of a piece. `own` finds this worker's, and `index` is the
/// piece's place among those that come from peers.
fn vector<'a>(
    plan: &CollectivePlan,
    received: &'a [Vec<f32>],
    (source, index, values): (Source, usize, usize),
    range: Range<usize>,
    own: impl FnOnce(usize, Range<usize>) -> &'a [f32],
) -> &'a [f32] {
    match source {
        Source::Own(vector) => own(vector, range),
        Source::Peer(peer, vector) => {
            let from = &plan.routes[peer].from;
            let start = place(plan, from, index, received[peer].len()).start + vector * values;
            &received[peer][start + range.start..start + range.end]
        }
    }
}

impl Exchange<'_, '_, '_> {
    /// Puts together the control bytes that are to be handed on, once they are here. Says whether it did.
    pub(super) fn gather_controls(&mut self) -> bool {
        let plan = self.step.plan;
        if self.inputs.column.is_empty() {
            return false;
        }
        let before = (self.step.of_group.is_some(), self.step.of_all.is_some());
        let own = plan.group();
        if self.step.of_group.is_none() {
            let mut bundle = Vec::new();
            for rank in plan.groups.ranks(own) {
                let peer = self.peers.iter().find(|peer| peer.rank == Some(rank));
                match peer.map_or(self.step.control.as_deref(), |peer| peer.control(0)) {
                    Some(control) => headers::push(&mut bundle, control),
                    None => return false,
                }
            }
            self.step.of_group = Some(bundle);
        }
        if self.step.of_all.is_none() && self.inputs.hands_on {
            let of_group = self.step.of_group.as_deref();
            let column = self.inputs.column.iter();
            let bundles = column.map(|peer| peer.map_or(of_group, |peer| self.peers[peer].control(0)));
            self.step.of_all = bundles.collect::<Option<Vec<_>>>().map(|bundles| bundles.concat());
        }
        before != (self.step.of_group.is_some(), self.step.of_all.is_some())
    }

    /// Adds up the next piece over the members of the group, if it has come from all of them.
    pub(super) fn reduce_within(&mut self) -> Result<bool, CollectiveError> {
        let plan = self.step.plan;
        let index = self.step.done.within;
        let missing = |(peer, route): (&Peer, &Route)| {
            route.rank.is_some() && !route.from.crosses && peer.contributions_received <= index
        };
        let ready = |column: &usize| plan.cut.ready(*column, self.step.own.ready());
        let Some(column) = plan.own_column().filter(|column| index < ready(column)) else {
            return Ok(false);
        };
        if self.peers.iter().zip(&plan.routes).any(missing) || !self.has_room(index) {
            return Ok(false);
        }
        self.copy_lent(index)?;
        let piece = plan.piece_range(column, index);
        let (received, values) = (&*self.received, &self.step.own);
        let own = |vector: usize, range: Range<usize>| {
            values.values(&plan.cut, vector, piece.start + range.start..piece.start + range.end)
        };
        let mut rest = self.inputs.within.as_slice();
        for (node, reduction) in plan.within.iter().enumerate() {
            let (inputs, behind) = rest.split_at(reduction.inputs);
            rest = behind;
            let input =
                |input: usize, range| vector(plan, received, (inputs[input], index, piece.len()), range, own);
            let sum = match plan.groups.is_one() {
                true => &mut self.out[piece.clone()],
                false => self.kept.node_mut(index, node, piece.len()),
            };
            reduction.run(input, self.blocks, sum, plan.halves_in(&piece));
        }
        self.step.done.within += 1;
        Ok(true)
    }

    /// Copies the partial sums of a piece from the memory of those who lend them.
    fn copy_lent(&mut self, index: usize) -> Result<(), CollectiveError> {
        let links = self.links.iter_mut().zip(self.received.iter_mut());
        for (peer, (link, received)) in self.peers.iter_mut().zip(links) {
            if let Some(link) = link {
                peer.copy_lent(link, self.step.plan, index, received)
                    .map_err(|why| lost(peer.worker, why))?;
            }
        }
        Ok(())
    }

    /// Adds up this worker's next piece over the groups, if it has come from all of them.
    pub(super) fn reduce_across(&mut self) -> bool {
        let plan = self.step.plan;
        let index = self.step.done.across;
        let Some(pieces) = plan.added_across().filter(|pieces| index < pieces.count) else { return false };
        let missing =
            |peer: &Option<usize>| peer.is_some_and(|peer| self.peers[peer].contributions_received <= index);
        if self.step.done.within <= pieces.piece(index) || self.inputs.column.iter().any(missing) {
            return false;
        }
        let piece = plan.range(&pieces, index);
        let sums = self.kept.piece(pieces.piece(index), piece.len());
        let own = |vector: usize, range: Range<usize>| {
            &sums[vector * piece.len() + range.start..vector * piece.len() + range.end]
        };
        let (received, inputs) = (&*self.received, self.inputs.across.as_slice());
        let input =
            |input: usize, range| vector(plan, received, (inputs[input], index, piece.len()), range, own);
        plan.across.run(input, self.blocks, &mut self.out[piece.clone()], plan.halves_in(&piece));
        self.step.done.across += 1;
        true
    }

    /// Whether the sums of a piece have a place where they can wait to cross: those that had it have crossed, or are
    /// added up.
    fn has_room(&self, piece: usize) -> bool {
        let Some(before) = piece.checked_sub(self.kept.places) else { return true };
        self.step.plan.groups.is_one() || self.is_over(before, |peer| peer.contributions_sent)
    }

    /// Whether a piece of the own column was added up over the groups here, or else the peer who does that is as far
    /// with it, by this count.
    fn is_over(&self, piece: usize, count: impl Fn(&Peer) -> usize) -> bool {
        let plan = self.step.plan;
        // In small mode every owner adds the piece up.
        let (group, index) = match plan.mode {
            Mode::Small => (plan.group(), piece),
            Mode::Bulk => (piece % plan.groups.count(), piece / plan.groups.count()),
        };
        match self.inputs.column.get(group) {
            Some(Some(peer)) => count(&self.peers[*peer]) > index,
            _ => self.step.done.across > index,
        }
    }

    /// Counts the pieces of the own column whose result is here.
    pub(super) fn count_results(&mut self) {
        let plan = self.step.plan;
        if plan.groups.is_one() {
            self.step.done.results = self.step.done.within;
            return;
        }
        let pieces = plan.own_column().map_or(0, |column| plan.pieces(column));
        while self.step.done.results < pieces
            && self.is_over(self.step.done.results, |peer| peer.results_received)
        {
            self.step.done.results += 1;
        }
    }
}

impl CollectivePlan {
    /// What this worker has done before anything has come: where it brings no sums, its values are there.
    pub(super) fn done_before(&self) -> Done {
        if self.phase.begins_with_results() { self.all_done() } else { Done::default() }
    }

    /// What this worker has done when it is done.
    pub(super) fn all_done(&self) -> Done {
        let column = self.own_column().map_or(0, |column| self.pieces(column));
        Done { within: column, across: self.added_across().map_or(0, |pieces| pieces.count), results: column }
    }
}
