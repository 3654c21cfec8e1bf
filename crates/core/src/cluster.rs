//! What a scheduler sees: jobs, nodes, and who holds which devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::prediction::Link;

mod allocation_error;
mod job;
mod way;

pub use allocation_error::{AllocationError, SharingError};
pub use job::Job;
pub use way::{Switch, Way};

/// A job's place in the order of arrival: of two jobs the smaller number arrived earlier, or at the same
/// instant with the smaller name. So "ties by arrival, then name" means ties by this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

/// A node's place in [`ClusterView::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Some devices of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// The node.
    pub node: NodeId,
    /// How many of its devices; at least 1.
    pub devices: u32,
}

/// The devices that a job holds: shares in ascending order of nodes, each node once. Empty: none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Allocation(Vec<Share>);

impl Allocation {
    /// Nothing.
    pub fn none() -> Allocation {
        Allocation::default()
    }

    /// These shares; of one node they are added up, and empty ones are left out.
    pub fn new(mut shares: Vec<Share>) -> Allocation {
        shares.retain(|share| share.devices > 0);
        shares.sort_unstable_by_key(|share| share.node);
        shares.dedup_by(|later, earlier| {
            let same = later.node == earlier.node;
            if same {
                earlier.devices = earlier.devices.saturating_add(later.devices);
            }
            same
        });
        Allocation(shares)
    }

    /// `devices` devices out of rooms (nodes and how many they have), each filled before the next; `None` when these
    /// are too few.
    ///
    /// ```
    /// use bellwether_core::cluster::{Allocation, NodeId};
    /// let rooms = || [(NodeId(0), 4), (NodeId(1), 4)].into_iter();
    /// assert_eq!(Allocation::filling(rooms(), 5).map(|a| a.shares().len()), Some(2));
    /// assert_eq!(Allocation::filling(rooms(), 9), None);
    /// ```
    pub fn filling(rooms: impl Iterator<Item = (NodeId, u32)>, devices: u32) -> Option<Allocation> {
        let mut missing = devices;
        let mut shares = Vec::new();
        for (node, room) in rooms {
            if missing == 0 {
                break;
            }
            let devices = room.min(missing);
            missing -= devices;
            shares.push(Share { node, devices });
        }
        (missing == 0).then(|| Allocation::new(shares))
    }

    /// Its shares, by node.
    pub fn shares(&self) -> &[Share] {
        &self.0
    }

    /// Devices, of all nodes together.
    pub fn devices(&self) -> u32 {
        self.0.iter().fold(0, |sum, share| sum.saturating_add(share.devices))
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a job whose batch may change shares out its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Samples of a step of all workers together.
    pub samples: u64,
    /// Micro-batches that each worker computes one after another before it exchanges anything.
    pub accumulation: u32,
}

/// A node of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Type of its devices, as an index into [`ClusterView::device_types`].
    pub device_type: u16,
    /// How many devices it has.
    pub devices: u32,
    /// How many of them no job holds.
    pub free: u32,
    /// Whether it works; nothing may be placed on one that does not.
    pub up: bool,
}

/// A job that has arrived and has not ended, as a policy may see it.
///
/// Counters hold at `allocated_s` and `progress_s`; the methods carry them on to a later time, so that an
/// event costs nothing for jobs that it does not touch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// What its author declared.
    #[serde(with = "shared")]
    pub job: Arc<Job>,
    /// What it holds; nothing while it waits.
    pub allocation: Allocation,
    /// The job that uses the same devices, all of them, if one does: its allocation is equal, and it names this one.
    pub beside: Option<JobId>,
    /// The batch that it was given, if the policy chose one.
    pub batch: Option<Batch>,
    /// The way that it was given, where its author left several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
    /// Since when it holds this allocation, or waits without one, in seconds.
    pub allocated_s: f64,
    /// From when on it makes progress with it, in seconds: later than `allocated_s` by what a restart costs.
    pub progress_s: f64,
    /// Work per second that it does then, as measured; 0 while it waits.
    pub rate: f64,
    /// Work done until `progress_s`.
    pub done: f64,
    /// Work that is believed to remain at `progress_s`; `None` where nothing may be known of it.
    pub remaining: Option<f64>,
    /// Seconds for which it held devices until `allocated_s`.
    pub executed_s: f64,
    /// Device-seconds that it held until `allocated_s`; of devices that it shared, half.
    pub device_s: f64,
    /// When it first held devices, in seconds.
    pub started_s: Option<f64>,
    /// How often it went on after it had stopped or changed its devices.
    pub restarts: u32,
}

/// A shared value, written as the value.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

