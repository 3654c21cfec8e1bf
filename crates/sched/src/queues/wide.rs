//! Jobs whose authors let them have more devices than their queue may hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use bellwether_core::cluster::{ClusterView, Job, JobId, JobView};
use bellwether_core::policy::PolicyInput;
use bellwether_core::prediction::StepModel;

use super::leaf::Leaf;
use crate::speed::Speeds;

/// The most devices of one type within `limits`, by type, of which `model` can speak for this job; `None` where that is
/// no number that the job may have.
pub fn most_known(
    speeds: &mut Speeds,
    (model, view): (&dyn StepModel, &ClusterView),
    job: &Job,
    limits: &[u32],
) -> Option<u32> {
    let mut knows = |devices: u32| {
        let mut kinds = (0_u16..).zip(limits).filter(|(_, limit)| **limit >= devices).map(|(kind, _)| kind);
        kinds.any(|kind| speeds.rate(model, view, job, kind, devices).is_some_and(|rate| rate > 0.0))
    };
    let most = most(job, limits).min(job.max_devices);
    (job.min_devices.max(1)..=most).rev().find(|devices| knows(*devices))
}

/// The most devices of one type that a job may hold within `limits`.
fn most(job: &Job, limits: &[u32]) -> u32 {
    let accepted = (0_u16..).zip(limits).filter(|(kind, _)| job.accepts(*kind));
    accepted.map(|(_, limit)| *limit).max().unwrap_or(u32::MAX)
}

/// Which jobs these are.
#[derive(Debug, Default)]
pub(super) struct Wide {
    jobs: BTreeSet<JobId>,
    /// Those of them of which it was not looked up yet how wide they can be.
    new: BTreeSet<JobId>,
}

impl Wide {
    /// A job is gone, or another one is known of it.
    pub(super) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.new.remove(&id);
    }
}

impl Leaf {
    /// How a job is shown to the policy: it never holds more than the queue may.
    pub(super) fn shown(&mut self, id: JobId, seen: &JobView) -> JobView {
        let mut seen = seen.clone();
        let most = most(&seen.job, &self.limits);
        self.wide.forget(id);
        if seen.job.max_devices > most && seen.job.min_devices <= most {
            Arc::make_mut(&mut seen.job).max_devices = most;
            self.wide.jobs.insert(id);
            self.wide.new.insert(id);
        }
        seen
    }

    /// Lets jobs that are wider than the queue ask for what the model can speak of: a gang would otherwise wait for a
    /// number of devices on which nobody knows how fast it is. Where none is known, they ask for what the queue may
    /// hold.
    pub(super) fn narrow(&mut self, input: &PolicyInput<'_>, speeds: &mut Speeds) {
        if input.changes.relearnt {
            self.wide.new.clone_from(&self.wide.jobs);
        }
        while let Some(id) = self.wide.new.pop_first() {
            let Some(seen) = self.view.jobs.get_mut(&id).or(self.hidden.get_mut(&id)) else { continue };
            let most = most(&seen.job, &self.limits);
            let mut job = Job { max_devices: most, ..Job::clone(&seen.job) };
            let known = most_known(speeds, (input.model, input.view), &job, &self.limits);
            // What it holds stays within its limits.
            job.max_devices = known.unwrap_or(most).max(seen.allocation.devices());
            if job.max_devices == seen.job.max_devices {
                continue;
            }
            seen.job = Arc::new(job);
            let is_known = self.view.jobs.contains_key(&id) && !self.changes.arrived.contains(&id);
            if is_known && !self.changes.revised.contains(&id) {
                self.changes.revised.push(id);
            }
            self.note(id);
        }
    }
}
