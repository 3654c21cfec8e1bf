//! Whose turn it is: shares against the time that jobs had.

use std::collections::BTreeMap;

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use serde::{Deserialize, Serialize};

use super::Known;
use crate::draft::Draft;
use crate::target::held_type;

/// Who ran where for how long since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// Seconds of each job on each type.
    times_s: BTreeMap<JobId, Vec<f64>>,
    /// Seconds of all jobs on each type, also of those that have ended.
    totals_s: Vec<f64>,
    /// Seconds that each job should have had and had not, by type, until the last reset.
    owed_s: BTreeMap<JobId, Vec<f64>>,
    reset_s: Option<f64>,
    /// Who runs in this round, on which type, and since when that is not yet counted.
    running: BTreeMap<JobId, (usize, f64)>,
}

/// A job and a type on which it might run.
#[derive(Debug, Clone, Copy)]
struct Turn {
    priority: f64,
    owed_s: f64,
    share: f64,
    job: JobId,
    kind: usize,
}

/// Priority of a share of which nothing was had, in multiples of the share.
const FIRST: f64 = 1e9;

impl Ledger {
    pub(super) fn anybody_runs(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// When times were last reset; long ago if never.
    pub(super) fn reset_s(&self) -> f64 {
        self.reset_s.unwrap_or(f64::NEG_INFINITY)
    }

    /// A job runs no more in this round.
    pub(super) fn stop(&mut self, now_s: f64, job: JobId) {
        if let Some((kind, since_s)) = self.running.remove(&job) {
            self.add(job, kind, now_s - since_s);
        }
    }

    /// A job is gone.
    pub(super) fn leave(&mut self, now_s: f64, job: JobId) {
        self.stop(now_s, job);
        self.times_s.remove(&job);
        self.owed_s.remove(&job);
    }

    /// Counts what was run until now.
    pub(super) fn count(&mut self, now_s: f64) {
        for (job, (kind, since_s)) in std::mem::take(&mut self.running) {
            self.add(job, kind, now_s - since_s);
        }
    }

    fn add(&mut self, job: JobId, kind: usize, seconds: f64) {
        let types = self.totals_s.len().max(kind + 1);
        self.totals_s.resize(types, 0.0);
        self.totals_s[kind] += seconds;
        let times_s = self.times_s.entry(job).or_default();
        times_s.resize(types.max(times_s.len()), 0.0);
        times_s[kind] += seconds;
    }

    /// Writes down what jobs are owed, and forgets who had what.
    pub(super) fn reset(&mut self, now_s: f64, jobs: &BTreeMap<JobId, Known>) {
        let elapsed_s = self.reset_s.map_or(0.0, |reset_s| now_s - reset_s);
        for (&job, known) in jobs {
            let owed_s = self.owed_s.entry(job).or_insert_with(|| vec![0.0; known.shares.len()]);
            for (kind, owed_s) in owed_s.iter_mut().enumerate() {
                let had_s = self.times_s.get(&job).and_then(|times_s| times_s.get(kind)).copied();
                *owed_s += known.shares[kind] * elapsed_s - had_s.unwrap_or(0.0);
            }
        }
        self.times_s.clear();
        self.totals_s.clear();
        self.reset_s = Some(now_s);
    }

    /// Who runs in the next round and on which type, if `free` devices of each type are there for all.
    pub(super) fn turns(&self, jobs: &BTreeMap<JobId, Known>, mut free: Vec<u32>) -> BTreeMap<JobId, usize> {
        let mut turns = Vec::with_capacity(jobs.len() * free.len());
        for (&job, known) in jobs {
            let (times_s, owed_s) = (self.times_s.get(&job), self.owed_s.get(&job));
            let of = |list: Option<&Vec<f64>>, kind: usize| {
                list.and_then(|all| all.get(kind)).copied().unwrap_or(0.0)
            };
            for (kind, &share) in
                known.shares.iter().enumerate().filter(|(kind, _)| known.speeds[*kind] > 0.0)
            {
                let time_s = of(times_s, kind);
                let priority =
                    if time_s > 0.0 { share * self.totals_s[kind] / time_s } else { share * FIRST };
                turns.push(Turn { priority, owed_s: of(owed_s, kind), share, job, kind });
            }
        }
        turns.sort_by(|a, b| {
            let by_value = b.priority.total_cmp(&a.priority).then(b.owed_s.total_cmp(&a.owed_s));
            by_value.then(b.share.total_cmp(&a.share)).then(a.job.cmp(&b.job)).then(a.kind.cmp(&b.kind))
        });
        let mut chosen = BTreeMap::new();
        for turn in turns {
            let devices = jobs[&turn.job].devices;
            if devices <= free[turn.kind] && !chosen.contains_key(&turn.job) {
                free[turn.kind] -= devices;
                chosen.insert(turn.job, turn.kind);
            }
        }
        chosen
    }

    /// These run from now on.
    pub(super) fn run(&mut self, now_s: f64, chosen: &BTreeMap<JobId, usize>) {
        self.running = chosen.iter().map(|(&job, &kind)| (job, (kind, now_s))).collect();
    }
}

/// Moves jobs to the types that were chosen for them. Who is there already stays where it is; wide gangs are placed first,
/// so that they need few nodes.
pub(super) fn enact(
    view: &ClusterView,
    chosen: &BTreeMap<JobId, usize>,
    jobs: &BTreeMap<JobId, Known>,
    draft: &mut Draft,
) {
    let kind_of = |seen: &JobView| held_type(view, seen).map(usize::from);
    let stays = |id: &JobId, seen: &JobView| kind_of(seen) == chosen.get(id).copied();
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| seen.is_running()) {
        if !chosen.contains_key(&id) {
            draft.stop(id, seen);
        } else if !stays(&id, seen) {
            draft.lift(id, seen);
        }
    }
    let mut placed: Vec<(JobId, usize)> = chosen
        .iter()
        .map(|(&id, &kind)| (id, kind))
        .filter(|(id, _)| !(view.jobs[id].is_running() && stays(id, &view.jobs[id])))
        .collect();
    placed.sort_by_key(|(id, _)| (std::cmp::Reverse(jobs[id].devices), *id));
    for (id, kind) in placed {
        let place = draft.board().place(kind as u16, jobs[&id].devices);
        let allocation = place.expect("turns were given to as many as there is room for");
        if view.jobs[&id].is_running() {
            draft.change(id, allocation, None);
        } else {
            draft.start(id, allocation, None);
        }
    }
}
