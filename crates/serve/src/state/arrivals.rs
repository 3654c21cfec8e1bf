//! Jobs come into the view of policies and leave it, or are elsewhere.

use bellwether_core::cluster::{Allocation, JobId, JobView};

use super::State;

impl State {
    /// A job waits for the policy, unless it has machines of its own.
    pub(super) fn arrive(&mut self, job: JobId, seen: JobView) {
        self.touch(job);
        if let Some(record) = self.jobs.get_mut(&job).filter(|record| record.submitted.provision.is_some()) {
            record.elsewhere = Some(seen);
            return;
        }
        self.view.jobs.insert(job, seen);
        self.changes.arrived.push(job);
    }

    /// Takes a job out of the view; what it held is free for the policy. Its last view is returned, without devices.
    pub(super) fn leave(&mut self, job: JobId) -> Option<JobView> {
        if let Some(seen) = self.jobs.get_mut(&job).and_then(|record| record.elsewhere.take()) {
            self.touch(job);
            return Some(seen);
        }
        let mut seen = self.view.jobs.remove(&job)?;
        let held = seen.allocation.clone();
        self.view.release(&held);
        seen.settle(&held, self.now_s);
        (seen.allocated_s, seen.rate) = (self.now_s, 0.0);
        // A job that the policy never heard of cannot end for it.
        let unheard = self.changes.arrived.iter().position(|id| *id == job);
        match unheard {
            Some(place) => drop(self.changes.arrived.remove(place)),
            None => self.changes.ended.push((job, seen.clone())),
        }
        self.changes.revised.retain(|id| *id != job);
        seen.allocation = Allocation::none();
        seen.progress_s = self.now_s;
        Some(seen)
    }
}
