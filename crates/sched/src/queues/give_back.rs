//! Jobs that gave devices to another queue get them back when that many are free again: a policy that never changes
//! the devices of a running job would leave it with few for ever.

use std::cmp::Reverse;

use bellwether_core::cluster::{Allocation, JobId, NodeId, Share};
use bellwether_core::policy::{Action, PolicyInput};

use super::draft::Draft;
use super::{WithQueues, reclaim};

impl WithQueues {
    /// Gives back what is free after all policies have decided.
    pub(super) fn give_back(&mut self, input: &PolicyInput<'_>, draft: &mut Draft) {
        if self.leaves.iter().all(|leaf| leaf.shrunk.is_empty()) {
            return;
        }
        let mut order: Vec<usize> = (0..self.leaves.len()).collect();
        order.sort_by_key(|leaf| self.history.place(&self.tree, self.leaves[*leaf].queue));
        for place in order {
            let shrunk: Vec<(JobId, (u32, Allocation))> =
                self.leaves[place].shrunk.iter().map(|(id, had)| (*id, had.clone())).collect();
            for (id, (had, left)) in shrunk {
                let leaf = &self.leaves[place];
                let holds = leaf.view.jobs.get(&id).is_some_and(|seen| seen.allocation == left);
                // Its policy, or the world, has decided otherwise since.
                if !holds {
                    self.leaves[place].shrunk.remove(&id);
                } else if let Some(action) = self.restored(place, id, had, input) {
                    self.restore(place, id, &action, input.now_s);
                    draft.forced().push(action);
                }
            }
        }
    }

    /// A job with as many devices as it had, where they are free and it is believed to run on them.
    fn restored(&self, place: usize, id: JobId, had: u32, input: &PolicyInput<'_>) -> Option<Action> {
        let seen = self.leaves[place].view.jobs.get(&id)?;
        let held = seen.allocation.shares();
        let kind = usize::from(input.view.nodes[held.first()?.node.0 as usize].device_type);
        let missing = had.min(seen.job.max_devices).checked_sub(seen.allocation.devices())?;
        if missing == 0 || missing > self.idle[kind].min(self.headroom(place, kind)) {
            return None;
        }
        let is_of_kind = |node: &usize| {
            let node = &self.nodes[*node];
            node.up && node.free > 0 && usize::from(node.device_type) == kind
        };
        let mut nodes: Vec<usize> = (0..self.nodes.len()).filter(is_of_kind).collect();
        let is_held = |node: usize| held.iter().any(|share| share.node.0 as usize == node);
        nodes.sort_by_key(|node| (!is_held(*node), Reverse(self.nodes[*node].free), *node));
        let rooms = nodes.into_iter().map(|node| (NodeId(node as u32), self.nodes[node].free));
        let more = Allocation::filling(rooms, missing)?;
        let shares: Vec<Share> = held.iter().chain(more.shares()).copied().collect();
        let allocation = Allocation::new(shares);
        let batch = reclaim::runs(&self.leaves[place].view, seen, &allocation, input)?;
        Some(reclaim::allocate(id, allocation, batch))
    }

    fn restore(&mut self, place: usize, id: JobId, action: &Action, now_s: f64) {
        let leaf = &mut self.leaves[place];
        leaf.shrunk.remove(&id);
        let before = leaf.own.clone();
        leaf.carry_out(action, now_s);
        leaf.changes.revised.push(id);
        for (node, (before, after)) in before.iter().zip(&leaf.own).enumerate() {
            if before != after {
                self.nodes[node].free -= after - before;
                leaf.changes.nodes.push(NodeId(node as u32));
            }
        }
        let kinds = 0..self.idle.len();
        self.idle = kinds.map(|kind| free(&self.nodes, kind)).collect();
    }
}

fn free(nodes: &[bellwether_core::cluster::Node], kind: usize) -> u32 {
    let of_kind = nodes.iter().filter(|node| node.up && usize::from(node.device_type) == kind);
    of_kind.map(|node| node.free).sum()
}
