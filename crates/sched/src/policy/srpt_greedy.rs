//! Shortest remaining work first, each job on as many devices as make it fastest.
//!
//! # Idea
//!
//! In the order of what they have left, jobs get the fewest devices with which they are fastest, of those that are
//! left over by the jobs before them.
//!
//! # Source
//!
//! Schrage, A proof of the optimality of the shortest remaining processing time discipline, Operations Research 1968,
//! for one server; its greedy use on many is the usual baseline of elastic policies. What is left of a job is counted
//! in device-seconds on the fewest devices that it runs on, so that jobs of different models compare.
//!
//! # Reads
//!
//! Remaining work (where it is unknown, all count alike) and the model's speed on every number of devices.
//!
//! # Complexity
//!
//! O(jobs log jobs) for an event.
//!
//! # Bad when
//!
//! Speed-up is far from linear: the last devices that a job gets hardly help it, and would serve another better.

use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, types};
use crate::greedy::{Place, bits};

/// Shortest remaining work first, as fast as it can.
pub const ABOUT: About = About {
    name: "srpt_greedy",
    idea: "who has least left goes first, on as many devices as make it fastest",
    options: &[],
    bad_when: "speed-up is far from linear, and large jobs wait while small ones keep coming",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(SrptGreedy::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SrptGreedy {
    table: AllocationState,
}

impl Policy for SrptGreedy {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.table.follow(view, changes, model);
        let mut free = self.table.devices();
        let place = |(&id, seen)| (bits(self.table.size(id, seen, now_s)), id);
        let mut order: Vec<Place> = view.jobs.iter().map(place).collect();
        order.sort_unstable();
        let mut targets = Vec::new();
        for (_, job) in order {
            let curves = self.table.curves(job);
            let offer = |device_type: usize| {
                let devices = curves[device_type].fastest(free[device_type]);
                let target = Target { job, device_type: device_type as u16, devices };
                (devices > 0).then(|| (curves[device_type].rate(devices), target))
            };
            if let Some(target) = best(types(view, &view.jobs[&job]).filter_map(offer)) {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
        self.table.enact(view, targets, Rule::ShortestRemaining, None)
    }
}
