//! Whose turn it is: shares against the time that jobs had.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{Allocation, ClusterView, JobId, JobView};
use serde::{Deserialize, Serialize};

use super::Known;
use crate::allocation::held_type;
use crate::decision_builder::DecisionBuilder;

/// A job that has its devices for itself, or two that share them, the earlier one first.
pub(super) type Crew = (JobId, Option<JobId>);

/// Shares of time by type, of every job alone and of the pairs that have any.
pub(super) type Shares = BTreeMap<Crew, Vec<f64>>;

/// The jobs of a crew.
fn members(crew: Crew) -> impl Iterator<Item = JobId> {
    std::iter::once(crew.0).chain(crew.1)
}

/// Whether a job is in a crew.
pub(super) fn has(crew: Crew, job: JobId) -> bool {
    crew.0 == job || crew.1 == Some(job)
}

/// Who ran where for how long since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// Seconds of each crew on each type.
    times_s: BTreeMap<Crew, Vec<f64>>,
    /// Seconds of all crews on each type, also of those that have ended.
    totals_s: Vec<f64>,
    /// Seconds that each crew should have had and had not, by type, until the last reset.
    owed_s: BTreeMap<Crew, Vec<f64>>,
    reset_s: Option<f64>,
    /// Who runs in this round, on which type, and since when that is not yet counted.
    running: BTreeMap<Crew, (usize, f64)>,
}

/// A crew and a type on which it might run.
#[derive(Debug, Clone, Copy)]
struct Turn {
    priority: f64,
    owed_s: f64,
    share: f64,
    crew: Crew,
    kind: usize,
}

/// Priority of a share of which nothing was had, in multiples of the share.
const FIRST: f64 = 1e9;

impl Ledger {
    pub(super) fn anybody_runs(&self) -> bool {
        !self.running.is_empty()
    }

    /// Jobs that run.
    pub(super) fn running(&self) -> usize {
        self.running.keys().map(|crew| members(*crew).count()).sum()
    }

    /// When times were last reset; long ago if never.
    pub(super) fn reset_s(&self) -> f64 {
        self.reset_s.unwrap_or(f64::NEG_INFINITY)
    }

    /// A job runs no more in this round; the job that shared its devices goes on alone.
    pub(super) fn stop(&mut self, now_s: f64, job: JobId) {
        let alone = (job, None);
        let is_there = self.running.contains_key(&alone);
        let crew =
            if is_there { Some(alone) } else { self.running.keys().copied().find(|crew| has(*crew, job)) };
        let Some((crew, (kind, since_s))) = crew.and_then(|crew| self.running.remove_entry(&crew)) else {
            return;
        };
        self.add(crew, kind, now_s - since_s);
        for other in members(crew).filter(|other| *other != job) {
            self.running.insert((other, None), (kind, now_s));
        }
    }

    /// A job is gone.
    pub(super) fn leave(&mut self, now_s: f64, job: JobId) {
        self.stop(now_s, job);
        self.times_s.retain(|crew, _| !has(*crew, job));
        self.owed_s.retain(|crew, _| !has(*crew, job));
    }

    /// Counts what was run until now.
    pub(super) fn count(&mut self, now_s: f64) {
        for (crew, (kind, since_s)) in std::mem::take(&mut self.running) {
            self.add(crew, kind, now_s - since_s);
        }
    }

    fn add(&mut self, crew: Crew, kind: usize, seconds: f64) {
        let types = self.totals_s.len().max(kind + 1);
        self.totals_s.resize(types, 0.0);
        self.totals_s[kind] += seconds;
        let times_s = self.times_s.entry(crew).or_default();
        times_s.resize(types.max(times_s.len()), 0.0);
        times_s[kind] += seconds;
    }

    /// Writes down what crews are owed, and forgets who had what.
    pub(super) fn reset(&mut self, now_s: f64, shares: &Shares) {
        let elapsed_s = self.reset_s.map_or(0.0, |reset_s| now_s - reset_s);
        for (&crew, shares) in shares {
            let owed_s = self.owed_s.entry(crew).or_insert_with(|| vec![0.0; shares.len()]);
            for (kind, owed_s) in owed_s.iter_mut().enumerate() {
                let had_s = self.times_s.get(&crew).and_then(|times_s| times_s.get(kind)).copied();
                *owed_s += shares[kind] * elapsed_s - had_s.unwrap_or(0.0);
            }
        }
        self.times_s.clear();
        self.totals_s.clear();
        self.reset_s = Some(now_s);
    }

