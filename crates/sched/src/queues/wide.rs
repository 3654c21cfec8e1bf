//! Jobs whose authors let them have more devices than their queue may hold.

use std::collections::BTreeSet;

use bellwether_core::cluster::{ClusterView, Job, JobId};
use bellwether_core::prediction::StepModel;

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
    let most = most_within(job, limits).min(job.max_devices);
    (job.min_devices.max(1)..=most).rev().find(|devices| knows(*devices))
}

/// The most devices of one type that a job may hold within `limits`, by type.
pub fn most_within(job: &Job, limits: &[u32]) -> u32 {
    let accepted = (0_u16..).zip(limits).filter(|(kind, _)| job.accepts(*kind));
    accepted.map(|(_, limit)| *limit).max().unwrap_or(u32::MAX)
}

/// Which jobs these are.
#[derive(Debug, Default)]
pub(super) struct Wide {
    pub(super) jobs: BTreeSet<JobId>,
    /// Those of them of which it was not looked up yet how wide they can be.
    pub(super) new: BTreeSet<JobId>,
}

impl Wide {
    /// A job holds other devices than before. It was shown at least as wide as what it held, which may be more than the
    /// queue may hold of the types that are left to it.
    pub(super) fn held_otherwise(&mut self, id: JobId) {
        if self.jobs.contains(&id) {
            self.new.insert(id);
        }
    }

    /// The model speaks of other numbers than before.
    pub(super) fn relearn(&mut self) {
        self.new.clone_from(&self.jobs);
    }

    /// A job is gone, or another one is known of it.
    pub(super) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.new.remove(&id);
    }
}
