//! HELL: jobs that are small and use their devices well go first, each on the number of devices that suits it best.
//!
//! # Idea
//!
//! Speed-up s(k) and efficiency e(k) = s(k)/k are measured against the fewest devices that a job runs on. Of all
//! jobs and numbers k of devices that are still free, take again and again the pair with the least ratio of remaining
//! time T(k) to e(k). Then give what is left over to those who need the fewest more to become as fast as they can.
//!
//! # Source
//!
//! Lin, Paolieri, Chou, Golubchik, A model-based approach to streamlining distributed training for asynchronous SGD,
//! MASCOTS 2018, as its authors' scheduler does it. Of several types of device the ratio decides, too; a gang stays
//! within one.
//!
//! # Reads
//!
//! Remaining work (where it is unknown, all count alike) and the model's speed on every number of devices.
//!
//! # Complexity
//!
//! O(jobs log jobs) for an event; the best number of devices up to any limit is looked up.
//!
//! # Bad when
//!
//! Large jobs wait as long as small ones keep coming. Every event may change all jobs' devices, so restarts must be
//! cheap.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, types};
use crate::greedy::bits;

/// HELL.
pub const ABOUT: About = About {
    name: "hell",
    idea: "small jobs that use their devices well go first, each on the number that suits it best",
    options: &[],
    bad_when: "large jobs wait while small ones keep coming, and restarts are expensive",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Hell::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Hell {
    table: AllocationState,
}

impl Policy for Hell {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.table.follow(view, changes, model);
        let mut free = self.table.devices();
        let mut targets = self.choose(now_s, view, &mut free);
        self.fill(&mut targets, &mut free);
        self.table.enact(view, targets, Rule::SpeedupRatio, None)
    }
}

impl Hell {
    /// The pair of job and devices with the least ratio again and again.
    ///
    /// As fewer are free a job's least ratio only grows, so one whose best number is gone is put back with its next.
    fn choose(&self, now_s: f64, view: &ClusterView, free: &mut [u32]) -> Vec<Target> {
        let entry = |id: JobId, seen: &JobView, free: &[u32]| {
            let (ratio, target) = self.offer(now_s, view, id, seen, free)?;
            Some(Reverse((bits(ratio), id, target.device_type, target.devices)))
        };
        let entries = view.jobs.iter().filter_map(|(&id, seen)| entry(id, seen, free));
        let mut heap: BinaryHeap<_> = entries.collect();
        let mut targets = Vec::new();
        while free.iter().any(|&free| free > 0) {
            let Some(Reverse((_, job, device_type, devices))) = heap.pop() else { break };
            if devices > free[usize::from(device_type)] {
                heap.extend(entry(job, &view.jobs[&job], free));
                continue;
            }
            free[usize::from(device_type)] -= devices;
            targets.push(Target { job, device_type, devices });
        }
        targets
    }

    fn offer(
        &self,
        now_s: f64,
        view: &ClusterView,
        id: JobId,
        seen: &JobView,
        free: &[u32],
    ) -> Option<(f64, Target)> {
        let remaining = seen.remaining(now_s).unwrap_or(1.0);
        let curves = self.table.curves(id);
        let offer = |device_type: usize| {
            let devices = curves[device_type].cheapest(free[device_type]);
            let ratio = remaining * curves[device_type].cost(devices);
            let target = Target { job: id, device_type: device_type as u16, devices };
            (devices > 0).then_some((-ratio, (ratio, target)))
        };
        best(types(view, seen).filter_map(offer))
    }

    /// The job that needs the fewest more to be as fast as it can with what is free gets them.
    fn fill(&self, targets: &mut [Target], free: &mut [u32]) {
        for (device_type, free) in free.iter_mut().enumerate() {
            let extra = |target: &Target, free: u32| {
                let curve = &self.table.curves(target.job)[device_type];
                curve.fastest(target.devices.saturating_add(free)).saturating_sub(target.devices)
            };
            let of_type = targets
                .iter()
                .enumerate()
                .filter(|(_, target)| usize::from(target.device_type) == device_type);
            let mut wishes: BTreeSet<(u32, JobId, usize)> =
                of_type.map(|(place, target)| (extra(target, *free), target.job, place)).collect();
            while let Some((devices, _, place)) = wishes.pop_first() {
                targets[place].devices += devices;
                *free -= devices;
                // A job that wanted more than is left wants something else now.
                for (_, job, place) in wishes.split_off(&(*free + 1, JobId(0), 0)) {
                    wishes.insert((extra(&targets[place], *free), job, place));
                }
            }
        }
    }
}
