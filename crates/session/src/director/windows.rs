//! What each member computed in some steps, for those who look for slow ones.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::record::{Event, StepRecord};
use bellwether_runtime::coordinator::RunEvent;
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::stragglers::Observation;

use super::memberships::Memberships;

/// Shorter steps are taken together: a processor that is elsewhere for a moment makes no straggler.
const WINDOW_S: f64 = 0.02;

/// What a worker did in some steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// Virtual nodes that it computed, each as often as it did.
    pub(crate) virtual_nodes: usize,
    /// Seconds until it had their gradients.
    pub(crate) compute_s: f64,
    /// Seconds of the steps.
    pub(crate) duration_s: f64,
    /// Seconds of the updates.
    pub(crate) update_s: f64,
}

/// What each member did in some steps.
pub(crate) type Window = BTreeMap<WorkerId, Done>;

/// What is expected of workers.
#[derive(Debug)]
pub(crate) enum Expected {
    /// Virtual nodes in the proportion of their speeds; those that are not named are taken for 1.
    Speeds(BTreeMap<WorkerId, f64>),
    /// That one with a single virtual node takes no longer than the others: they share the virtual nodes by what they
    /// take, and those with several can have less.
    SameTime,
}

/// Gathers windows of synchronous steps in which all members of one membership took part.
#[derive(Debug)]
pub(crate) struct Windows {
    memberships: Memberships,
    members: BTreeSet<WorkerId>,
    /// Virtual nodes of each, by rank.
    shares: Vec<(WorkerId, u32)>,
    /// The boundary at which the present membership began.
    since: u64,
    expected: Expected,
    least_workers: usize,
    /// What each worker told of steps that are not committed yet.
    told: BTreeMap<u64, BTreeMap<WorkerId, Done>>,
    /// The sum of the last steps, until they are long enough.
    window: Window,
}

impl Windows {
    /// Windows with at least this many workers.
    pub(crate) fn new(expected: Expected, least_workers: usize) -> Windows {
        Windows {
            memberships: Memberships::default(),
            members: BTreeSet::new(),
            shares: Vec::new(),
            since: 0,
            expected,
            least_workers,
            told: BTreeMap::new(),
            window: BTreeMap::new(),
        }
    }

    /// Who trains.
    pub(crate) fn members(&self) -> &BTreeSet<WorkerId> {
        &self.members
    }

    /// Virtual nodes of each member, by rank.
    pub(crate) fn shares(&self) -> &[(WorkerId, u32)] {
        &self.shares
    }

    /// Members that this line takes away; to be asked before [`Windows::see`].
    pub(crate) fn gone(&self, seen: RunEvent<'_>) -> Vec<u32> {
        let RunEvent::Journal(Event::Membership { workers, .. }) = seen else { return Vec::new() };
        let gone = self.members.iter().filter(|worker| !workers.contains(worker));
        gone.filter_map(|worker| u32::try_from(*worker).ok()).collect()
    }

    /// Takes in what happened; what the workers did in the windows that it completes, beside what was expected.
    pub(crate) fn see(&mut self, seen: RunEvent<'_>) -> Vec<Vec<Observation>> {
        self.complete(seen).into_iter().map(|window| self.observations(window)).collect()
    }

    /// Takes in what happened; the windows that it completes.
    pub(crate) fn complete(&mut self, seen: RunEvent<'_>) -> Vec<Window> {
        match seen {
            RunEvent::Journal(event) => self.note(event),
            RunEvent::Reported(worker, records) => self.keep(worker, records),
            RunEvent::Committed(records) => return self.committed(records),
            RunEvent::Tick => {}
        }
        Vec::new()
    }

    fn note(&mut self, event: &Event) {
        self.memberships.note(event);
        match event {
            Event::Membership { step, workers, bounds, .. } => {
                self.members = workers.iter().copied().collect();
                let counts = bounds.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
                self.shares = workers.iter().copied().zip(counts).collect();
                self.since = *step;
                self.window.clear();
            }
            Event::RolledBack { .. } => self.told.clear(),
            _ => {}
        }
    }

    /// A member tells of its steps before they are committed, and all have told of those that are.
    fn keep(&mut self, worker: WorkerId, records: &[StepRecord]) {
        for record in records.iter().filter(|record| record.compute_s > 0.0 && !record.nodes_s.is_empty()) {
            let done = Done {
                virtual_nodes: record.nodes_s.len(),
                compute_s: record.gradients_s(),
                duration_s: record.duration_s,
                update_s: record.update_s,
            };
            self.told.entry(record.step).or_default().insert(worker, done);
        }
    }

    fn committed(&mut self, records: &[StepRecord]) -> Vec<Window> {
        let Some(last) = records.last() else { return Vec::new() };
        let later = self.told.split_off(&(last.step + 1));
        let mut windows = Vec::new();
        for (step, done) in std::mem::replace(&mut self.told, later) {
            // Steps of an earlier membership may be committed late.
            let present = step >= self.since
                && self.memberships.at(step).is_some_and(|began| began.workers == self.members);
            let all = self.members.iter().all(|worker| done.contains_key(worker));
            if !present || !all || self.members.len() < self.least_workers {
                continue;
            }
            for (worker, done) in done {
                let sum = self.window.entry(worker).or_default();
                sum.virtual_nodes += done.virtual_nodes;
                sum.compute_s += done.compute_s;
                sum.duration_s += done.duration_s;
                sum.update_s += done.update_s;
            }
            let longest_s = self.window.values().map(|done| done.compute_s).fold(0.0, f64::max);
            if longest_s >= WINDOW_S {
                windows.push(std::mem::take(&mut self.window));
            }
        }
        windows
    }

    fn observations(&self, window: Window) -> Vec<Observation> {
        let mut times_s: Vec<f64> = window.values().map(|done| done.compute_s).collect();
        times_s.sort_by(f64::total_cmp);
        let median_s = times_s.get(times_s.len() / 2).copied().unwrap_or(1.0);
        let observation = |(worker, done): (WorkerId, Done)| {
            let work = match &self.expected {
                // In nodes of a worker of speed 1, so that those who are known to be slow do not stand out.
                Expected::Speeds(speeds) => {
                    done.virtual_nodes as f64 / speeds.get(&worker).copied().unwrap_or(1.0)
                }
                Expected::SameTime if self.shares.contains(&(worker, 1)) => 1.0,
                Expected::SameTime => done.compute_s / median_s,
            };
            Some(Observation { worker: u32::try_from(worker).ok()?, work, compute_s: done.compute_s })
        };
        window.into_iter().filter_map(observation).collect()
    }
}
