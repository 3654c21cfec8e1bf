//! Nodes that go and come back: what was decided for them is void, and a policy decides again at once.

use std::sync::Arc;

use bellwether_core::cluster::{JobId, Node, NodeId, Share};
use bellwether_core::job::WorkerRange;

use super::record::limit;
use super::{LineError, State};
use crate::machine::DeviceType;

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

    /// A node of the cluster has these slots, of which others' jobs hold some; one that was not there joins. Jobs that
    /// were given more of it than there are lose what they hold, as where a node goes. A fresh policy decides about
    /// slots that are otherwise than they were: policies may keep what never changed before.
    pub(super) fn slots_are(
        &mut self,
        name: &str,
        device_type: &DeviceType,
        devices: u32,
        taken: u32,
    ) -> Result<(), LineError> {
        if !self.machine.is_cluster() || name.is_empty() {
            return Err(LineError::Misplaced("a node that joins a machine"));
        }
        let before = self.all_devices();
        let (place, machine) = self.machine.with_node(name, device_type, devices);
        machine.check()?;
        if place == self.view.nodes.len() {
            let device_type = machine.nodes[place].device_type;
            self.view.nodes.push(Node { device_type, devices: 0, free: 0, up: true });
            self.view.device_types = machine.view().device_types;
        }
        self.machine = machine;
        let node = NodeId(place as u32);
        let taken = taken.min(devices);
        let usable = devices - taken;
        let holds = |node: &Node| node.devices - node.free;
        if usable < holds(&self.view.nodes[place]) {
            self.void(node);
        }
        let seen = &mut self.view.nodes[place];
        let held = holds(seen);
        (seen.devices, seen.free) = (usable.max(held), usable.saturating_sub(held));
        match taken {
            0 => drop(self.taken.remove(&node)),
            taken => drop(self.taken.insert(node, taken)),
        }
        self.slots.version += 1;
        self.nodes_changed = true;
        self.widen(&before);
        self.begin_policy();
        Ok(())
    }

    /// Jobs that could have all slots of a type may have those that came, within the limits of their users.
    fn widen(&mut self, before: &[u32]) {
        let now = self.all_devices();
        let open =
            self.jobs.iter().filter(|(_, record)| record.end.is_none() && record.after_profile.is_none());
        let wider = open.filter_map(|(job, record)| {
            let types = &record.submitted.device_types;
            let (was, is) = (widest(before, types), widest(&now, types));
            (is > was).then_some((*job, was, is))
        });
        for (job, was, is) in wider.collect::<Vec<_>>() {
            let most = self.jobs[&job].submitted.workers.max;
            let Some(seen) = self.seen_mut(job).filter(|seen| seen.job.max_devices == was) else { continue };
            let mut widened = Arc::clone(&seen.job);
            let WorkerRange { min, max } = self.jobs[&job].workers_of(&widened);
            limit(Arc::make_mut(&mut widened), WorkerRange { min, max: most.max(max) }, is);
            if let Some(seen) = self.seen_mut(job) {
                seen.job = widened;
            }
        }
    }

    /// Slots of each type.
    fn all_devices(&self) -> Vec<u32> {
        (0..self.view.device_types.len() as u16).map(|kind| self.machine.devices(kind)).collect()
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

    /// The most slots of one of these types (of any, if empty), those of nodes that are down, and those that others'
    /// jobs hold, included: they come back.
    pub fn widest(&self, types: &[u16]) -> u32 {
        widest(&self.all_devices(), types)
    }

    /// Whether processes may begin on a node.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.view.nodes.get(node.0 as usize).is_some_and(|node| node.up)
    }
}

/// The most of these numbers of slots, by type, among these types (any, if empty).
fn widest(slots: &[u32], types: &[u16]) -> u32 {
    let named = |kind: usize| types.is_empty() || types.contains(&(kind as u16));
    slots.iter().enumerate().filter(|(kind, _)| named(*kind)).map(|(_, slots)| *slots).max().unwrap_or(0)
}
