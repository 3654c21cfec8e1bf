//! What an outlook is asked: the jobs that are there, and what the past says of those that may come.

use std::sync::Arc;

use bellwether_core::outlook::{Past, Present};

use super::{Record, State};
use crate::ledger::Outcome;
use crate::outlook::Question;

/// The past that counts, in seconds of the daemon's clock, and in jobs.
const PAST_S: f64 = 86_400.0;
const PAST_JOBS: usize = 1000;

/// A job that is submitted within this real time after another came with it.
const TOGETHER_S: f64 = 1.0;

impl State {
    /// The question of what becomes of the jobs from `now_s` on.
    pub fn question(&self, now_s: f64) -> Question {
        let mut view = self.view.clone();
        for (id, seen) in &mut view.jobs {
            seen.remaining = self.jobs.get(id).map(|record| record.work() - seen.done);
        }
        let remaining = self.early_ends.remaining;
        let present = Present { now_s, view, remaining, past: self.past(now_s) };
        Question { present, belief: self.belief.as_of_now(), deciding: self.deciding() }
    }

    fn past(&self, now_s: f64) -> Past {
        // Those with machines of their own come for no slots.
        let here = self.jobs.values().rev().filter(|record| record.submitted.provision.is_none());
        let recent = here.take(PAST_JOBS);
        let recent: Vec<&Record> = recent.take_while(|record| now_s - record.submitted_s <= PAST_S).collect();
        let together_s = TOGETHER_S * self.time_scale;
        // The newest comes first, so what follows a record came before it.
        let before_s = recent.iter().skip(1).map(|record| record.submitted_s).chain([f64::NEG_INFINITY]);
        let comes_alone = |(record, before_s): &(&&Record, f64)| record.submitted_s - before_s > together_s;
        let arrival = |(record, _): (&&Record, f64)| {
            let widest = self.widest(&record.submitted.device_types);
            (Arc::new(record.scheduled(widest, &self.machine)), record.work())
        };
        let arrivals = recent.iter().zip(before_s).filter(comes_alone).map(arrival).collect();
        let oldest_s = recent.last().map_or(now_s, |record| record.submitted_s);
        let over_s = if recent.len() == PAST_JOBS { now_s - oldest_s } else { now_s.min(PAST_S) };
        let parts = recent.iter().filter_map(|record| part(record)).collect();
        // What a decision cost that gave a job its first workers, as far as the last ones are remembered.
        let actions = self.decisions.iter().flat_map(|decision| &decision.actions);
        let starts = actions.filter(|action| action.from == 0 && action.to > 0);
        let starts_s = starts.filter_map(|action| Some(action.took_s? * self.time_scale)).collect();
        Past { arrivals, over_s, parts, starts_s }
    }
}

/// The kind of a job that trained and ended, and the part of its steps that it had done.
fn part(record: &Record) -> Option<(String, f64)> {
    let end = record.end.as_ref().filter(|end| end.outcome != Outcome::Refused)?;
    record.started_s?;
    let part = (end.step as f64 / record.total_steps.max(1) as f64).min(1.0);
    Some((record.submitted.kind.clone(), part))
}
