//! Everything about a collective that follows from the membership, worked out once per epoch.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use bellwether_core::groups::Groups;
use thiserror::Error;

use super::reduce::Reduction;
use super::route::{Route, Seat, Sequence};
use crate::tree::maximal_nodes;

mod cut;
mod halves;
mod routes;
mod shards;

pub(super) use cut::Cut;
use cut::SEGMENT_ALIGNMENT;
pub use cut::{Held, Lengths};
pub(super) use shards::Phase;

/// Pieces that may be received from a peer beyond those already reduced.
pub(super) const LOOKAHEAD: usize = 3;

/// Partial sums of up to this many bytes per member go to every peer directly, ...
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// ... if a member sends no more than this to all its peers together. Measured on two cores: with two
/// workers one hop wins up to 64 KiB (25 against 29 us), with four up to 32 KiB (91 against 114 us).
const SMALL_BYTES_TOTAL_MAX: usize = 96 * 1024;

/// Bytes of one partial sum in one piece, at most. From 64 to 256 KiB the rate is about the same; below, system
/// calls show.
const PIECE_BYTES: usize = 128 * 1024;

/// Vectors from this size on leave the caches, and then the bytes in flight between workers of one host
/// should not add to that.
const LARGE_BYTES: usize = 2 << 20;

/// Bytes that may lie in the sockets' buffers of one worker towards peers on its own host, ...
const IN_FLIGHT_BYTES: usize = 512 * 1024;

/// ... but at least this many per peer. Measured with four workers on two cores at 64 MiB: 120 to 145
/// ms, against 250 ms with buffers that the system sizes; with two workers, and below 2 MiB, the
/// system's choice is as good or better.
const IN_FLIGHT_BYTES_MIN: usize = 128 * 1024;

/// Bytes of one partial sum in one bucket, at least: a bucket that gets ready wakes the thread that exchanges it.
const BUCKET_BYTES: usize = 1 << 20;

/// Buckets of one vector, at most.
const BUCKETS_MAX: usize = 64;

/// How long members wait for shadows once they have finished among themselves.
pub const SHADOW_PATIENCE: Duration = Duration::from_secs(2);

/// An active worker of a membership epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The worker's id.
    pub worker: u64,
    /// The virtual nodes it holds.
    pub nodes: Range<u32>,
}

/// A membership that no collective can serve.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The members' virtual nodes are not `0..V` in rank order, without gap, overlap or empty range.
    #[error(
        "virtual nodes of rank {rank} are {found:?}, expected a range from {expected_start} within 0..{virtual_nodes}"
    )]
    Nodes {
        /// The rank.
        rank: usize,
        /// Its range.
        found: Range<u32>,
        /// Where it should begin.
        expected_start: u32,
        /// Number of virtual nodes.
        virtual_nodes: u32,
    },
    /// The members hold fewer virtual nodes than there are.
    #[error("members hold virtual nodes up to {held} of {virtual_nodes}")]
    Uncovered {
        /// End of the last member's range.
        held: u32,
        /// Number of virtual nodes.
        virtual_nodes: u32,
    },
    /// A worker is named twice.
    #[error("worker {0} is named twice")]
    Twice(u64),
    /// This worker is neither a member nor a shadow.
    #[error("worker {0} is neither a member nor a shadow")]
    NotPresent(u64),
    /// The groups do not begin at ascending ranks from 0 on.
    #[error("groups of members that begin at ranks {0:?}")]
    Groups(Vec<usize>),
    /// A part of the parameters does not begin where the one before it ends, or its holders are not distinct ranks of
    /// members, at least one.
    #[error(
        "part {part} of the parameters is {found:?}, expected one from {expected_start} that members hold"
    )]
    Part {
        /// Its place among the parts.
        part: usize,
        /// The part.
        found: Held,
        /// Where it should begin.
        expected_start: usize,
    },
    /// The parts end elsewhere than the parameters.
    #[error("parts up to {covered} of {parameters} parameters")]
    Parts {
        /// End of the last part.
        covered: usize,
        /// Number of parameters.
        parameters: usize,
    },
    /// The vector is too long for the frames' 32-bit lengths and indices.
    #[error("a vector of {0} values is too long")]
    TooLong(usize),
}

/// How the sums travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Every owner of a group gets all partial sums.
    Small,
    /// Every owner of a group adds up a segment.
    Bulk,
}