impl JobView {
    /// A job that has just arrived, at `now_s`: it waits.
    pub fn waiting(job: Arc<Job>, now_s: f64, remaining: Option<f64>) -> JobView {
        JobView {
            job,
            allocation: Allocation::none(),
            beside: None,
            batch: None,
            way: None,
            allocated_s: now_s,
            progress_s: now_s,
            rate: 0.0,
            done: 0.0,
            remaining,
            executed_s: 0.0,
            device_s: 0.0,
            started_s: None,
            restarts: 0,
        }
    }

    /// Whether it holds devices.
    pub fn is_running(&self) -> bool {
        !self.allocation.is_empty()
    }

    /// Seconds for which it has held devices.
    pub fn executed_s(&self, now_s: f64) -> f64 {
        if self.is_running() {
            self.executed_s + (now_s - self.allocated_s).max(0.0)
        } else {
            self.executed_s
        }
    }

    /// Device-seconds that it has held; of devices that it shared, half.
    pub fn device_s(&self, now_s: f64) -> f64 {
        self.device_s + self.own(&self.allocation) * (now_s - self.allocated_s).max(0.0)
    }

    /// Devices of an allocation that count as its own.
    fn own(&self, held: &Allocation) -> f64 {
        let devices = f64::from(held.devices());
        if self.beside.is_some() { devices / 2.0 } else { devices }
    }

    /// Work since `progress_s`.
    fn progress(&self, now_s: f64) -> f64 {
        // Times are rounded: what an infinite rate did in no time is nothing.
        let seconds = (now_s - self.progress_s).max(0.0);
        if seconds > 0.0 { self.rate * seconds } else { 0.0 }
    }

    /// Work done.
    pub fn done(&self, now_s: f64) -> f64 {
        self.done + self.progress(now_s)
    }

    /// Work that is believed to remain; 0 when more was done than was believed to be there.
    pub fn remaining(&self, now_s: f64) -> Option<f64> {
        self.remaining.map(|work| (work - self.progress(now_s)).max(0.0))
    }

    /// Adds up what was done with `before`, the devices that it held since `allocated_s`; a job that used them
    /// [beside](JobView::beside) it still stands there.
    pub fn settle(&mut self, before: &Allocation, now_s: f64) {
        if before.is_empty() {
            return;
        }
        let held_s = now_s - self.allocated_s;
        self.executed_s += held_s;
        self.device_s += held_s * self.own(before);
        (self.done, self.remaining) = (self.done(now_s), self.remaining(now_s));
    }

    /// From `now_s` on it holds what it holds now, and it held `before` until then. Going on with other devices costs
    /// `restart_s`.
    pub fn turn(&mut self, before: &Allocation, now_s: f64, restart_s: f64) {
        self.settle(before, now_s);
        (self.allocated_s, self.progress_s) = (now_s, now_s);
        // Another batch on the same devices needs no restart.
        if !self.is_running() || self.allocation == *before {
            return;
        }
        if self.started_s.is_some() {
            self.restarts += 1;
            self.progress_s += restart_s;
        } else {
            self.started_s = Some(now_s);
        }
    }

    /// When it will end if nothing changes, by what is believed; `None` while it waits or when nothing is known.
    pub fn end_s(&self) -> Option<f64> {
        let remaining = self.remaining.filter(|_| self.is_running() && self.rate > 0.0)?;
        Some(self.progress_s + remaining / self.rate)
    }
}

/// All that a policy sees at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterView {
    /// Names of the types of device.
    pub device_types: Vec<String>,
    /// Nodes; their order never changes.
    pub nodes: Vec<Node>,
    /// Jobs that have arrived and have not ended, in the order of their arrival.
    pub jobs: BTreeMap<JobId, JobView>,
    /// The link of each node to the others.
    pub link: Option<Link>,
    /// The link between devices of one node.
    pub local_link: Option<Link>,
    /// Seconds without progress that a job pays when it goes on after a stop or a change of its devices.
    pub restart_s: f64,
    /// Whether two jobs may use the same devices; never more.
    pub packs: bool,
}

impl ClusterView {
    /// Devices of nodes that are up, of all types or of one.
    pub fn devices(&self, device_type: Option<u16>) -> u32 {
        self.sum(device_type, |node| node.devices)
    }

    /// Devices of a type, of nodes that are down too.
    pub fn devices_with_down(&self, device_type: u16) -> u32 {
        self.nodes_of(device_type).fold(0, |sum, (_, devices)| sum.saturating_add(devices))
    }

    /// Most devices of one of these types, or of any where none is named, of nodes that are up.
    pub fn widest(&self, types: &[u16]) -> u32 {
        let named = |kind: &u16| types.is_empty() || types.contains(kind);
        let kinds = (0..self.device_types.len() as u16).filter(named);
        kinds.map(|kind| self.devices(Some(kind))).max().unwrap_or(0)
    }

