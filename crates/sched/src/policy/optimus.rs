//! Optimus: every job runs on a few devices, and each further device goes to the job that it saves most time.
//!
//! # Idea
//!
//! In order of arrival each job gets the fewest devices that it runs on, as long as there are any. Then one job after
//! another gets the next number of devices that it can use: always the one whose remaining time becomes shorter by most
//! per device. A job that would become slower gets no more.
//!
//! # Source
//!
//! Peng et al., Optimus, EuroSys 2018. A job that keeps its number of devices keeps its place, as there; the others are
//! placed on few nodes, the largest first, as everywhere here. It decides whenever jobs or devices come or go, and not
//! every ten minutes.
//!
//! # Reads
//!
//! Order of arrival, remaining work (where it is unknown, all count alike) and the model's speed at the job's own
//! batch.
//!
//! # Complexity
//!
//! O((jobs + devices) log jobs) for an event.
//!
//! # Bad when
//!
//! Restarts are expensive: every event may change many jobs' devices. Long jobs save most time, so short ones stay
//! narrow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bellwether_core::cluster::ClusterView;
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Promises, Reason, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, types};
use crate::curve::Curve;

/// Optimus.
pub const ABOUT: About = About {
    name: "optimus",
    idea: "everybody runs on a few devices, and each further one goes where it saves most time",
    options: &[],
    bad_when: "restarts are expensive, or short jobs should go first",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: true },
    make: |_| Ok(Box::new(Optimus::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Optimus {
    table: AllocationState,
}

impl Policy for Optimus {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        let speeds_differ = self.table.follow(view, changes, model);
        if !(speeds_differ || is_due(changes)) {
            return nothing_new(view);
        }
        let mut free = self.table.devices();
        let mut targets = Vec::new();
        for (&job, seen) in &view.jobs {
            let curves = self.table.curves(job);
            let start = types(view, seen).find_map(|device_type| {
                let devices = curves[device_type].next(0).filter(|devices| *devices <= free[device_type])?;
                Some(Target { job, device_type: device_type as u16, devices })
            });
            if let Some(target) = start {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
        self.grow(now_s, view, &mut targets, &mut free);
        self.table.enact(view, targets, Rule::MarginalGain, None)
    }
}

/// Whether jobs or devices came or went. That less work is known to remain is not a reason to restart a job.
pub(super) fn is_due(changes: &Changes) -> bool {
    let Changes { ended, arrived, lost, nodes, .. } = changes;
    !(ended.is_empty() && arrived.is_empty() && lost.is_empty() && nodes.is_empty())
}

/// Every job keeps what it holds.
pub(super) fn nothing_new(view: &ClusterView) -> Decision {
    let waiting = view.jobs.values().filter(|seen| !seen.is_running()).count() as u32;
    let reason =
        Reason { rule: Rule::MarginalGain, started: 0, stopped: 0, resized: 0, waiting, reclaimed: 0 };
    Decision { actions: Vec::new(), reason, next_wakeup_s: None }
}

impl Optimus {
    /// Gives devices that are left to whom they save most time.
    fn grow(&self, now_s: f64, view: &ClusterView, targets: &mut [Target], free: &mut [u32]) {
        let wish = |place: usize, target: &Target, free: u32| {
            let curve = &self.table.curves(target.job)[usize::from(target.device_type)];
            let remaining = view.jobs[&target.job].remaining(now_s).unwrap_or(1.0);
            let (devices, saved_s) = saving(curve, target.devices, free)?;
            let gain = remaining * saved_s;
            // The bits of floats that are not negative are in their order; of equal ones who came first.
            (gain > 0.0).then(|| (gain.to_bits(), Reverse(place), devices))
        };
        let mut heap: BinaryHeap<_> = targets
            .iter()
            .enumerate()
            .filter_map(|(place, target)| wish(place, target, free[usize::from(target.device_type)]))
            .collect();
        while let Some((_, Reverse(place), devices)) = heap.pop() {
            let target = &mut targets[place];
            let free = &mut free[usize::from(target.device_type)];
            // Free devices only become fewer: a job that cannot have its next number now wishes for a smaller one.
            if devices - target.devices <= *free {
                *free -= devices - target.devices;
                target.devices = devices;
            }
            heap.extend(wish(place, target, *free));
        }
    }
}

/// The next number of devices that makes a job faster, with at most `free` more, and what each of them saves of a unit
/// of work, in seconds.
fn saving(curve: &Curve, devices: u32, free: u32) -> Option<(u32, f64)> {
    let next = curve.next_faster(devices, devices.saturating_add(free))?;
    let saved_s = curve.rate(devices).recip() - curve.rate(next).recip();
    Some((next, saved_s / f64::from(next - devices)))
}
