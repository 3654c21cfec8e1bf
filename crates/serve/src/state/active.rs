//! Few of many jobs do anything: which they are, kept up to date line by line, so that work at every turn costs what is
//! active and not what exists.

use std::collections::BTreeSet;

use bellwether_core::cluster::{JobId, JobView};

use super::State;

/// Jobs that something is done with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Active {
    /// Those that hold slots by the last decision.
    pub holding: BTreeSet<JobId>,
    /// Those that are cancelled, and have not ended.
    pub closing: BTreeSet<JobId>,
    /// Those that have not ended, and have machines of their own.
    pub elsewhere: BTreeSet<JobId>,
    /// Those that may have become one, or be one no more.
    touched: BTreeSet<JobId>,
}

impl State {
    /// Something is said of a job.
    pub(super) fn touch(&mut self, job: JobId) {
        self.touched.insert(job);
        self.active.touched.insert(job);
    }

    /// After a line: what the jobs that it touched are now.
    pub(super) fn sort_touched(&mut self) {
        while let Some(job) = self.active.touched.pop_first() {
            let holds = self.view.jobs.get(&job).is_some_and(JobView::is_running);
            let open = self.jobs.get(&job).filter(|record| record.end.is_none());
            let closes = open.is_some_and(|record| record.cancelled);
            let is_elsewhere = open.is_some_and(|record| record.submitted.provision.is_some());
            sort(&mut self.active.holding, job, holds);
            sort(&mut self.active.closing, job, closes);
            sort(&mut self.active.elsewhere, job, is_elsewhere);
        }
    }
}

fn sort(set: &mut BTreeSet<JobId>, job: JobId, is_in: bool) {
    if is_in {
        set.insert(job);
    } else {
        set.remove(&job);
    }
}