    /// Devices of nodes that are up and that no job holds, of all types or of one.
    pub fn free(&self, device_type: Option<u16>) -> u32 {
        self.sum(device_type, |node| node.free)
    }

    /// Nodes of a type in the cluster's order, down or not, and the devices of each.
    pub fn nodes_of(&self, device_type: u16) -> impl Iterator<Item = (NodeId, u32)> {
        let nodes = self.nodes.iter().enumerate().filter(move |(_, node)| node.device_type == device_type);
        nodes.map(|(index, node)| (NodeId(index as u32), node.devices))
    }

    /// Whether `seen` may hold `allocation` from now on, in place of what it holds.
    ///
    /// # Errors
    ///
    /// Returns what is against it, to be said after the job's name.
    pub fn check(&self, seen: &JobView, allocation: &Allocation) -> Result<(), AllocationError> {
        let job = &seen.job;
        let devices = allocation.devices();
        if devices != 0 && (devices < job.min_devices || devices > job.max_devices) {
            let (least, most) = (job.min_devices, job.max_devices);
            return Err(AllocationError::Count { given: devices, least, most });
        }
        for share in allocation.shares() {
            let place = share.node.0;
            let Some(node) = self.nodes.get(place as usize) else {
                return Err(AllocationError::NoSuchNode { node: place, nodes: self.nodes.len() });
            };
            if !node.up {
                return Err(AllocationError::Down { node: place });
            }
            if !job.accepts(node.device_type) {
                let device = self.device_types[usize::from(node.device_type)].clone();
                return Err(AllocationError::DeviceType { node: place, device });
            }
            let own = seen.allocation.shares().iter().find(|own| own.node == share.node);
            // What it shares stays with the other one.
            let own = own.filter(|_| seen.beside.is_none());
            let free = node.free + own.map_or(0, |own| own.devices);
            if share.devices > free {
                let (given, devices) = (share.devices, node.devices);
                return Err(AllocationError::NotFree { node: place, given, free, devices });
            }
        }
        Ok(())
    }

    /// Whether the job `id` may use `allocation`, all devices of the job `beside`, together with that, in place of what
    /// it holds.
    ///
    /// # Errors
    ///
    /// Returns what is against it, to be said after the job's name.
    pub fn check_beside(
        &self,
        id: JobId,
        allocation: &Allocation,
        beside: JobId,
    ) -> Result<(), AllocationError> {
        let broken = |why| Err(AllocationError::Sharing { with: beside, why });
        if !self.packs {
            return broken(SharingError::NotHere);
        }
        let other = self.jobs.get(&beside).filter(|other| other.is_running() && beside != id);
        let (Some(seen), Some(other)) = (self.jobs.get(&id), other) else {
            return broken(SharingError::HoldsNothing);
        };
        if other.beside.is_some_and(|third| third != id) {
            return broken(SharingError::Taken);
        }
        if other.allocation != *allocation {
            return broken(SharingError::OtherDevices);
        }
        let (job, devices) = (&seen.job, allocation.devices());
        let accepts = |share: &Share| job.accepts(self.nodes[share.node.0 as usize].device_type);
        if devices < job.min_devices || devices > job.max_devices || !allocation.shares().iter().all(accepts)
        {
            return broken(SharingError::Unsuitable);
        }
        Ok(())
    }

    /// Releases the job's devices. Returns those freed: none if another job uses the same devices, which now has them
    /// for itself.
    pub fn vacate(&mut self, id: JobId) -> Allocation {
        let Some(seen) = self.jobs.get_mut(&id) else { return Allocation::none() };
        let held = std::mem::take(&mut seen.allocation);
        if let Some(other) = seen.beside.take().and_then(|other| self.jobs.get_mut(&other)) {
            other.beside = None;
            return Allocation::none();
        }
        self.release(&held);
        held
    }

    /// Lets go of an allocation's devices.
    ///
    /// # Panics
    ///
    /// When a share names a node that is not there.
    pub fn release(&mut self, allocation: &Allocation) {
        for share in allocation.shares() {
            self.nodes[share.node.0 as usize].free += share.devices;
        }
    }

    /// Takes an allocation's devices, which are free.
    ///
    /// # Panics
    ///
    /// When a share names a node that is not there, or more than are free.
    pub fn take(&mut self, allocation: &Allocation) {
        for share in allocation.shares() {
            self.nodes[share.node.0 as usize].free -= share.devices;
        }
    }

    fn sum(&self, device_type: Option<u16>, count: impl Fn(&Node) -> u32) -> u32 {
        let of_type = |node: &&Node| node.up && device_type.is_none_or(|device| node.device_type == device);
        self.nodes.iter().filter(of_type).fold(0, |sum, node| sum.saturating_add(count(node)))
    }
}
