//! Which devices the policy of a queue may take now.

use std::cmp::Reverse;

use bellwether_core::cluster::ClusterView;

use super::WithQueues;
use super::reclaim::{self, Offer};

impl WithQueues {
    /// By node, the free devices that a leaf may take; and those that are lent, with the jobs that give them back if it
    /// takes them.
    ///
    /// Where fewer are free than it may claim, it sees lent devices, too.
    pub(super) fn offer(&self, leaf: usize, view: &ClusterView) -> (Vec<u32>, Vec<Offer>) {
        let mut offered = vec![0; self.nodes.len()];
        let mut offers = Vec::new();
        for kind in 0..self.rights.len() {
            let (claim, free) = (self.claims[kind][leaf], self.free(leaf, kind));
            self.choose(leaf, kind, free, &mut offered);
            if claim > free {
                let lent = self.lent(leaf, kind, claim, free);
                offers.extend(reclaim::offers(&self.leaves, view, kind as u16, claim - free, lent));
            }
        }
        (offered, offers)
    }

    /// Chooses `amount` of the free devices of a type: first those that the leaf saw before, then those on nodes
    /// where it has others, then those of the nodes with most.
    fn choose(&self, leaf: usize, kind: usize, amount: u32, offered: &mut [u32]) {
        let own = &self.leaves[leaf];
        let is_of_kind = |node: &usize| {
            let node = &self.nodes[*node];
            node.up && node.free > 0 && usize::from(node.device_type) == kind
        };
        let mut nodes: Vec<usize> = (0..self.nodes.len()).filter(is_of_kind).collect();
        let mut left = amount;
        if amount < self.idle[kind] {
            for &node in &nodes {
                let seen = own.view.nodes[node].free.min(self.nodes[node].free).min(left);
                offered[node] += seen;
                left -= seen;
            }
            nodes.sort_by_key(|node| (own.own[*node] == 0, Reverse(self.nodes[*node].free), *node));
        }
        for node in nodes {
            let more = (self.nodes[node].free - offered[node]).min(left);
            offered[node] += more;
            left -= more;
        }
    }
}
