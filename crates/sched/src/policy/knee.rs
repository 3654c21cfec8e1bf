//! KNEE: every job on as many devices as still pay, those that need few first.
//!
//! # Idea
//!
//! A job's knee is the fewest devices beyond which one more shortens its run time by less than a given part. Jobs are
//! served in the order of their knees, each with its knee, or, where fewer are free, with those of them that make it
//! fastest. No job gets more, even if devices stand idle.
//!
//! # Source
//!
//! As in the comparisons of Lin, Paolieri, Chou, Golubchik, MASCOTS 2018, which do not print the limit: a tenth here.
//! The order of arrival decides between equal knees. Of several types of device a job takes that on which it is
//! fastest.
//!
//! # Reads
//!
//! The model's speed on every number of devices; nothing of remaining work.
//!
//! # Complexity
//!
//! O(jobs (log jobs + devices of the largest job)) for an event.
//!
//! # Bad when
//!
//! Job sizes differ: a long job with a small knee goes before a short one with a large knee. Few jobs leave devices
//! idle.

use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, types};
use crate::curve::Curve;

/// KNEE.
pub const ABOUT: About = About {
    name: "knee",
    idea: "every job gets as many devices as still pay, those that need few first",
    options: &[("gain", 0.1, "part of the run time by which one more device must shorten it")],
    bad_when: "job sizes differ much, or jobs are few: devices beyond the knees stand idle",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| {
        let gain = options.get("gain");
        if !(0.0..1.0).contains(&gain) {
            return Err(options.out_of_range("gain", "a number from 0 to less than 1"));
        }
        Ok(Box::new(Knee { gain, table: AllocationState::default() }))
    },
};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Knee {
    gain: f64,
    table: AllocationState,
}

impl Policy for Knee {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, changes, model, .. } = *input;
        self.table.follow(view, changes, model);
        let mut free = self.table.devices();
        let mut order: Vec<_> = view.jobs.keys().map(|&id| (self.knee(self.table.curves(id)), id)).collect();
        order.sort_unstable();
        let mut targets = Vec::new();
        for (_, job) in order {
            let curves = self.table.curves(job);
            let offer = |device_type: usize| {
                let curve = &curves[device_type];
                let devices = curve.fastest(free[device_type].min(knee(curve, self.gain)));
                let target = Target { job, device_type: device_type as u16, devices };
                (devices > 0).then(|| (curve.rate(devices), target))
            };
            if let Some(target) = best(types(view, &view.jobs[&job]).filter_map(offer)) {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
        self.table.enact(view, targets, Rule::Knee, None)
    }
}

impl Knee {
    /// The knee on the type where the job is fastest with it.
    fn knee(&self, curves: &[Curve]) -> u32 {
        let knees = curves.iter().map(|curve| (curve, knee(curve, self.gain)));
        best(knees.map(|(curve, knee)| (curve.rate(knee), knee))).unwrap_or(0)
    }
}

/// The fewest devices beyond which one more saves less than the part `gain` of the run time, whether it is the next one
/// or lies beyond a dip; 0 for a job that cannot run.
fn knee(curve: &Curve, gain: f64) -> u32 {
    let mut knee = curve.next(0).unwrap_or(0);
    while let Some(more) = curve.next_faster(knee, u32::MAX) {
        let saved = 1.0 - curve.rate(knee) / curve.rate(more);
        if saved < gain * f64::from(more - knee) {
            break;
        }
        knee = more;
    }
    knee
}
