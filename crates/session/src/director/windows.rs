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
struct Done {
    virtual_nodes: usize,
    compute_s: f64,
}

/// Gathers windows of synchronous steps in which all members of one membership took part.
#[derive(Debug)]
pub(crate) struct Windows {
    memberships: Memberships,
    members: BTreeSet<WorkerId>,
    /// How fast workers are known to be; the others are taken for 1.
    speeds: BTreeMap<WorkerId, f64>,
    least_workers: usize,
    /// What each worker told of steps that are not committed yet.
    told: BTreeMap<u64, BTreeMap<WorkerId, Done>>,
    /// The sum of the last steps, until they are long enough.
    window: BTreeMap<WorkerId, Done>,
}

impl Windows {
    /// Windows with at least this many workers.
    pub(crate) fn new(speeds: BTreeMap<WorkerId, f64>, least_workers: usize) -> Windows {
        Windows {
            memberships: Memberships::default(),
            members: BTreeSet::new(),
            speeds,
            least_workers,
            told: BTreeMap::new(),
            window: BTreeMap::new(),
        }
    }

    /// Who trains.
    pub(crate) fn members(&self) -> &BTreeSet<WorkerId> {
        &self.members
    }

    /// Members that this line takes away; to be asked before [`Windows::see`].
    pub(crate) fn gone(&self, seen: RunEvent<'_>) -> Vec<u32> {
        let RunEvent::Journal(Event::Membership { workers, .. }) = seen else { return Vec::new() };
        let gone = self.members.iter().filter(|worker| !workers.contains(worker));
        gone.filter_map(|worker| u32::try_from(*worker).ok()).collect()
    }

    /// Takes in what happened; the windows that it completes.
    pub(crate) fn see(&mut self, seen: RunEvent<'_>) -> Vec<Vec<Observation>> {
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
            Event::Membership { workers, .. } => {
                self.members = workers.iter().copied().collect();
                self.window.clear();
            }
            Event::RolledBack { .. } => self.told.clear(),
            _ => {}
        }
    }

    /// A member tells of its steps before they are committed, and all have told of those that are.
    fn keep(&mut self, worker: WorkerId, records: &[StepRecord]) {
        for record in records.iter().filter(|record| record.compute_s > 0.0 && !record.nodes_s.is_empty()) {
            let done = Done { virtual_nodes: record.nodes_s.len(), compute_s: record.gradients_s() };
            self.told.entry(record.step).or_default().insert(worker, done);
        }
    }

    fn committed(&mut self, records: &[StepRecord]) -> Vec<Vec<Observation>> {
        let Some(last) = records.last() else { return Vec::new() };
        let later = self.told.split_off(&(last.step + 1));
        let mut windows = Vec::new();
        for (step, done) in std::mem::replace(&mut self.told, later) {
            // Steps of an earlier membership may be committed late.
            let present = self.memberships.at(step).is_some_and(|began| began.workers == self.members);
            let all = self.members.iter().all(|worker| done.contains_key(worker));
            if !present || !all || self.members.len() < self.least_workers {
                continue;
            }
            for (worker, done) in done {
                let sum = self.window.entry(worker).or_default();
                sum.virtual_nodes += done.virtual_nodes;
                sum.compute_s += done.compute_s;
            }
            let longest_s = self.window.values().map(|done| done.compute_s).fold(0.0, f64::max);
            if longest_s >= WINDOW_S {
                windows.push(self.window());
            }
        }
        windows
    }

    fn window(&mut self) -> Vec<Observation> {
        let observation = |(worker, done): (WorkerId, Done)| {
            // In nodes of a worker of speed 1, so that those who are known to be slow do not stand out.
            let work = done.virtual_nodes as f64 / self.speeds.get(&worker).copied().unwrap_or(1.0);
            Some(Observation { worker: u32::try_from(worker).ok()?, work, compute_s: done.compute_s })
        };
        std::mem::take(&mut self.window).into_iter().filter_map(observation).collect()
    }
}
