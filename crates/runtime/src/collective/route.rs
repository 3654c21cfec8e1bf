//! What travels between two workers in one collective, in each direction.

/// Whose control bytes a control frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Headers {
    /// The sender's, as they are.
    Own,
    /// Those of all members of the sender's group.
    Group,
    /// Those of all members.
    All,
}

/// Pieces of one column that travel one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) column: usize,
    pub(super) count: usize,
    places: Places,
}

/// Where the pieces of a sequence lie in their column, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Places {
    /// From the first on, each this many behind the one before it.
    Every { first: usize, stride: usize },
    /// Just these.
    Listed(Box<[u32]>),
}

impl Sequence {
    pub(super) const NONE: Sequence =
        Sequence { column: 0, count: 0, places: Places::Every { first: 0, stride: 1 } };

    /// The pieces of a column of `pieces` that a group adds up: they are dealt out in turn, so that all groups are at
    /// work from the first piece to the last.
    pub(super) fn of_group(column: usize, pieces: usize, group: usize, groups: usize) -> Sequence {
        let count = pieces.saturating_sub(group).div_ceil(groups);
        Sequence { column, count, places: Places::Every { first: group, stride: groups } }
    }

    /// Pieces at these places, which ascend.
    pub(super) fn listed(column: usize, places: Box<[u32]>) -> Sequence {
        Sequence { column, count: places.len(), places: Places::Listed(places) }
    }

    /// Where the piece with this index in the sequence lies in the column.
    pub(super) fn piece(&self, index: usize) -> usize {
        match &self.places {
            Places::Every { first, stride } => first + index * stride,
            Places::Listed(places) => places[index] as usize,
        }
    }

    /// How many are among the first `done` pieces of the column.
    pub(super) fn among(&self, done: usize) -> usize {
        match &self.places {
            Places::Every { first, stride } => done.saturating_sub(*first).div_ceil(*stride).min(self.count),
            Places::Listed(places) => places.partition_point(|place| (*place as usize) < done),
        }
    }
}

/// What travels in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// The control frames, in their order. In small mode the first comes before anything else; in bulk mode a member
    /// that still computes sends sums before it knows them.
    pub(super) controls: &'static [Headers],
    /// Partial sums that the receiver adds up.
    pub(super) contributions: Sequence,
    /// Vectors in each of them.
    pub(super) partials: usize,
    /// Whether they are a group's sums, to be added up over all groups.
    pub(super) crosses: bool,
    /// Pieces of the result: of a sum, or of what a gathering brings.
    pub(super) results: Sequence,
}

impl Way {
    /// Nothing: what a shadow sends.
    pub(super) const SILENT: Way = Way {
        controls: &[],
        contributions: Sequence::NONE,
        partials: 0,
        crosses: false,
        results: Sequence::NONE,
    };
}

/// A peer, and what travels to it and from it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) worker: u64,
    /// Its rank; none for a shadow.
    pub(super) rank: Option<usize>,
    pub(super) to: Way,
    pub(super) from: Way,
}

/// A worker's place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    /// A member, by rank.
    Member(usize),
    /// A shadow, by its place among the shadows.
    Shadow(usize),
}
