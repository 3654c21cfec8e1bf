//! What a cluster tells of its nodes.

use bellwether_core::cluster::NodeId;
use bellwether_core::policy::Fault;

use super::Engine;
use crate::clock::Clock;
use crate::ledger::Entry;
use crate::runner::{JobRunner, NodeSeen};

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Writes down what has changed. Of nodes that are not the ledger's nothing is said.
    pub(super) fn nodes(&mut self, seen: &[NodeSeen]) -> Result<(), Fault> {
        for NodeSeen { name, down } in seen {
            let place = self.state.machine.nodes.iter().position(|node| node.name == *name);
            let Some(node) = place.map(|place| NodeId(place as u32)) else { continue };
            if self.state.down.get(&node) != down.as_ref() {
                let why = down.clone().unwrap_or_default();
                self.write(Entry::Node { node, up: down.is_none(), why })?;
            }
        }
        Ok(())
    }
}
