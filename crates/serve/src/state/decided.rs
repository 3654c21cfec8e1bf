//! Decisions: they change the view at once, and their effects are written down as they show.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, JobId, Way};
use bellwether_core::policy::{Action, Decision};
use bellwether_core::prediction::StepModel;

use super::record::limit;
use super::{DECISIONS_KEPT, LineError, State};
use crate::snapshot::{ActionState, DecisionState};

impl State {
    /// Whether a decision keeps the laws of [`bellwether_core::policy::Policy`] now.
    ///
    /// # Errors
    ///
    /// Returns the law that it breaks.
    fn check(&self, decision: &Decision) -> Result<(), LineError> {
        let ClusterView { device_types, nodes, .. } = &self.view;
        let mut view = ClusterView {
            device_types: device_types.clone(),
            nodes: nodes.clone(),
            ..ClusterView::default()
        };
        for action in &decision.actions {
            let (Action::Allocate { job, .. } | Action::Refuse { job, .. }) = action;
            let broken = |what| LineError::Decision { job: *job, what };
            // Of the jobs only those that the decision names are needed, as it leaves them.
            if let (Some(seen), false) = (self.view.jobs.get(job), view.jobs.contains_key(job)) {
                view.jobs.insert(*job, seen.clone());
            }
            let seen = view.jobs.get(job).ok_or_else(|| broken("is named, and is not there"))?;
            match action {
                Action::Allocate { allocation, .. } => {
                    view.check(seen, allocation)
                        .map_err(|error| LineError::Allocation { job: *job, error })?;
                    let before = seen.allocation.clone();
                    view.release(&before);
                    view.take(allocation);
                    if let Some(seen) = view.jobs.get_mut(job) {
                        seen.allocation = allocation.clone();
                    }
                }
                Action::Refuse { .. } if seen.is_running() => {
                    return Err(broken("is refused, and is not waiting"));
                }
                Action::Refuse { .. } => {}
            }
        }
        Ok(())
    }

    /// A fresh policy knows nothing.
    pub(super) fn begin_policy(&mut self) {
        self.follow_queues();
        self.policies += 1;
        self.changes.clear();
        self.changes.arrived.extend(self.view.jobs.keys());
    }

    /// Nothing is known of processes any more.
    pub(super) fn unsettle(&mut self) {
        let now_s = self.now_s;
        let running = self.view.jobs.iter().filter(|(_, seen)| seen.is_running());
        for (job, before) in running.map(|(job, seen)| (*job, seen.allocation.clone())).collect::<Vec<_>>() {
            self.view.release(&before);
            if let Some(seen) = self.view.jobs.get_mut(&job) {
                seen.allocation = Allocation::none();
            }
            self.settle(job, &before);
        }
        for (job, record) in self.jobs.iter_mut().filter(|(_, record)| record.end.is_none()) {
            record.leaving = true;
            record.hold(0, now_s);
            self.slots.free(*job, now_s);
            self.unsettled.insert(*job);
        }
        for job in self.unsettled.clone() {
            self.touch(job);
        }
        self.begin_policy();
    }

    /// The policy has been asked, and this is its answer.
    pub(super) fn decide(&mut self, decision: &Decision, deciding_s: f64) -> Result<(), LineError> {
        self.check(decision)?;
        self.decided += 1;
        let mut touched: Vec<(JobId, Allocation)> = Vec::new();
        let mut ways = BTreeMap::new();
        let mut refused = Vec::new();
        let mut expectations = BTreeMap::new();
        for action in &decision.actions {
            match action {
                Action::Allocate { job, allocation, expected, way, .. } => {
                    let Some(seen) = self.view.jobs.get_mut(job) else { continue };
                    // A guess does not count as an expectation.
                    let knows = self.belief.knows(&seen.job.description.model);
                    let before = std::mem::replace(&mut seen.allocation, allocation.clone());
                    self.view.release(&before);
                    self.view.take(allocation);
                    ways.insert(*job, *way);
                    // A decision may name a job twice: what counts is what it had, and what it has in the end.
                    if touched.iter().all(|(id, _)| id != job) {
                        touched.push((*job, before));
                    }
                    let scale = self.time_scale;
                    let expected = expected.as_ref().filter(|_| knows);
                    expectations.insert(*job, expected.map(|expected| expected.examples_per_s * scale));
                }
                Action::Refuse { job, why } => {
                    // Its end is a line of its own, which follows.
                    self.view.jobs.remove(job);
                    self.touch(*job);
                    let mut action = self.action(*job, 0, 0, None);
                    action.refused = Some(why.clone());
                    refused.push(action);
                }
            }
        }
        let mut actions = Vec::new();
        let mut revised = Vec::new();
        for (job, before) in touched {
            revised.extend(self.settle_way(job, ways.get(&job).copied().flatten()));
            let to = self.settle(job, &before);
            if to != before.devices() || to > 0 {
                let workers =
                    |devices| self.jobs.get(&job).map_or(devices, |record| record.workers_on(devices));
                let expected = expectations.get(&job).copied().flatten();
                actions.push(self.action(job, workers(before.devices()), workers(to), expected));
            }
        }
        actions.extend(refused);
        self.changes.clear();
        self.changes.revised.extend(revised);
        self.decisions_changed = true;
        // That nothing is to be done is in the ledger once; it need not be repeated.
        if actions.is_empty() {
            return Ok(());
        }
        self.decisions.push_back(DecisionState {
            number: self.decided,
            time_s: self.unix_s(self.now_s),
            policy: self.policy.clone(),
            reason: decision.reason.to_string(),
            actions,
            deciding_s,
        });
        if self.decisions.len() > DECISIONS_KEPT {
            self.decisions.pop_front();
        }
        Ok(())
    }