/// Sizes by which a plan is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Partial sums of up to this many bytes go to every peer.
    pub(crate) small_bytes_max: usize,
    /// Bytes of one partial sum in one piece, at most.
    pub(crate) piece_bytes: usize,
    /// Bytes of one partial sum in one bucket, at least.
    pub(crate) bucket_bytes: usize,
}

impl Sizes {
    /// As measured, for members with this many peers.
    fn usual(peers: usize) -> Sizes {
        let small_bytes_max = SMALL_BYTES_MAX.min(SMALL_BYTES_TOTAL_MAX / peers.max(1));
        Sizes { small_bytes_max, piece_bytes: PIECE_BYTES, bucket_bytes: BUCKET_BYTES }
    }
}

/// Who sends what to whom in a collective over one vector length, as seen by one worker.
#[derive(Debug)]
pub struct CollectivePlan {
    pub(super) me: u64,
    seat: Seat,
    pub(super) members: Vec<Member>,
    pub(super) shadows: Vec<u64>,
    pub(super) groups: Groups,
    pub(super) length: usize,
    /// Leading values that are bfloat16 numbers in every sum.
    halves: usize,
    /// Partial sums that each rank holds.
    pub(super) partials: Vec<usize>,
    /// Maximal nodes of each group's range.
    pub(super) group_nodes: Vec<usize>,
    pub(super) mode: Mode,
    pub(super) phase: Phase,
    /// Parts of the vector in ascending order; none where the phase is the whole.
    held: Vec<Held>,
    /// A column for each owner of a group in bulk mode; in small mode one for all.
    pub(super) cut: Cut,
    /// What it has to do with each of its peers.
    pub(super) routes: Vec<Route>,
    /// The additions from the members' partial sums to each of the group's.
    pub(super) within: Vec<Reduction>,
    /// The additions from the groups' sums to the result.
    pub(super) across: Reduction,
    pub(super) shadow_patience: Duration,
}

impl CollectivePlan {
    /// The plan of worker `me`, a member or a shadow, for vectors of these lengths.
    ///
    /// `members` are in rank order and hold `0..virtual_nodes` without gaps; `shadows` receive the
    /// result and contribute nothing. All workers must plan from the same arguments (but for `me`).
    /// A length of 0 exchanges control bytes only. Many members exchange in groups.
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn new(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        lengths: impl Into<Lengths>,
    ) -> Result<CollectivePlan, PlanError> {
        check_members(virtual_nodes, &members)?;
        let nodes: Vec<Range<u32>> = members.iter().map(|member| member.nodes.clone()).collect();
        let groups = Groups::choose(virtual_nodes, &nodes);
        let sizes = Sizes::usual(groups.peers_max(shadows.len()));
        Self::with_groups(virtual_nodes, members, shadows, me, lengths, (groups, sizes))
    }

    /// As [`new`](CollectivePlan::new), in groups that begin at the ranks `bounds`, of which the first is 0.
    /// Connections are needed as these groups have them.
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn in_groups(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        lengths: impl Into<Lengths>,
        bounds: &[usize],
    ) -> Result<CollectivePlan, PlanError> {
        let all = bounds.iter().copied().chain([members.len()]).collect();
        let groups = Groups::new(all).ok_or_else(|| PlanError::Groups(bounds.to_vec()))?;
        let sizes = Sizes::usual(groups.peers_max(shadows.len()));
        Self::with_groups(virtual_nodes, members, shadows, me, lengths, (groups, sizes))
    }

