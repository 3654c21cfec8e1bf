//! What goes into the additions of a collective, beside what is in `out`.

use std::ops::Range;

use super::plan::CollectivePlan;
use super::route::Headers;

/// Sums of a group that may wait to cross, for each of the groups: while one crosses, the next is added up.
const KEPT_PER_GROUP: usize = 2;

/// Sums of a group until they have crossed to the worker that adds them up with those of the other groups.
#[derive(Debug, Default)]
pub(super) struct Kept {
    values: Vec<f32>,
    pub(super) places: usize,
    /// Vectors of a piece: the maximal nodes of the group's range.
    nodes: usize,
}

impl Kept {
    /// Memory for some pieces of the own column for every group, where there are several.
    pub(super) fn of(plan: &CollectivePlan) -> Kept {
        let Some(across) = plan.added_across() else { return Kept::default() };
        let places = plan.pieces(across.column).min(KEPT_PER_GROUP * plan.groups.count());
        let nodes = plan.group_nodes[plan.group()];
        Kept { values: vec![0.0; places * nodes * plan.longest(across.column)], places, nodes }
    }

    fn range(&self, piece: usize, values: usize) -> Range<usize> {
        let start = piece % self.places * (self.values.len() / self.places);
        start..start + self.nodes * values
    }

    /// The sums of a piece of `values` values, one after another.
    pub(super) fn piece(&self, piece: usize, values: usize) -> &[f32] {
        &self.values[self.range(piece, values)]
    }

    /// The place of one node's sum of a piece.
    pub(super) fn node_mut(&mut self, piece: usize, node: usize, values: usize) -> &mut [f32] {
        let range = self.range(piece, values);
        &mut self.values[range][node * values..(node + 1) * values]
    }
}

/// Where the inputs of the reductions are, in their order.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) within: Vec<Source>,
    pub(super) across: Vec<Source>,
    /// The peer with the own column in each group, by its place among the peers; none for the own group.
    pub(super) column: Vec<Option<usize>>,
    /// Whether a peer gets the control bytes of all members from this worker.
    pub(super) hands_on: bool,
}

/// A vector that goes into a sum: a worker's own with this number, or a peer's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Own(usize),
    Peer(usize, usize),
}

impl Inputs {
    pub(super) fn of(plan: &CollectivePlan) -> Inputs {
        let peer = |rank| plan.routes.iter().position(|route| route.rank == Some(rank));
        let vectors = |peer: Option<usize>, count: usize| {
            (0..count).map(move |vector| peer.map_or(Source::Own(vector), |peer| Source::Peer(peer, vector)))
        };
        let hands_on = plan.routes.iter().any(|route| route.to.controls.contains(&Headers::All));
        let mut inputs = Inputs { within: Vec::new(), across: Vec::new(), column: Vec::new(), hands_on };
        if plan.own_column().is_some() {
            let ranks = plan.groups.ranks(plan.group());
            inputs.within = ranks.flat_map(|rank| vectors(peer(rank), plan.partials[rank])).collect();
        }
        if plan.added_across().is_some() {
            let place = plan.rank().map_or(0, |rank| plan.groups.place(rank).1);
            let groups = 0..plan.groups.count();
            inputs.column = groups.map(|group| peer(plan.groups.ranks(group).start + place)).collect();
            let column = inputs.column.iter().zip(&plan.group_nodes);
            inputs.across = column.flat_map(|(peer, nodes)| vectors(*peer, *nodes)).collect();
        }
        inputs
    }
}
