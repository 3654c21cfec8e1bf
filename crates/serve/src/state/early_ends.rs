//! What policies are told of the work that remains.

use bellwether_core::cluster::JobId;
use bellwether_core::knowledge::Knowledge;
use bellwether_model::early_end::Departure;

use super::{Record, State};
use crate::ledger::Outcome;

/// Policies hear of a law that says of a whole job that it is this part shorter or longer than before.
const TELLING: f64 = 0.01;

impl State {
    /// What policies are told of the work that remains of a job, of which `done` is done. What is promised by a
    /// deadline is promised for all of the work.
    pub(super) fn remaining(&self, record: &Record, done: f64) -> f64 {
        let (work, submitted) = (record.work(), &record.submitted);
        let may_end_early = submitted.deadline_s.is_none() && work > 0.0;
        let rest = may_end_early.then(|| self.early_ends.mean_rest(&submitted.kind, done / work)).flatten();
        rest.map_or(work - done, |rest| work * rest)
    }

    /// Policies are told this of the work that remains, from now on; a fresh one decides.
    pub(super) fn choose_remaining(&mut self, remaining: Knowledge) {
        self.early_ends.remaining = remaining;
        self.begin_policy();
        let all: Vec<JobId> = self.view.jobs.keys().copied().collect();
        self.tell_remaining(all);
    }

    /// A job ended, and tells how its kind does.
    pub(super) fn learn_end(&mut self, job: JobId) {
        let Some(record) = self.jobs.get(&job) else { return };
        let Some(end) = record.end.as_ref().filter(|_| record.started_s.is_some()) else { return };
        let how = match end.outcome {
            // A job that its user takes back has ended early, too.
            Outcome::Finished | Outcome::Cancelled => Departure::Ended,
            Outcome::Failed => Departure::Lost,
            Outcome::Refused => return,
        };
        let kind = record.submitted.kind.clone();
        let part = end.step as f64 / record.total_steps.max(1) as f64;
        let same: Vec<JobId> = self.view.jobs.keys().copied().filter(|id| self.is_of(*id, &kind)).collect();
        let done = |id: &JobId| {
            let (seen, record) = (self.view.jobs.get(id)?, self.jobs.get(id)?);
            (seen.done > 0.0).then(|| seen.done / record.work())
        };
        let running: Vec<f64> = same.iter().filter_map(done).collect();
        if self.early_ends.observe(kind, part, how, &running) > TELLING {
            self.tell_remaining(same);
        }
    }

    fn is_of(&self, job: JobId, kind: &str) -> bool {
        self.jobs.get(&job).is_some_and(|record| record.submitted.kind == kind)
    }

    fn tell_remaining(&mut self, jobs: Vec<JobId>) {
        for job in jobs {
            let done = self.view.jobs.get(&job).map(|seen| seen.done);
            let Some((done, record)) = done.zip(self.jobs.get(&job)) else { continue };
            let remaining = Some(self.remaining(record, done));
            if let Some(seen) = self.view.jobs.get_mut(&job).filter(|seen| seen.remaining != remaining) {
                seen.remaining = remaining;
                self.changes.revised.push(job);
            }
        }
    }
}
