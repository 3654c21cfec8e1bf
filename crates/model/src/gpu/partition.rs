//! A device, or the part of it that some processes see: free resources, queue, and the blocks that run.

use std::collections::BTreeMap;

use super::contention::{Group, share};
use super::rooms::Rooms;
use super::workload::Demand;

/// Multiprocessors with their queue. Under time slicing each process has one with all multiprocessors, and one of
/// them is active; in a device that is cut up each slice is one; otherwise there is one.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) rooms: Rooms,
    /// Launches with blocks that are not placed, by priority and then by arrival.
    pub(super) queue: Vec<(i32, u32)>,
    /// Slots of the blocks that run, by rank.
    pub(super) residents: Vec<Vec<u32>>,
    /// Blocks that use shared resources, by launch and rank.
    groups: BTreeMap<(u32, usize), Group>,
    /// Share of the bandwidth of memory and bus.
    memory: f64,
    /// Whether its blocks advance and new ones may be placed.
    pub(super) active: bool,
    /// Rounds of its streams that have arrived and not ended.
    pub(super) rounds: u32,
    /// Whether rates must be computed anew.
    pub(super) stale: bool,
}

impl Partition {
    pub(super) fn new(rooms: Rooms, memory: f64, active: bool) -> Partition {
        let residents = vec![Vec::new(); rooms.sequence().len()];
        Partition {
            rooms,
            queue: Vec::new(),
            residents,
            groups: BTreeMap::new(),
            memory,
            active,
            rounds: 0,
            stale: false,
        }
    }

    /// Lets a launch wait for its turn: after those of the same or a lower number of priority that are there.
    pub(super) fn enqueue(&mut self, priority: i32, launch: u32) {
        let place = self.queue.partition_point(|waiting| *waiting < (priority, launch));
        self.queue.insert(place, (priority, launch));
    }

    /// Counts a block that uses shared resources in.
    pub(super) fn join(&mut self, launch: u32, rank: usize, demand: Demand) {
        let new = Group { launch, rank, blocks: 0, demand, rate: 0.0 };
        self.groups.entry((launch, rank)).or_insert(new).blocks += 1;
        self.stale = true;
    }

    /// Counts it out.
    pub(super) fn leave(&mut self, launch: u32, rank: usize) {
        if let Some(group) = self.groups.get_mut(&(launch, rank)) {
            group.blocks -= 1;
            self.stale = true;
            if group.blocks == 0 {
                self.groups.remove(&(launch, rank));
            }
        }
    }

    /// The rate of a block: of those that use nothing shared it is 1.
    pub(super) fn rate(&self, launch: u32, rank: usize) -> f64 {
        match (self.active, self.groups.get(&(launch, rank))) {
            (false, _) => 0.0,
            (true, None) => 1.0,
            (true, Some(group)) => group.rate,
        }
    }

    /// Shares out what blocks share.
    pub(super) fn share(&mut self) {
        let mut groups: Vec<Group> = self.groups.values().copied().collect();
        share(&mut groups, self.residents.len(), self.memory);
        for (kept, group) in self.groups.values_mut().zip(groups) {
            kept.rate = group.rate;
        }
    }
}
