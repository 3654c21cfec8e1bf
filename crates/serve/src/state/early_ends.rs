//! What is learnt of jobs that end before their work is done, and what policies are told of the work that remains.

use std::collections::BTreeMap;

use bellwether_core::cluster::JobId;
use bellwether_core::knowledge::Knowledge;
use bellwether_model::early_end::{Departure, Ends};
use serde::{Deserialize, Serialize};

use super::{Record, State};
use crate::ledger::Outcome;

/// Policies hear of a law that says of a whole job that it is this part shorter or longer than before.
const TELLING: f64 = 0.01;

/// What is learnt of early ends, and whether policies are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyEnds {
    /// What policies are told of the work that remains.
    pub remaining: Knowledge,
    /// How jobs ended, by their kind.
    kinds: BTreeMap<String, Ends>,
}

impl Default for EarlyEnds {
    fn default() -> Self {
        EarlyEnds { remaining: Knowledge::Nominal, kinds: BTreeMap::new() }
    }
}

impl EarlyEnds {
    /// The same with what follows from it.
    pub(super) fn restored(mut self) -> EarlyEnds {
        self.kinds.values_mut().for_each(|ends| *ends = std::mem::take(ends).restored());
        self
    }

    /// How jobs of this kind ended so far.
    pub fn of(&self, kind: &str) -> Option<&Ends> {
        self.kinds.get(kind)
    }

    /// What policies are told of the work that remains of a job of `work`, of which `done` is done. What is promised by
    /// a deadline is promised for all of the work.
    pub(super) fn remaining(&self, record: &Record, done: f64) -> f64 {
        let work = record.work();
        let has_deadline = record.submitted.deadline_s.is_some();
        match self.kinds.get(&record.submitted.kind) {
            Some(ends) if self.remaining == Knowledge::Expected && !has_deadline && work > 0.0 => {
                work * ends.mean_rest(done / work)
            }
            _ => work - done,
        }
    }
}

impl State {
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
        let ends = self.early_ends.kinds.entry(kind).or_default();
        let before = ends.mean_rest(0.0);
        ends.observe(part, how, &running);
        if (ends.mean_rest(0.0) / before - 1.0).abs() > TELLING {
            self.tell_remaining(same);
        }
    }

    fn is_of(&self, job: JobId, kind: &str) -> bool {
        self.jobs.get(&job).is_some_and(|record| record.submitted.kind == kind)
    }

    fn tell_remaining(&mut self, jobs: Vec<JobId>) {
        for job in jobs {
            let Some((seen, record)) = self.view.jobs.get_mut(&job).zip(self.jobs.get(&job)) else {
                continue;
            };
            let remaining = Some(self.early_ends.remaining(record, seen.done));
            if seen.remaining != remaining {
                seen.remaining = remaining;
                self.changes.revised.push(job);
            }
        }
    }
}
