//! What travels between two workers in one collective, in each direction.

use super::plan::{CollectivePlan, Mode};

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
    const NONE: Sequence = Sequence { column: 0, first: 0, stride: 1, count: 0 };

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
    const SILENT: Way = Way {
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

impl CollectivePlan {
    /// What a worker has to do with every other one that it is connected to; members first, from the next rank on, so
    /// that not all begin with the same peer.
    pub(super) fn routes_of(&self, me: Seat) -> Vec<Route> {
        let workers = self.members.len();
        let first = if let Seat::Member(rank) = me { rank + 1 } else { 0 };
        let members = (0..workers).map(|offset| Seat::Member((first + offset) % workers));
        let shadows = (0..self.shadows.len()).map(Seat::Shadow);
        let route = |peer| {
            let (worker, rank) = match peer {
                Seat::Member(rank) => (self.members[rank].worker, Some(rank)),
                Seat::Shadow(shadow) => (self.shadows[shadow], None),
            };
            Some(Route { worker, rank, to: self.way(me, peer)?, from: self.way(peer, me)? })
        };
        members.chain(shadows).filter_map(route).collect()
    }

    /// What travels from one worker to another; `None` if they are not connected.
    fn way(&self, from: Seat, to: Seat) -> Option<Way> {
        match (from, to) {
            (Seat::Member(from), Seat::Member(to)) => {
                let same = self.groups.place(from).0 == self.groups.place(to).0;
                let way = if same { Self::within_group } else { Self::across_groups };
                self.groups.linked(from, to).then(|| way(self, from, to))
            }
            (Seat::Member(from), Seat::Shadow(to)) => {
                self.groups.serves(from, to).then(|| self.to_shadow(from, to))
            }
            (Seat::Shadow(from), Seat::Member(to)) => self.groups.serves(to, from).then_some(Way::SILENT),
            (Seat::Shadow(_), Seat::Shadow(_)) => None,
        }
    }

    /// Contributions to an owner, and an owner's results. A member without a column gets what it would have got across
    /// groups from one of the owners.
    fn within_group(&self, from: usize, to: usize) -> Way {
        let ((_, place), (_, other)) = (self.groups.place(from), self.groups.place(to));
        let owners = self.groups.columns();
        let hands_on = !self.groups.is_one() && other >= owners && place == other % owners;
        let results = match self.mode {
            Mode::Bulk => place < owners,
            Mode::Small => hands_on,
        };
        Way {
            controls: if hands_on { &[Headers::Own, Headers::All] } else { &[Headers::Own] },
            contributions: if other < owners { self.whole_column(other) } else { Sequence::NONE },
            partials: self.partials[from],
            crosses: false,
            results: if results { self.whole_column(place) } else { Sequence::NONE },
        }
    }

    /// Between the owners of one column: the sums of a group, and the results of the pieces that it adds up.
    fn across_groups(&self, from: usize, to: usize) -> Way {
        let ((group, place), (other, _)) = (self.groups.place(from), self.groups.place(to));
        let pieces = self.pieces(self.column(place));
        let dealt = |group| Sequence::of_group(place, pieces, group, self.groups.count());
        let (contributions, results) = match self.mode {
            Mode::Bulk => (dealt(other), dealt(group)),
            Mode::Small => (self.whole_column(place), Sequence::NONE),
        };
        let partials = self.group_nodes[group];
        Way { controls: &[Headers::Group], contributions, partials, crosses: true, results }
    }

    /// To a shadow from those who serve it. Where all members do, it gets what a member would get.
    fn to_shadow(&self, from: usize, shadow: usize) -> Way {
        let (_, place) = self.groups.place(from);
        let one = self.groups.is_one();
        let hands_on = !one && place == shadow / self.groups.count() % self.groups.columns();
        let (contributes, results) = match self.mode {
            Mode::Bulk => (false, true),
            Mode::Small => (one, hands_on),
        };
        let if_so = |condition| if condition { self.whole_column(place) } else { Sequence::NONE };
        Way {
            controls: match (one, hands_on) {
                (true, _) => &[Headers::Own],
                (false, true) => &[Headers::All],
                (false, false) => &[],
            },
            contributions: if_so(contributes),
            partials: self.partials[from],
            crosses: false,
            results: if_so(results),
        }
    }

    fn whole_column(&self, place: usize) -> Sequence {
        let column = self.column(place);
        Sequence::of_group(column, self.pieces(column), 0, 1)
    }
}
