//! What travels between any two workers of a plan.

use super::{CollectivePlan, Mode, Phase};
use crate::collective::route::{Headers, Route, Seat, Sequence, Way};

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
        let gets_all = match self.mode {
            Mode::Bulk => place < owners,
            Mode::Small => hands_on,
        };
        let results = match self.phase {
            Phase::Scatter | Phase::Deliver => self.held_by(other, place),
            Phase::Whole | Phase::Gather if gets_all => self.whole_column(place),
            Phase::Whole | Phase::Gather => Sequence::NONE,
        };
        let contributes = other < owners && !self.phase.begins_with_results();
        Way {
            controls: if hands_on { &[Headers::Own, Headers::All] } else { &[Headers::Own] },
            contributions: if contributes { self.whole_column(other) } else { Sequence::NONE },
            partials: self.partials[from],
            crosses: false,
            results,
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
            results: match self.phase {
                Phase::Deliver => self.held_by(self.members.len() + shadow, place),
                Phase::Whole | Phase::Scatter | Phase::Gather => if_so(results),
            },
        }
    }

    fn whole_column(&self, place: usize) -> Sequence {
        let column = self.column(place);
        Sequence::of_group(column, self.pieces(column), 0, 1)
    }
}