    /// Who runs in the next round and on which type, if `free` devices of each type are there for all.
    pub(super) fn turns(
        &self,
        jobs: &BTreeMap<JobId, Known>,
        shares: &Shares,
        mut free: Vec<u32>,
    ) -> BTreeMap<Crew, usize> {
        let mut turns = Vec::with_capacity(shares.len() * free.len());
        for (&crew, shares) in shares {
            let (times_s, owed_s) = (self.times_s.get(&crew), self.owed_s.get(&crew));
            let of = |list: Option<&Vec<f64>>, kind: usize| {
                list.and_then(|all| all.get(kind)).copied().unwrap_or(0.0)
            };
            let runs = |kind: usize| {
                let is_shared = crew.1.is_some() && shares[kind] <= 0.0;
                !is_shared && members(crew).all(|job| jobs[&job].speeds[kind] > 0.0)
            };
            for (kind, &share) in shares.iter().enumerate().filter(|(kind, _)| runs(*kind)) {
                let time_s = of(times_s, kind);
                let priority =
                    if time_s > 0.0 { share * self.totals_s[kind] / time_s } else { share * FIRST };
                turns.push(Turn { priority, owed_s: of(owed_s, kind), share, crew, kind });
            }
        }
        turns.sort_by(|a, b| {
            let by_value = b.priority.total_cmp(&a.priority).then(b.owed_s.total_cmp(&a.owed_s));
            by_value.then(b.share.total_cmp(&a.share)).then(a.crew.cmp(&b.crew)).then(a.kind.cmp(&b.kind))
        });
        let (mut chosen, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for turn in turns {
            let devices = jobs[&turn.crew.0].devices;
            if devices <= free[turn.kind] && members(turn.crew).all(|job| !taken.contains(&job)) {
                free[turn.kind] -= devices;
                taken.extend(members(turn.crew));
                chosen.insert(turn.crew, turn.kind);
            }
        }
        chosen
    }

    /// These run from now on.
    pub(super) fn run(&mut self, now_s: f64, chosen: &BTreeMap<Crew, usize>) {
        self.running = chosen.iter().map(|(&crew, &kind)| (crew, (kind, now_s))).collect();
    }
}

/// Moves jobs to the types that were chosen for them. A job that is there already stays where it is; wide gangs are
/// placed first, so that they need few nodes. Of two that are to share devices the one that stays is joined by the
/// other. Returns who joined whom.
pub(super) fn enact(
    view: &ClusterView,
    chosen: &BTreeMap<Crew, usize>,
    jobs: &BTreeMap<JobId, Known>,
    draft: &mut DecisionBuilder,
) -> Vec<(JobId, JobId)> {
    let stay = staying(view, chosen);
    let is_chosen: BTreeSet<JobId> = chosen.keys().flat_map(|crew| members(*crew)).collect();
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| seen.is_running()) {
        if !is_chosen.contains(&id) {
            draft.stop(id, seen);
        } else if !stay.contains(&id) {
            draft.lift(id, seen);
        }
    }
    let mut placed = Vec::new();
    let mut joining = Vec::new();
    for (&(first, second), &kind) in chosen {
        let anchor = second.filter(|second| stay.contains(second) && !stay.contains(&first)).unwrap_or(first);
        if !stay.contains(&anchor) {
            placed.push((anchor, kind));
        }
        let guest = if anchor == first { second } else { Some(first) };
        joining.extend(guest.filter(|guest| !stay.contains(guest)).map(|guest| (guest, anchor)));
    }
    placed.sort_by_key(|(id, _)| (std::cmp::Reverse(jobs[id].devices), *id));
    let mut allocations: BTreeMap<JobId, Allocation> = BTreeMap::new();
    for (id, kind) in placed {
        let place = draft.board().place(kind as u16, jobs[&id].devices);
        let allocation = place.expect("turns were given to as many as there is room for");
        allocations.insert(id, allocation.clone());
        if view.jobs[&id].is_running() {
            draft.change(id, allocation, None);
        } else {
            draft.start(id, allocation, None);
        }
    }
    for &(guest, host) in &joining {
        let allocation = allocations.get(&host).unwrap_or(&view.jobs[&host].allocation).clone();
        draft.join(guest, &view.jobs[&guest], allocation, host);
    }
    joining
}

/// Jobs that keep the devices that they hold: of two that share them now and are no longer to, the earlier one; of two
/// that are to share and do not yet, one.
fn staying(view: &ClusterView, chosen: &BTreeMap<Crew, usize>) -> BTreeSet<JobId> {
    let kind_of = |seen: &JobView| held_type(view, seen).map(usize::from);
    let mut target: BTreeMap<JobId, (usize, Option<JobId>)> = BTreeMap::new();
    for (&(first, second), &kind) in chosen {
        target.insert(first, (kind, second));
        target.extend(second.map(|second| (second, (kind, Some(first)))));
    }
    let mut stay = BTreeSet::new();
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| seen.is_running()) {
        let Some(&(kind, partner)) = target.get(&id) else { continue };
        let is_apart = |other: JobId| partner != Some(other) && stay.contains(&other);
        if kind_of(seen) == Some(kind) && !seen.beside.is_some_and(is_apart) {
            stay.insert(id);
        }
    }
    for &(first, second) in chosen.keys() {
        let Some(second) = second else { continue };
        if stay.contains(&first) && view.jobs[&first].beside != Some(second) {
            stay.remove(&second);
        }
    }
    stay
}
