//! Which nodes a gang is placed on: few nodes, and those that it leaves least room on.

use std::collections::BTreeSet;

use bellwether_core::cluster::{Allocation, ClusterView, Job, Node, NodeId, Share};
use bellwether_core::policy::Changes;
use serde::{Deserialize, Serialize};

/// Free devices by type, node and count, so that a place is found in O(log nodes) per node that it takes.
///
/// A policy keeps one from call to call with [`follow`](FreeDevices::follow), or makes a new one from the view.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FreeDevices {
    nodes: Vec<Node>,
    /// By type of device: up nodes with that many free devices, by count from 0.
    rooms: Vec<Vec<BTreeSet<NodeId>>>,
    /// By type of device: free devices of nodes that are up.
    free: Vec<u32>,
    /// By type of device: devices of nodes that are up.
    devices: Vec<u32>,
}

impl FreeDevices {
    /// What is free in `view`.
    pub fn new(view: &ClusterView) -> FreeDevices {
        let types = view.device_types.len();
        let mut board = FreeDevices {
            nodes: view.nodes.clone(),
            rooms: vec![Vec::new(); types],
            free: vec![0; types],
            devices: vec![0; types],
        };
        for (index, node) in view.nodes.iter().enumerate().filter(|(_, node)| node.up) {
            board.enter(NodeId(index as u32), *node);
        }
        board
    }

    /// What would be free in `view` if no job held anything.
    pub fn empty(view: &ClusterView) -> FreeDevices {
        let mut board = FreeDevices::new(view);
        // Two that share devices hold them once.
        for (_, job) in view.jobs.iter().filter(|(id, job)| job.beside.is_none_or(|other| **id < other)) {
            board.release(&job.allocation);
        }
        board
    }

    /// Takes in what `changes` released, and nodes that went up or down; `view` is the cluster afterwards.
    ///
    /// Nodes that changed are taken over from the view as they are.
    pub fn follow(&mut self, view: &ClusterView, changes: &Changes) {
        if self.nodes.len() != view.nodes.len() {
            *self = FreeDevices::new(view);
            return;
        }
        for (_, job) in changes.ended.iter().filter(|(_, job)| job.beside.is_none()) {
            self.release(&job.allocation);
        }
        for (_, allocation) in &changes.lost {
            self.release(allocation);
        }
        for &id in &changes.nodes {
            let known = self.nodes[id.0 as usize];
            if known.up {
                self.leave(id, known);
            }
            let node = view.nodes[id.0 as usize];
            self.nodes[id.0 as usize] = node;
            if node.up {
                self.enter(id, node);
            }
        }
    }

    /// Free devices of a type.
    pub fn free(&self, device_type: u16) -> u32 {
        self.free[usize::from(device_type)]
    }

    /// Devices of a type on nodes that are up.
    pub fn devices(&self, device_type: u16) -> u32 {
        self.devices[usize::from(device_type)]
    }

    /// Types of device.
    pub fn device_types(&self) -> u16 {
        self.free.len() as u16
    }

    /// The first type in the cluster's order that `job` accepts and that has `devices` free.
    pub fn type_with_room(&self, job: &Job, devices: u32) -> Option<u16> {
        (0..self.device_types()).find(|&kind| job.accepts(kind) && self.free(kind) >= devices)
    }

    /// Takes `devices` devices of one type: of the node where least room is left over, or, when none has room for
    /// all, whole rooms from the largest down and the rest so. `None` (and nothing is taken) when there are too few.
    pub fn place(&mut self, device_type: u16, devices: u32) -> Option<Allocation> {
        if devices == 0 || self.free(device_type) < devices {
            return None;
        }
        let mut shares = Vec::new();
        let mut missing = devices;
        while missing > 0 {
            let rooms = &self.rooms[usize::from(device_type)];
            let fitting = (missing as usize..rooms.len()).find_map(|count| rooms[count].first());
            let largest = || rooms.iter().rev().find_map(|nodes| nodes.first());
            let node = *fitting.or_else(largest).expect("a free device stands on some node");
            let devices = missing.min(self.nodes[node.0 as usize].free);
            shares.push(Share { node, devices });
            self.change(node, |free| free - devices);
            missing -= devices;
        }
        Some(Allocation::new(shares))
    }

    /// Takes `devices` devices for `job` on the [first type with room](FreeDevices::type_with_room).
    pub fn place_job(&mut self, job: &Job, devices: u32) -> Option<Allocation> {
        let kind = self.type_with_room(job, devices)?;
        self.place(kind, devices)
    }

    /// Takes just these devices; `false` (and nothing is taken) when they are not free.
    pub fn take(&mut self, allocation: &Allocation) -> bool {
        let is_free = |share: &Share| {
            self.nodes.get(share.node.0 as usize).is_some_and(|node| node.up && node.free >= share.devices)
        };
        let free = allocation.shares().iter().all(is_free);
        if free {
            for share in allocation.shares() {
                self.change(share.node, |free| free - share.devices);
            }
        }
        free
    }

    /// Gives devices back.
    ///
    /// # Panics
    ///
    /// When a share names a node that is not there.
    pub fn release(&mut self, allocation: &Allocation) {
        for share in allocation.shares() {
            self.change(share.node, |free| free + share.devices);
        }
    }

    fn change(&mut self, id: NodeId, change: impl Fn(u32) -> u32) {
        let node = self.nodes[id.0 as usize];
        let changed = Node { free: change(node.free), ..node };
        self.nodes[id.0 as usize] = changed;
        if node.up {
            self.leave(id, node);
            self.enter(id, changed);
        }
    }

    fn enter(&mut self, id: NodeId, node: Node) {
        let kind = usize::from(node.device_type);
        let rooms = &mut self.rooms[kind];
        if rooms.len() <= node.free as usize {
            rooms.resize(node.free as usize + 1, BTreeSet::new());
        }
        rooms[node.free as usize].insert(id);
        self.free[kind] += node.free;
        self.devices[kind] += node.devices;
    }

    fn leave(&mut self, id: NodeId, node: Node) {
        let kind = usize::from(node.device_type);
        self.rooms[kind][node.free as usize].remove(&id);
        self.free[kind] -= node.free;
        self.devices[kind] -= node.devices;
    }
}