    /// A job whose way was open, and that has devices now, trains in this way from now on, or in the one that is
    /// believed to be fastest: it is a job like others then, and what may be given to it has changed.
    fn settle_way(&mut self, job: JobId, chosen: Option<Way>) -> Option<JobId> {
        let seen = self.view.jobs.get(&job).filter(|seen| seen.is_running())?;
        let workers = seen.job.workers?;
        let widest = self.widest(&seen.job.device_types);
        let devices = seen.allocation.devices();
        let fastest = || self.view.fastest_way(&self.belief, &seen.job, &seen.allocation, None);
        // Where the model can speak of none: that with most workers, within what they may be if that can be.
        let most = || {
            let leaves = |way: &Way| devices.saturating_sub(way.servers);
            seen.job.ways().max_by_key(|way| (leaves(way).min(workers.max), Reverse(leaves(way))))
        };
        let way = chosen.or_else(|| fastest().map(|(way, _)| way)).or_else(most)?;
        let record = self.jobs.get_mut(&job)?;
        record.settle_way(way);
        let (kind, ways) = (record.kind_at(record.step), record.ways_at(record.step));
        let settled = Arc::make_mut(&mut self.view.jobs.get_mut(&job)?.job);
        (settled.description.model, settled.ways, settled.workers) = (kind, ways, None);
        limit(settled, workers, widest);
        settled.description.devices = settled.max_devices;
        Some(job)
    }

    fn action(&self, job: JobId, from: u32, to: u32, expected: Option<f64>) -> ActionState {
        let name = self.jobs.get(&job).map_or_else(String::new, |record| record.submitted.name.clone());
        ActionState {
            job: name,
            from,
            to,
            refused: None,
            expected_examples_per_s: expected,
            measured_examples_per_s: None,
            took_s: None,
        }
    }

    /// Settles what a job did with what it had before; says how many devices it has now.
    pub(super) fn settle(&mut self, job: JobId, before: &Allocation) -> u32 {
        self.touch(job);
        let (now_s, restart_s) = (self.now_s, self.view.restart_s);
        let Some(seen) = self.view.jobs.get(&job) else { return 0 };
        if seen.allocation == *before {
            return before.devices();
        }
        let configuration = self.view.configuration(&seen.job, &seen.allocation, None);
        let predicted = self.belief.predict(&seen.job.description, &configuration);
        let Some(seen) = self.view.jobs.get_mut(&job) else { return 0 };
        seen.turn(before, now_s, restart_s);
        if !seen.is_running() {
            seen.rate = 0.0;
            if let Some(record) = self.jobs.get_mut(&job) {
                record.preemptions += 1;
            }
            return 0;
        }
        seen.rate = predicted.map_or(0.0, |prediction| prediction.examples_per_s);
        seen.allocation.devices()
    }

    /// Its last decision about this job, if its effect is as wanted.
    fn last_action(&mut self, job: JobId) -> Option<(u64, f64, &mut ActionState)> {
        let name = &self.jobs.get(&job)?.submitted.name;
        self.decisions.iter_mut().rev().find_map(|decision| {
            let action = decision.actions.iter_mut().rev().find(|action| action.job == *name)?;
            Some((decision.number, decision.time_s, action))
        })
    }

    /// This many workers of the job train: the decision that wanted it has been carried out.
    pub(super) fn took_effect(&mut self, job: JobId, workers: u32) {
        let unix_s = self.unix_s(self.now_s);
        if let Some((_, time_s, action)) = self.last_action(job)
            && action.to == workers
            && action.took_s.is_none()
        {
            action.took_s = Some(unix_s - time_s);
            self.decisions_changed = true;
        }
    }

    /// The number of the decision that gave the job its workers, if they train and nothing was measured for it yet.
    pub fn unmeasured(&mut self, job: JobId) -> Option<u64> {
        let workers = self.jobs.get(&job)?.training;
        let (number, _, action) = self.last_action(job)?;
        (workers > 0 && action.to == workers && action.measured_examples_per_s.is_none()).then_some(number)
    }

    pub(super) fn measured(&mut self, decision: u64, job: JobId, examples_per_s: f64) {
        self.decisions_changed = true;
        let Some(name) = self.jobs.get(&job).map(|record| record.submitted.name.clone()) else { return };
        let decision = self.decisions.iter_mut().find(|known| known.number == decision);
        let actions = decision.into_iter().flat_map(|decision| &mut decision.actions);
        for action in actions.filter(|action| action.job == name) {
            action.measured_examples_per_s = Some(examples_per_s);
        }
    }
}
