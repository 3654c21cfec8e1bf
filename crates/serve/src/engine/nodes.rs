//! What a cluster tells of its nodes.

use bellwether_core::cluster::NodeId;
use bellwether_core::policy::Fault;

use super::Engine;
use crate::clock::Clock;
use crate::ledger::Entry;
use crate::runner::{JobRunner, NodeSeen, SlotsSeen};
use crate::state::State;

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Writes down what has changed. A ledger of an earlier release knows only the nodes with which it began.
    pub(super) fn nodes(&mut self, seen: &[NodeSeen]) -> Result<(), Fault> {
        let machine = &self.state.machine;
        let follows = machine.pods || self.slurm().is_some_and(|jobs| jobs.processors_per_slot > 0);
        for NodeSeen { name, down, slots: SlotsSeen { device_type, devices, taken } } in seen {
            let place = |state: &State| state.machine.nodes.iter().position(|node| node.name == *name);
            let node = |place: usize| NodeId(place as u32);
            let known = place(&self.state).map(|place| {
                let taken = self.state.taken.get(&node(place)).copied().unwrap_or(0);
                (self.state.machine.nodes[place].devices, taken)
            });
            if follows && known != Some((*devices, *taken)) && !(known.is_none() && down.is_some()) {
                let (node, device_type) = (name.clone(), device_type.clone());
                self.write(Entry::Slots { node, device_type, devices: *devices, taken: *taken })?;
            }
            let Some(node) = place(&self.state).map(node) else { continue };
            if self.state.down.get(&node) != down.as_ref() {
                let why = down.clone().unwrap_or_default();
                self.write(Entry::Node { node, up: down.is_none(), why })?;
            }
        }
        Ok(())
    }
}