    /// As [`new`](CollectivePlan::new) with groups and sizes of the caller's choice.
    pub(crate) fn with_groups(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        lengths: impl Into<Lengths>,
        (groups, sizes): (Groups, Sizes),
    ) -> Result<CollectivePlan, PlanError> {
        let lengths = lengths.into();
        let length = lengths.total();
        check_members(virtual_nodes, &members)?;
        let seat = seat(&members, &shadows, me)?;
        if groups.members() != members.len() {
            return Err(PlanError::Groups(
                (0..groups.count()).map(|group| groups.ranks(group).start).collect(),
            ));
        }
        let nodes: Vec<Vec<Range<u32>>> =
            members.iter().map(|member| maximal_nodes(virtual_nodes, member.nodes.clone())).collect();
        let partials: Vec<usize> = nodes.iter().map(Vec::len).collect();
        let of_groups: Vec<Vec<Range<u32>>> = (0..groups.count())
            .map(|group| {
                let ranks = groups.ranks(group);
                let nodes = members[ranks.start].nodes.start..members[ranks.end - 1].nodes.end;
                maximal_nodes(virtual_nodes, nodes)
            })
            .collect();
        let group_nodes: Vec<usize> = of_groups.iter().map(Vec::len).collect();
        let most_partials = partials.iter().chain(&group_nodes).copied().max().unwrap_or(0);
        let values = length.checked_mul(most_partials).filter(|values| *values <= usize::MAX / 8);
        let bytes = 4 * values.ok_or(PlanError::TooLong(length))?;
        let mode = if bytes <= sizes.small_bytes_max { Mode::Small } else { Mode::Bulk };
        let piece = match mode {
            Mode::Small => length.max(1),
            Mode::Bulk => bulk_piece(length, &groups, sizes.piece_bytes),
        };
        if length / piece > u32::MAX as usize || piece.saturating_mul(4 * most_partials) > u32::MAX as usize {
            return Err(PlanError::TooLong(length));
        }
        let cut = match mode {
            Mode::Small => Cut::whole(length),
            Mode::Bulk => bulk_cut(lengths, groups.columns(), piece, sizes.bucket_bytes),
        };
        let group = match seat {
            Seat::Member(rank) => groups.place(rank).0,
            Seat::Shadow(_) => 0,
        };
        let within = nodes[groups.ranks(group)].concat();
        let mut plan = CollectivePlan {
            me,
            seat,
            members,
            shadows,
            groups,
            length,
            halves: 0,
            partials,
            mode,
            phase: Phase::Whole,
            held: Vec::new(),
            cut,
            routes: Vec::new(),
            within: Reduction::each(&of_groups[group], &within),
            across: Reduction::new(0..virtual_nodes, &of_groups.concat()),
            group_nodes,
            shadow_patience: SHADOW_PATIENCE,
        };
        plan.routes = plan.routes_of(seat);
        Ok(plan)
    }

    /// Id of this worker.
    pub fn worker(&self) -> u64 {
        self.me
    }

    /// Rank of this worker; none for a shadow.
    pub fn rank(&self) -> Option<usize> {
        match self.seat {
            Seat::Member(rank) => Some(rank),
            Seat::Shadow(_) => None,
        }
    }

    /// Number of values of the vector.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The parts of the vector that a collective takes one after another, as a backward pass leaves them.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.cut.buckets
    }

    /// Whether a part of the vector can be under way while others are missing.
    pub fn is_in_buckets(&self) -> bool {
        self.mode == Mode::Bulk && self.cut.buckets.len() > 1
    }

    /// Members in rank order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the vector leaves the caches.
    pub(super) fn is_large(&self) -> bool {
        4 * self.length >= LARGE_BYTES
    }

    /// Size to ask for the buffers of connections within one host; none to leave them to the system.
    pub(super) fn buffer_bytes(&self) -> Option<usize> {
        let peers = self.routes.len();
        (peers > 1 && self.is_large()).then(|| (IN_FLIGHT_BYTES / peers).max(IN_FLIGHT_BYTES_MIN))
    }

    /// Ids of the workers that it exchanges with.
    pub fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        self.routes.iter().map(|route| route.worker)
    }

    /// The column of the owner with this place in its group.
    pub(super) fn column(&self, place: usize) -> usize {
        match self.mode {
            Mode::Small => 0,
            Mode::Bulk => place,
        }
    }

    /// Number of pieces of a column.
    pub(super) fn pieces(&self, column: usize) -> usize {
        self.cut.pieces(column)
    }

    /// Pieces of the sequence's column in the first `buckets`.
    pub(super) fn ready(&self, sequence: &Sequence, buckets: usize) -> usize {
        if sequence.count == 0 { 0 } else { self.cut.ready(sequence.column, buckets) }
    }

    /// Where a piece of a column lies in the vector.
    pub(super) fn piece_range(&self, column: usize, piece: usize) -> Range<usize> {
        self.cut.piece(column, piece)
    }

    /// Where a piece of a sequence lies in the vector.
    pub(super) fn range(&self, sequence: &Sequence, index: usize) -> Range<usize> {
        self.piece_range(sequence.column, sequence.piece(index))
    }

    /// Values of a column's longest piece.
    pub(super) fn longest(&self, column: usize) -> usize {
        self.cut.longest(column)
    }

    /// This worker's group; that of a shadow counts only where there is one group.
    pub(super) fn group(&self) -> usize {
        self.rank().map_or(0, |rank| self.groups.place(rank).0)
    }

    /// The column that this worker adds up, if any: an owner its own; in small mode also a shadow whom all serve.
    pub(super) fn own_column(&self) -> Option<usize> {
        let place = match self.seat {
            Seat::Member(rank) => {
                Some(self.groups.place(rank).1).filter(|place| *place < self.groups.columns())
            }
            Seat::Shadow(_) => Some(0).filter(|_| self.groups.is_one() && self.mode == Mode::Small),
        };
        place.map(|place| self.column(place))
    }

    /// The pieces that this worker adds up over the groups; none where there is one group.
    pub(super) fn added_across(&self) -> Option<Sequence> {
        let column = self.own_column().filter(|_| !self.groups.is_one())?;
        let pieces = self.pieces(column);
        Some(match self.mode {
            Mode::Small => Sequence::of_group(column, pieces, 0, 1),
            Mode::Bulk => Sequence::of_group(column, pieces, self.group(), self.groups.count()),
        })
    }
}

