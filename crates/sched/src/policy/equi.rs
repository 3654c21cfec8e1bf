//! All jobs have the same: one device at a time, to the job that has the fewest; or the fewest for its weight.
//!
//! # Idea
//!
//! *EQUI*: devices are dealt out one at a time over all jobs, the oldest first, until all are used or all jobs have as
//! many as they can use. *Fair* does the same by weight: the next device goes to the job with the fewest devices
//! divided by its weight (progressive filling, weighted max-min). A job's first device is a gang of the fewest that it
//! runs on; one that runs on certain numbers only goes from one to the next. Where the gang does not fit, the job is
//! passed over.
//!
//! # Source
//!
//! EQUI: Edmonds, Scheduling in the dark, STOC 1999; as the authors of HELL compare with it (MASCOTS 2018). Weighted:
//! Bertsekas and Gallager, Data Networks, 6.5. A job takes the type of device with most left of it, and leaves the one
//! that it is on only for one with twice as many.
//!
//! # Reads
//!
//! Order of arrival, limits and weights; of the model only where a job can run at all.
//!
//! # Complexity
//!
//! O((jobs + devices) log jobs) for an event.
//!
//! # Bad when
//!
//! Jobs are many: all run, and all run long. Every event changes devices of many jobs, so restarts must be cheap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, held_type};
use crate::greedy::bits;

/// Equal shares.
pub const ABOUT: About = About {
    name: "equi",
    idea: "everybody has equally many devices, and who came first has the odd ones",
    options: &[],
    bad_when: "jobs are many, so that all run and all run long, and restarts are expensive",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: true },
    make: |_| Ok(Box::new(Equi { weighted: false, table: AllocationState::default() })),
};

/// Shares by weight.
pub const FAIR: About = About {
    name: "fair",
    idea: "everybody has devices in proportion to its weight",
    options: &[],
    bad_when: "jobs are many, so that all run and all run long, and restarts are expensive",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: true },
    make: |_| Ok(Box::new(Equi { weighted: true, table: AllocationState::default() })),
};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Equi {
    weighted: bool,
    table: AllocationState,
}

impl Policy for Equi {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, changes, model, .. } = *input;
        self.table.follow(view, changes, model);
        let targets = self.deal(view);
        let rule = if self.weighted { Rule::WeightedShares } else { Rule::EqualShares };
        self.table.enact(view, targets, rule, None)
    }
}

impl Equi {
    fn deal(&self, view: &ClusterView) -> Vec<Target> {
        let mut free = self.table.devices();
        let mut targets: Vec<Target> = Vec::new();
        for &job in view.jobs.keys() {
            if let Some(target) = self.first(view, job, &free) {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
        let share = |target: &Target| {
            let weight = if self.weighted { view.jobs[&target.job].job.weight } else { 1.0 };
            bits(f64::from(target.devices) / weight)
        };
        let entries = targets.iter().enumerate().map(|(place, target)| Reverse((share(target), place)));
        let mut heap: BinaryHeap<_> = entries.collect();
        while let Some(Reverse((_, place))) = heap.pop() {
            let target = &mut targets[place];
            let device_type = usize::from(target.device_type);
            let Some(next) = self.table.curves(target.job)[device_type].next(target.devices) else {
                continue;
            };
            // Less is free later on, so one that does not fit now never will.
            let Some(left) = free[device_type].checked_sub(next - target.devices) else { continue };
            (free[device_type], target.devices) = (left, next);
            heap.push(Reverse((share(target), place)));
        }
        targets
    }

    /// A job's first devices: the fewest that it runs on, of the type with most left.
    fn first(&self, view: &ClusterView, job: JobId, free: &[u32]) -> Option<Target> {
        let curves = self.table.curves(job);
        let held = held_type(view, &view.jobs[&job]).map(usize::from);
        let offer = |device_type: usize| {
            let devices = curves[device_type].next(0).filter(|&devices| devices <= free[device_type])?;
            let stays = if held == Some(device_type) { 2.0 } else { 1.0 };
            let target = Target { job, device_type: device_type as u16, devices };
            Some((f64::from(free[device_type]) * stays, target))
        };
        best((0..free.len()).filter_map(offer))
    }
}
