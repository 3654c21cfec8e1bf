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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) column: usize,
    first: usize,
    stride: usize,
    pub(super) count: usize,
}

impl Sequence {
    pub(super) const NONE: Sequence = Sequence { column: 0, first: 0, stride: 1, count: 0 };

    /// The pieces of a column of `pieces` that a group adds up: they are dealt out in turn, so that all groups are at
    /// work from the first piece to the last.
    pub(super) fn of_group(column: usize, pieces: usize, group: usize, groups: usize) -> Sequence {
        let count = pieces.saturating_sub(group).div_ceil(groups);
        Sequence { column, first: group, stride: groups, count }
    }

    /// Where the piece with this index in the sequence lies in the column.
    pub(super) fn piece(&self, index: usize) -> usize {
        self.first + index * self.stride
    }

    /// How many are among the first `done` pieces of the column.
    pub(super) fn among(&self, done: usize) -> usize {
        done.saturating_sub(self.first).div_ceil(self.stride).min(self.count)
    }
}

/// What travels in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// The control frames, in their order; the first comes before anything else.
    pub(super) controls: &'static [Headers],
    /// Partial sums that the receiver adds up.
    pub(super) contributions: Sequence,
    /// Vectors in each of them.
    pub(super) partials: usize,
    /// Whether they are a group's sums, to be added up over all groups.
    pub(super) crosses: bool,
    /// Pieces of the result.
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
