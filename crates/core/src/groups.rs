//! Which members exchange with which: everyone with everyone, or in groups.
//!
//! Members in rank order are cut into *groups* of consecutive ranks. The first [`columns`](Groups::columns) members of
//! every group, as many as the smallest group has, are its *owners*: the owner at a place, one from each group, make up
//! a *column*. A member is connected to the owners of its group, an owner also to all members of its group and to its
//! column: about twice the square root of the number of members. One group is the exchange of everyone with everyone.
//!
//! Where several members are on one host, they are a group if that sends less from host to host: a host's sum then
//! crosses the network once, whatever the number of its members.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::tree::maximal_nodes;

/// Up to this many members exchange with everyone.
pub const UNGROUPED_MAX: usize = 16;

/// Members in groups of consecutive ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// First rank of every group, then the number of members.
    bounds: Vec<usize>,
    columns: usize,
}

impl Groups {
    /// Groups that begin at these ranks; the last number is that of all members. `None` if one is empty.
    pub fn new(bounds: Vec<usize>) -> Option<Groups> {
        let columns = bounds.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min()?;
        (bounds[0] == 0 && columns > 0).then_some(Groups { bounds, columns })
    }

    /// All of this many members in one group.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn one(members: usize) -> Groups {
        assert!(members > 0, "a group has members");
        Groups { bounds: vec![0, members], columns: members }
    }

    /// Groups for members that hold these virtual nodes, in rank order, at least one. It takes time as the power 1.5 of
    /// their number.
    ///
    /// A group's sum travels as one vector for each maximal node of its range, so the cuts are where the canonical tree
    /// has them: as few maximal nodes as possible, and then sizes as even as possible.
    pub fn choose(virtual_nodes: u32, members: &[Range<u32>]) -> Groups {
        let workers = members.len();
        if workers <= UNGROUPED_MAX {
            return Groups { bounds: vec![0, workers], columns: workers };
        }
        let even = workers.isqrt();
        let sizes = (even * 3 / 4).max(1)..=(even * 4).div_ceil(3);
        // Of the groups that end before each rank: what they cost, and where the last one begins.
        let mut best: Vec<Option<((usize, usize), usize)>> = vec![Some(((0, 0), 0))];
        for end in 1..=workers {
            let cost = |size: usize| {
                let start = end.checked_sub(size)?;
                let ((nodes, squares), _) = best[start]?;
                let range = members[start].start..members[end - 1].end;
                let of_group = maximal_nodes(virtual_nodes, range).len();
                Some(((nodes + of_group, squares + size * size), start))
            };
            best.push(sizes.clone().filter_map(cost).min());
        }
        let mut bounds = vec![workers];
        while let Some(end @ 1..) = bounds.last().copied() {
            let (_, start) = best[end].expect("sizes around the square root add up to any larger number");
            bounds.push(start);
        }
        bounds.reverse();
        Groups::new(bounds).expect("every group has members")
    }

    /// As [`choose`](Groups::choose), for members on these hosts, in rank order: those of each host are a group where
    /// less leaves the busiest host then, no member has more than twice the peers, and at least half of the members of
    /// the largest host are owners, who add up what the others have.
    ///
    /// # Panics
    ///
    /// If there are more or fewer hosts than members.
    pub fn choose_on_hosts(virtual_nodes: u32, members: &[Range<u32>], hosts: &[&str]) -> Groups {
        assert_eq!(hosts.len(), members.len(), "every member is on a host");
        let usual = Groups::choose(virtual_nodes, members);
        let begins = |rank: &usize| *rank == 0 || hosts[*rank] != hosts[rank - 1];
        let bounds: Vec<usize> = (0..hosts.len()).filter(begins).chain([hosts.len()]).collect();
        let Some(of_hosts) = Groups::new(bounds).filter(|groups| !groups.is_one()) else { return usual };
        if of_hosts.count() == hosts.len()
            || of_hosts.largest() > 2 * of_hosts.columns
            || of_hosts.peers_max(0) > 2 * usual.peers_max(0).max(UNGROUPED_MAX)
        {
            return usual;
        }
        let most = |groups: &Groups| groups.leaves_busiest_host(virtual_nodes, members, hosts);
        if most(&of_hosts) < most(&usual) { of_hosts } else { usual }
    }

    /// Vectors that leave the host from which most leave, if each owner of a group adds up an equal part.
    fn leaves_busiest_host(&self, virtual_nodes: u32, members: &[Range<u32>], hosts: &[&str]) -> f64 {
        let nodes = |from: usize, to: usize| {
            maximal_nodes(virtual_nodes, members[from].start..members[to].end).len() as f64
        };
        let of_groups: Vec<f64> = (0..self.count())
            .map(|group| nodes(self.ranks(group).start, self.ranks(group).end - 1))
            .collect();
        let (owners, groups) = (self.columns as f64, self.count() as f64);
        let mut leaves: BTreeMap<&str, f64> = BTreeMap::new();
        for (rank, host) in hosts.iter().enumerate() {
            let (group, place) = self.place(rank);
            let is_owner = |place: usize| if place < self.columns { 1.0 } else { 0.0 };
            let elsewhere = |other: &usize| hosts[*other] != *host;
            let within = self.ranks(group).filter(elsewhere).map(|other| {
                let other = self.place(other).1;
                (nodes(rank, rank) * is_owner(other) + is_owner(place)) / owners
            });
            let across = (0..self.count()).filter(|other| *other != group && place < self.columns);
            let across = across.filter(|other| elsewhere(&(self.ranks(*other).start + place)));
            let across = across.map(|_| (of_groups[group] + 1.0) / (owners * groups));
            *leaves.entry(host).or_default() += within.chain(across).sum::<f64>();
        }
        leaves.into_values().fold(0.0, f64::max)
    }

    /// The first rank of every group.
    pub fn starts(&self) -> &[usize] {
        &self.bounds[..self.count()]
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Whether everyone exchanges with everyone.
    pub fn is_one(&self) -> bool {
        self.count() == 1
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.bounds[self.count()]
    }

    /// Members of the largest group.
    pub fn largest(&self) -> usize {
        self.bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    /// Owners of every group.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Ranks of a group's members.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub fn ranks(&self, group: usize) -> Range<usize> {
        self.bounds[group]..self.bounds[group + 1]
    }

    /// The group of a member by its rank, and its place there.
    pub fn place(&self, rank: usize) -> (usize, usize) {
        let group = self.bounds.partition_point(|bound| *bound <= rank) - 1;
        (group, rank - self.bounds[group])
    }

    /// Whether two members, by rank, are connected.
    pub fn linked(&self, a: usize, b: usize) -> bool {
        let ((group_a, place_a), (group_b, place_b)) = (self.place(a), self.place(b));
        let owner = place_a.min(place_b) < self.columns;
        a != b && owner && (group_a == group_b || place_a == place_b)
    }

    /// Whether the member of a rank hands the result to the shadow with this place among the shadows: where several
    /// groups, the owners of one of them do.
    pub fn serves(&self, rank: usize, shadow: usize) -> bool {
        let (group, place) = self.place(rank);
        group == shadow % self.count() && place < self.columns
    }

    /// Most peers that a member can have, with this many shadows.
    pub fn peers_max(&self, shadows: usize) -> usize {
        self.largest() + self.count() - 2 + shadows.div_ceil(self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{ranges, ranges_by_speed};

    #[test]
    fn few_members_exchange_with_everyone() {
        for workers in 1..=UNGROUPED_MAX {
            let groups = Groups::choose(64, &ranges(64, workers as u32));
            assert!(groups.is_one() && groups.members() == workers && groups.columns() == workers);
            assert_eq!(groups.peers_max(2), workers + 1);
        }
    }

    #[test]
    fn groups_follow_the_tree() {
        let groups = Groups::choose(256, &ranges(256, 256));
        assert_eq!((groups.count(), groups.columns()), (16, 16));
        // Ten of them died: the cuts stay where the tree has them, and the sizes differ by a member or two.
        let groups = Groups::choose(256, &ranges(256, 246));
        let nodes = |group: usize| {
            let ranks = groups.ranks(group);
            let ranges = ranges(256, 246);
            maximal_nodes(256, ranges[ranks.start].start..ranges[ranks.end - 1].end).len()
        };
        assert!((0..groups.count()).all(|group| nodes(group) == 1), "{groups:?}");
    }

    /// The groups of members that share virtual nodes evenly, on hosts with these numbers of them.
    fn on_hosts(sizes: &[usize]) -> Groups {
        let names: Vec<String> = (0..sizes.len()).map(|host| format!("host {host}")).collect();
        let hosts = sizes.iter().zip(&names).flat_map(|(size, name)| vec![name.as_str(); *size]);
        let hosts: Vec<&str> = hosts.collect();
        let nodes = hosts.len().next_multiple_of(64) as u32;
        Groups::choose_on_hosts(nodes, &ranges(nodes, hosts.len() as u32), &hosts)
    }

    #[test]
    fn members_of_a_host_are_a_group_where_less_leaves_it_then() {
        let bounds = |sizes: &[usize]| on_hosts(sizes).bounds;
        assert_eq!(bounds(&[4]), [0, 4], "one host");
        assert_eq!(bounds(&[1, 1, 1]), [0, 3], "hosts of one");
        assert_eq!(bounds(&[2, 2]), [0, 2, 4]);
        assert_eq!(bounds(&[8, 8]), [0, 8, 16]);
        assert_eq!(bounds(&[4, 2]), [0, 4, 6]);
        assert_eq!(bounds(&[4, 1]), [0, 5], "one of four would do the work of all");
        assert_eq!(on_hosts(&[2; 32]).count(), 32);
        // Each would have 128 peers then, where it has 30.
        assert_eq!(on_hosts(&[2; 128]).count(), 16);
    }

    #[test]
    fn what_leaves_a_host_does_not_grow_with_its_members() {
        for members in [1, 2, 4, 8] {
            let hosts: Vec<&str> = vec!["a"; members].into_iter().chain(vec!["b"; members]).collect();
            let ranges = ranges(64, hosts.len() as u32);
            let most = |groups: &Groups| groups.leaves_busiest_host(64, &ranges, &hosts);
            let flat = most(&Groups::one(hosts.len()));
            assert!((flat - members as f64).abs() < 1e-12, "{members}: {flat}");
            assert!((most(&Groups::choose_on_hosts(64, &ranges, &hosts)) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn links_grow_with_the_square_root() {
        for workers in (UNGROUPED_MAX + 1)..=1024 {
            let speeds: Vec<f64> = (0..workers).map(|worker| 1.0 + f64::from(worker as u32 % 3)).collect();
            let members = ranges_by_speed(1500, &speeds);
            let groups = Groups::choose(1500, &members);
            assert_eq!(groups.members(), workers);
            let most = groups.peers_max(0);
            assert!(most <= 2 * workers.isqrt() + workers.isqrt() / 2 + 4, "{workers}: {most} peers");
            if workers % 97 == 0 {
                let peers = |a| (0..workers).filter(|b| groups.linked(a, *b)).count();
                assert!((0..workers).all(|a| peers(a) <= most));
                assert!(
                    (0..workers).all(|a| (0..workers).all(|b| groups.linked(a, b) == groups.linked(b, a)))
                );
            }
        }
    }
}
