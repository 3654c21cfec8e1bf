//! The machine whose slots jobs share.

use bellwether_core::cluster::{ClusterView, Node, NodeId};
use bellwether_core::prediction::Link;
use serde::{Deserialize, Serialize};

/// The most slots that a machine may have: each is shown by itself, and a ledger may claim any number.
const SLOTS_MAX: u64 = 1 << 20;

/// A machine, or a cluster that one machine plays: slots, in nodes, each for one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Types of slot.
    pub device_types: Vec<DeviceType>,
    /// Nodes; their order never changes.
    pub nodes: Vec<MachineNode>,
    /// The link of each node to the others, as policies should take it.
    pub link: Option<Link>,
    /// The link between slots of one node.
    pub local_link: Option<Link>,
    /// Seconds without progress that a job is expected to pay when it goes on after a stop.
    pub restart_s: f64,
    /// How workers are started where nodes are machines of their own: as Slurm's jobs. Absent where this machine plays
    /// all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJobs>,
    /// Whether nodes are those of a Kubernetes cluster, on which an operator starts pods.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pods: bool,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

/// How workers and servers are submitted as jobs of Slurm's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobs {
    /// The partition whose nodes these are.
    pub partition: String,
    /// Options of `sbatch`.
    pub options: Vec<String>,
    /// The beginning of each job's script.
    pub script: String,
    /// Processors of a slot, on nodes without GPUs; 0 in ledgers of earlier releases, which know only the nodes with
    /// which they began.
    #[serde(default)]
    pub processors_per_slot: u32,
    /// The beginning of the keys of this daemon's runs, by which it knows its own jobs from those of others; empty in
    /// ledgers of earlier releases.
    #[serde(default)]
    pub key: String,
}

/// A type of slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceType {
    /// Its name.
    pub name: String,
    /// How fast it is, relative to the fastest of this machine; workers on slower ones are slowed down.
    pub speed: f64,
    /// Bytes of memory that a slot has for its worker; absent where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Slots of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNode {
    /// Its name, where it is a machine of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Their type, as an index into [`Machine::device_types`].
    pub device_type: u16,
    /// How many there are.
    pub devices: u32,
}

/// A machine that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A node has slots of a type of device that is not listed.
    #[error("a node has slots of a type that is not among the {types}")]
    DeviceType {
        /// Types that are listed.
        types: usize,
    },
    /// A speed, the number of slots, or the time of a restart is out of range.
    #[error("its slots make no sense")]
    Slots,
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    /// Its node.
    pub node: NodeId,
    /// Its place in the node, from 0.
    pub index: u32,
}

impl Machine {
    /// One node with `slots` slots of type `cpu`.
    ///
    /// ```
    /// use bellwether_serve::machine::Machine;
    /// assert_eq!(Machine::slots(4).view().free(None), 4);
    /// ```
    pub fn slots(slots: u32) -> Machine {
        Machine {
            device_types: vec![DeviceType { name: "cpu".into(), speed: 1.0, memory_bytes: None }],
            nodes: vec![MachineNode { name: String::new(), device_type: 0, devices: slots }],
            link: None,
            local_link: None,
            restart_s: 0.0,
            slurm: None,
            pods: false,
        }
    }

    /// A Kubernetes cluster, of which no node was seen yet.
    pub fn of_pods() -> Machine {
        Machine { device_types: Vec::new(), nodes: Vec::new(), pods: true, ..Machine::slots(0) }
    }

    /// Whether it can be: a ledger may say anything.
    ///
    /// # Errors
    ///
    /// Returns what is impossible about it.
    pub(crate) fn check(&self) -> Result<(), MachineError> {
        let types = self.device_types.len();
        if self.nodes.iter().any(|node| usize::from(node.device_type) >= types) {
            return Err(MachineError::DeviceType { types });
        }
        let slots: u64 = self.nodes.iter().map(|node| u64::from(node.devices)).sum();
        let speeds_make_sense = self.device_types.iter().all(|kind| kind.speed > 0.0 && kind.speed <= 1.0);
        if !(speeds_make_sense && slots <= SLOTS_MAX && self.restart_s >= 0.0 && self.restart_s.is_finite()) {
            return Err(MachineError::Slots);
        }
        Ok(())
    }

    /// Whether who asks for `other` slots asks for these: those of a partition may have changed meanwhile.
    pub(crate) fn is_as(&self, other: &Machine) -> bool {
        match (&self.slurm, &other.slurm) {
            (Some(own), Some(other)) => {
                let told = |jobs: &SlurmJobs| SlurmJobs {
                    processors_per_slot: 0,
                    key: String::new(),
                    ..jobs.clone()
                };
                told(own) == told(other)
            }
            // Nodes of a cluster come and go.
            _ if self.pods => other.pods,
            _ => self == other,
        }
    }

    /// The same with these slots on the node of this name, which is added where there is none, and the node's place.
    pub(crate) fn with_node(&self, name: &str, kind: &DeviceType, devices: u32) -> (usize, Machine) {
        let mut machine = self.clone();
        let known = machine.nodes.iter().position(|node| node.name == name);
        let place = known.unwrap_or_else(|| {
            let device_type = machine.type_of(kind);
            machine.nodes.push(MachineNode { name: name.to_owned(), device_type, devices });
            machine.nodes.len() - 1
        });
        machine.nodes[place].devices = devices;
        (place, machine)
    }

    /// The number of the type of slot with this name, which is added where there is none.
    pub(crate) fn type_of(&mut self, kind: &DeviceType) -> u16 {
        let known = self.device_types.iter().position(|known| known.name == kind.name);
        known.unwrap_or_else(|| {
            self.device_types.push(kind.clone());
            self.device_types.len() - 1
        }) as u16
    }

    /// Slots of a type on all nodes.
    pub(crate) fn devices(&self, device_type: u16) -> u32 {
        let of_type = self.nodes.iter().filter(|node| node.device_type == device_type);
        of_type.map(|node| node.devices).sum()
    }

    /// Whether each node is a machine of its own: processes on one node are not on another.
    pub fn is_cluster(&self) -> bool {
        self.slurm.is_some() || self.pods
    }

    /// The machine when it is empty, as a policy sees it.
    pub fn view(&self) -> ClusterView {
        let node = |node: &MachineNode| Node {
            device_type: node.device_type,
            devices: node.devices,
            free: node.devices,
            up: true,
        };
        ClusterView {
            device_types: self.device_types.iter().map(|kind| kind.name.clone()).collect(),
            nodes: self.nodes.iter().map(node).collect(),
            link: self.link,
            local_link: self.local_link,
            restart_s: self.restart_s,
            ..ClusterView::default()
        }
    }
}