/// The place of a worker among members and shadows.
fn seat(members: &[Member], shadows: &[u64], me: u64) -> Result<Seat, PlanError> {
    let mut seen = BTreeSet::new();
    let everyone = members.iter().map(|member| member.worker).chain(shadows.iter().copied());
    for worker in everyone {
        if !seen.insert(worker) {
            return Err(PlanError::Twice(worker));
        }
    }
    let member = members.iter().position(|member| member.worker == me).map(Seat::Member);
    let shadow = || shadows.iter().position(|shadow| *shadow == me).map(Seat::Shadow);
    member.or_else(shadow).ok_or(PlanError::NotPresent(me))
}

/// The buckets and pieces in bulk mode: every owner has a piece of every bucket.
fn bulk_cut(lengths: Lengths, owners: usize, piece: usize, bucket_bytes: usize) -> Cut {
    Cut::segments(lengths, owners, bucket_values(lengths, owners, piece, bucket_bytes), piece)
}

fn bucket_values(lengths: Lengths, owners: usize, piece: usize, bucket_bytes: usize) -> usize {
    (bucket_bytes / 4).max(owners * piece).max(lengths.total().div_ceil(BUCKETS_MAX))
}

/// Values per piece in bulk mode. Where there are several groups, a column has at least a piece for each.
fn bulk_piece(length: usize, groups: &Groups, piece_bytes: usize) -> usize {
    let most = (piece_bytes / 4).next_multiple_of(SEGMENT_ALIGNMENT);
    if groups.is_one() {
        return most;
    }
    let each = length.div_ceil(groups.columns() * groups.count());
    most.min(each.next_multiple_of(SEGMENT_ALIGNMENT).max(SEGMENT_ALIGNMENT))
}

fn check_members(virtual_nodes: u32, members: &[Member]) -> Result<(), PlanError> {
    let mut held = 0;
    for (rank, member) in members.iter().enumerate() {
        let nodes = &member.nodes;
        if nodes.start != held || nodes.end <= nodes.start || nodes.end > virtual_nodes {
            return Err(PlanError::Nodes { rank, found: nodes.clone(), expected_start: held, virtual_nodes });
        }
        held = nodes.end;
    }
    if held != virtual_nodes || members.is_empty() {
        return Err(PlanError::Uncovered { held, virtual_nodes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::ranges;

    fn members(virtual_nodes: u32, workers: u32) -> Vec<Member> {
        let ranges = ranges(virtual_nodes, workers).into_iter();
        ranges.enumerate().map(|(i, nodes)| Member { worker: i as u64, nodes }).collect()
    }

    #[test]
    fn bad_memberships_are_refused() {
        let plan = |members, shadows, me| CollectivePlan::new(4, members, shadows, me, 10);
        assert!(plan(members(4, 2), vec![7], 7).is_ok());
        assert_eq!(plan(members(4, 2), vec![], 7).unwrap_err(), PlanError::NotPresent(7));
        assert_eq!(plan(members(4, 2), vec![1], 0).unwrap_err(), PlanError::Twice(1));
        assert_eq!(
            plan(members(3, 2), vec![], 0).unwrap_err(),
            PlanError::Uncovered { held: 3, virtual_nodes: 4 }
        );
        assert!(matches!(plan(members(5, 2), vec![], 0), Err(PlanError::Nodes { .. })));
        assert!(matches!(plan(vec![], vec![0], 0), Err(PlanError::Uncovered { .. })));
        let long = CollectivePlan::new(4, members(4, 4), vec![], 0, usize::MAX / 2);
        assert_eq!(long.unwrap_err(), PlanError::TooLong(usize::MAX / 2));
    }
}
