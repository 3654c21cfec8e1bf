//! A queue shows its policy jobs as narrow as the queue is, and as what is known of their speed lets them be.

use std::sync::Arc;

use bellwether_core::cluster::{Job, JobId, JobView};
use bellwether_core::policy::PolicyInput;

use super::leaf::Leaf;
use super::wide::{most_known, most_within};
use crate::speed::Speeds;

impl Leaf {
    /// How a job is shown to the policy: it never holds more than the queue may.
    pub(super) fn shown(&mut self, id: JobId, seen: &JobView) -> JobView {
        let mut seen = seen.clone();
        let most = most_within(&seen.job, &self.limits);
        self.wide.forget(id);
        if seen.job.max_devices > most && seen.job.min_devices <= most {
            Arc::make_mut(&mut seen.job).max_devices = most;
            self.wide.jobs.insert(id);
            self.wide.new.insert(id);
        }
        seen
    }

    /// Lets jobs that are wider than the queue ask for what the model can speak of: a gang would otherwise wait for a
    /// number of devices on which its speed is not known. Where none is known, they ask for what the queue may
    /// hold.
    pub(super) fn narrow(&mut self, input: &PolicyInput<'_>, speeds: &mut Speeds) {
        while let Some(id) = self.wide.new.pop_first() {
            let Some(seen) = self.view.jobs.get_mut(&id).or(self.hidden.get_mut(&id)) else { continue };
            let most = most_within(&seen.job, &self.limits);
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
