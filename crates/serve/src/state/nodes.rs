//! Nodes that go and come back: what was decided for them is void, and a policy decides again at once.

use bellwether_core::cluster::{JobId, NodeId, Share};

use super::{LineError, State};

impl State {
    /// A node takes no processes any more, for this reason, or takes them again. Jobs that were given devices there
    /// lose all that they hold by the last decision: a policy gives them others, and processes that can stay where they
    /// are do.
    pub(super) fn node(&mut self, node: NodeId, up: bool, why: &str) -> Result<(), LineError> {
        let seen = self.view.nodes.get_mut(node.0 as usize);
        let seen = seen.ok_or(LineError::Misplaced("a node that is not there"))?;
        let was_up = std::mem::replace(&mut seen.up, up);
        match up {
            true => drop(self.down.remove(&node)),
            false => drop(self.down.insert(node, why.to_owned())),
        }
        self.slots.version += 1;
        self.nodes_changed = true;
        if was_up == up {
            return Ok(());
        }
        if !self.changes.nodes.contains(&node) {
            self.changes.nodes.push(node);
        }
        if !up {
            self.void(node);
        }
        Ok(())
    }

    fn void(&mut self, node: NodeId) {
        let now_s = self.now_s;
        let is_there = |share: &Share| share.node == node;
        let seen = |job: &JobId| self.view.jobs.get(job);
        let holds = |job: &JobId| seen(job).is_some_and(|seen| seen.allocation.shares().iter().any(is_there));
        let jobs: Vec<JobId> = self.active.holding.iter().copied().filter(holds).collect();
        for job in jobs {
            if let Some(seen) = self.view.jobs.get_mut(&job) {
                let held = seen.allocation.clone();
                seen.settle(&held, now_s);
                (seen.allocated_s, seen.progress_s, seen.rate) = (now_s, now_s, 0.0);
            }
            let held = self.view.vacate(job);
            self.changes.lost.push((job, held));
            // So it need not wait until a policy decides that is asked at intervals.
            self.changes.revised.push(job);
            self.touch(job);
        }
    }

    /// The most slots of one of these types (of any, if empty), those of nodes that are down included: they come back.
    pub fn widest(&self, types: &[u16]) -> u32 {
        let named = |kind: &u16| types.is_empty() || types.contains(kind);
        let kinds = (0..self.view.device_types.len() as u16).filter(named);
        kinds.map(|kind| self.view.devices_with_down(kind)).max().unwrap_or(0)
    }

    /// Whether processes may begin on a node.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.view.nodes.get(node.0 as usize).is_some_and(|node| node.up)
    }
}
