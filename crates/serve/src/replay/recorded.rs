//! What a ledger tells beside the state that follows from it: arrivals, allocations, and what starts took.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId};
use bellwether_core::policy::{Action, Decision};
use bellwether_core::prediction::StepModel;

use crate::ledger::{Entry, Line};
use crate::state::{Record, State};

/// A job has this many devices from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The job.
    pub job: JobId,
    /// How many.
    pub devices: u32,
}

/// A ledger, read to its end.
#[derive(Debug)]
pub struct Recorded {
    /// What follows from it.
    pub state: State,
    /// Jobs that a policy heard of, as it first saw them, and when.
    pub arrivals: Vec<(JobId, f64, Arc<Job>)>,
    /// Numbers of devices, in the order in which they were decided.
    pub given: Vec<Given>,
    /// Seconds from the decision until it trained, of first starts.
    pub starts_s: Vec<f64>,
    /// The same of later changes.
    changes: Vec<Change>,
    /// Decided, and not in effect yet.
    waiting: BTreeMap<JobId, Waiting>,
    /// Policies that decided, in order.
    pub policies: Vec<String>,
    /// How often a user suspended a job, resumed it or changed its limits.
    pub interventions: u32,
    /// How often a daemon took the ledger up again.
    pub reopened: u32,
    /// What stands in the place of all earlier lines, where it was compacted.
    pub compacted: Option<Compacted>,
}

/// A ledger begins with the state that followed from a longer one.
#[derive(Debug, Clone, Copy)]
pub struct Compacted {
    /// When, on the daemon's clock.
    pub time_s: f64,
    /// Jobs of that state.
    pub jobs: usize,
    /// Which policy decided then: see [`State::policies`]. What it remembers is not known.
    pub policies: u64,
}

#[derive(Debug)]
struct Waiting {
    since_s: f64,
    before: Allocation,
    is_first: bool,
}

/// A job went on after a stop or a change of its devices.
#[derive(Debug)]
struct Change {
    job: Arc<Job>,
    took_s: f64,
    before: Allocation,
    after: Allocation,
}

impl Recorded {
    pub(super) fn open(line: &Line) -> Result<Recorded, String> {
        Ok(Recorded {
            state: State::open(line)?,
            arrivals: Vec::new(),
            given: Vec::new(),
            starts_s: Vec::new(),
            changes: Vec::new(),
            waiting: BTreeMap::new(),
            policies: Vec::new(),
            interventions: 0,
            reopened: 0,
            compacted: None,
        })
    }

    pub(super) fn take_in(&mut self, line: &Line) -> Result<(), String> {
        let now_s = line.time_s;
        match &line.entry {
            Entry::Decided { decision, .. } => self.decided(decision, now_s),
            Entry::Training { job, workers } => self.trains(*job, *workers, now_s),
            Entry::PolicyChosen { policy, .. } => self.policies.push(policy.clone()),
            Entry::Suspended { .. } | Entry::Resumed { .. } | Entry::Limited { .. } => {
                self.interventions += 1
            }
            Entry::Reopened { .. } => self.reopened += 1,
            _ => {}
        }
        self.state.apply(line)?;
        match line.entry {
            Entry::Moment { .. } => self.arrive(now_s),
            Entry::KeptState(_) => self.restored(now_s),
            _ => {}
        }
        Ok(())
    }

    /// Of jobs from before a compaction it is not known when a policy first saw them: that was soon after they were
    /// submitted.
    fn restored(&mut self, now_s: f64) {
        let State { jobs, policy, policies, view, machine, .. } = &self.state;
        let arrival = |(id, record): (&JobId, &Record)| {
            let widest = view.widest(&record.submitted.device_types);
            (*id, record.submitted_s, Arc::new(record.scheduled(widest, machine)))
        };
        // No policy sees jobs with machines of their own.
        let has_slots = |(_, record): &(&JobId, &Record)| record.submitted.provision.is_none();
        self.arrivals = jobs.iter().filter(has_slots).map(arrival).collect();
        self.policies.extend(Some(policy.clone()).filter(|policy| !policy.is_empty()));
        self.compacted = Some(Compacted { time_s: now_s, jobs: jobs.len(), policies: *policies });
    }

    /// Jobs of which the policy hears now for the first time.
    fn arrive(&mut self, now_s: f64) {
        let mut new: Vec<JobId> = self.state.changes.arrived.clone();
        new.retain(|id| self.arrivals.iter().all(|(known, ..)| known != id));
        new.sort_unstable();
        for id in new {
            if let Some(seen) = self.state.view.jobs.get(&id) {
                self.arrivals.push((id, now_s, seen.job.clone()));
            }
        }
    }

    fn decided(&mut self, decision: &Decision, now_s: f64) {
        for (job, allocation) in given(decision, &self.state.view) {
            let Some(seen) = self.state.view.jobs.get(&job) else { continue };
            if seen.allocation.devices() != allocation.devices() {
                self.given.push(Given { job, devices: allocation.devices() });
            }
            if allocation.is_empty() {
                self.waiting.remove(&job);
            } else {
                let (before, is_first) = (seen.allocation.clone(), seen.started_s.is_none());
                // A change of what does not train yet delays nothing again.
                self.waiting.entry(job).or_insert(Waiting { since_s: now_s, before, is_first });
            }
        }
    }

    fn trains(&mut self, job: JobId, workers: u32, now_s: f64) {
        let Some(seen) = self.state.view.jobs.get(&job) else { return };
        if seen.workers() != workers {
            return;
        }
        let Some(Waiting { since_s, before, is_first }) = self.waiting.remove(&job) else { return };
        let took_s = now_s - since_s;
        if is_first {
            self.starts_s.push(took_s);
        } else {
            let after = seen.allocation.clone();
            self.changes.push(Change { job: seen.job.clone(), took_s, before, after });
        }
    }

    /// Seconds without progress that every change of devices is worth, by what is known in the end: a job that got more
    /// devices trained with the old ones meanwhile, and one that got fewer lost nothing.
    pub fn restarts_s(&self) -> Vec<f64> {
        let State { view, belief, .. } = &self.state;
        let rate = |job: &Job, allocation: &Allocation| {
            if allocation.is_empty() {
                return 0.0;
            }
            let configuration = view.configuration(job, allocation, None);
            belief.predict(&job.description, &configuration).map_or(0.0, |told| told.examples_per_s)
        };
        let cost = |change: &Change| {
            let (before, after) = (rate(&change.job, &change.before), rate(&change.job, &change.after));
            let lost = if after > 0.0 { (1.0 - before / after).max(0.0) } else { 0.0 };
            change.took_s * lost
        };
        self.changes.iter().map(cost).collect()
    }
}

/// The jobs whose devices a decision changes, in the order in which it names them first, with what they hold in the
/// end.
pub fn given(decision: &Decision, view: &ClusterView) -> Vec<(JobId, Allocation)> {
    let mut given: Vec<(JobId, Allocation)> = Vec::new();
    for action in &decision.actions {
        let Action::Allocate { job, allocation, .. } = action else { continue };
        match given.iter_mut().find(|(known, _)| known == job) {
            Some((_, last)) => last.clone_from(allocation),
            None => given.push((*job, allocation.clone())),
        }
    }
    given.retain(|(job, allocation)| view.jobs.get(job).is_none_or(|seen| seen.allocation != *allocation));
    given
}
