//! heSRPT: all jobs run at once, and small ones have more devices, by the law that is best for a speed-up of k^p.
//!
//! # Idea
//!
//! If k devices are k^p times as fast as one for every job, and m jobs are there, the mean completion time is least
//! when the i-th largest has the part (i/m)^(1/(1-p)) - ((i-1)/m)^(1/(1-p)) of all devices.
//!
//! # Source
//!
//! Berg, Vesilo, Harchol-Balter, heSRPT: parallel scheduling to minimize mean slowdown, Performance Evaluation 2020.
//! Parts become whole devices by rounding their running sums to the nearest whole, so that they add up to all. A job
//! whose part is below what it needs at least waits, and of a part beyond what makes it fastest the rest is free. What
//! is free goes, smallest job first, to those who wait and then to those who can still become faster. Of several types
//! of device the parts are those among the jobs of a type: the jobs are shared out, smallest first, each to the type
//! that has most devices left over by the fewest that the others need; a running job leaves its type only for twice as
//! many.
//!
//! # Reads
//!
//! Remaining work (where it is unknown, all count alike), and the model for what a job can use.
//!
//! # Complexity
//!
//! O(jobs log jobs) for an event.
//!
//! # Bad when
//!
//! Speed-up is not k^p with the given p, or new jobs keep coming: the law is the best only for jobs that are all there.
//! Every event changes all jobs' devices, so restarts must be cheap.

use std::collections::BTreeSet;

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, held_type, types};
use crate::greedy::{Place, bits};

/// heSRPT.
pub const ABOUT: About = About {
    name: "hesrpt",
    idea: "everybody runs at once, and small jobs have more devices, best where k devices are k^p times as fast",
    options: &[("p", 0.5, "exponent of the speed-up, above 0 and below 1")],
    bad_when: "speed-up is another, jobs keep coming, or restarts are expensive",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| {
        let p = options.get("p");
        if !(p > 0.0 && p < 1.0) {
            return Err(options.out_of_range("p", "a number above 0 and below 1"));
        }
        Ok(Box::new(HeSrpt { exponent: 1.0 / (1.0 - p), table: AllocationState::default() }))
    },
};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct HeSrpt {
    /// 1 / (1 - p).
    exponent: f64,
    table: AllocationState,
}

impl Policy for HeSrpt {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.table.follow(view, changes, model);
        let mut free = self.table.devices();
        let place = |(&id, seen)| (bits(self.table.size(id, seen, now_s)), id);
        let mut order: Vec<Place> = view.jobs.iter().map(place).collect();
        order.sort_unstable();
        let order: Vec<JobId> = order.into_iter().map(|(_, id)| id).collect();
        let mut targets = self.parts(view, &order, &mut free);
        self.start_others(view, &order, &mut targets, &mut free);
        for target in &mut targets {
            let device_type = usize::from(target.device_type);
            let curve = &self.table.curves(target.job)[device_type];
            let more = curve.fastest(target.devices.saturating_add(free[device_type]));
            let extra = more.saturating_sub(target.devices);
            free[device_type] -= extra;
            target.devices += extra;
        }
        self.table.enact(view, targets, Rule::ShortestRemaining, None)
    }
}

impl HeSrpt {
    /// The parts of jobs that are in `order`, smallest first; entries of those who wait are missing.
    fn parts(&self, view: &ClusterView, order: &[JobId], free: &mut [u32]) -> Vec<Target> {
        let groups = self.share_out(view, order, free);
        let mut targets = Vec::new();
        for (device_type, group) in groups.iter().enumerate() {
            let all = f64::from(free[device_type]);
            let sum_to = |rank: usize| {
                (all * libm::pow(rank as f64 / group.len() as f64, self.exponent)).round() as u32
            };
            for (place, &job) in group.iter().enumerate() {
                let rank = group.len() - place;
                let part = sum_to(rank) - sum_to(rank - 1);
                let devices = self.table.curves(job)[device_type].fastest(part);
                if devices > 0 {
                    targets.push(Target { job, device_type: device_type as u16, devices });
                    free[device_type] -= devices;
                }
            }
        }
        targets
    }

    /// Jobs by type of device, smallest first.
    fn share_out(&self, view: &ClusterView, order: &[JobId], devices: &[u32]) -> Vec<Vec<JobId>> {
        let mut left: Vec<f64> = devices.iter().map(|&devices| f64::from(devices)).collect();
        let mut groups = vec![Vec::new(); devices.len()];
        for &job in order {
            let held = held_type(view, &view.jobs[&job]).map(usize::from);
            let curves = self.table.curves(job);
            let offer = |device_type: usize| {
                let least = curves[device_type].next(0).filter(|&least| least <= devices[device_type])?;
                let stays = if held == Some(device_type) { left[device_type].abs() } else { 0.0 };
                Some((left[device_type] + stays, (device_type, least)))
            };
            if let Some((device_type, least)) = best((0..devices.len()).filter_map(offer)) {
                left[device_type] -= f64::from(least);
                groups[device_type].push(job);
            }
        }
        groups
    }

    /// Gives jobs without devices the fewest that they need where those are free.
    fn start_others(&self, view: &ClusterView, order: &[JobId], targets: &mut Vec<Target>, free: &mut [u32]) {
        let started: BTreeSet<JobId> = targets.iter().map(|target| target.job).collect();
        for &job in order.iter().filter(|job| !started.contains(job)) {
            let curves = self.table.curves(job);
            let least = |device_type: usize| {
                let least = curves[device_type].next(0).filter(|&least| least <= free[device_type])?;
                Some(Target { job, device_type: device_type as u16, devices: least })
            };
            if let Some(target) = types(view, &view.jobs[&job]).find_map(least) {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
    }
}
