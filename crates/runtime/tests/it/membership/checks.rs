//! What must hold, whatever happens.

use std::ops::Range;

use bellwether_core::record::{Event as Journal, RunOutcome};
use bellwether_runtime::membership::coordinator::End;
use bellwether_runtime::membership::{Load, Membership, ToWorker, WorkerId};

use super::control::GRACE_S;
use super::rounds::{Epoch, Kind};
use super::world::World;
use crate::digests::{FRESH, applied, contribution};

/// Seconds without a disturbance after which the number of workers must be the one wanted: a newcomer that hangs is
/// given up after more than ten.
const SETTLED_S: f64 = 30.0;

/// More plans and recoveries than any run needs: then one brings about the next.
const MEMBERSHIPS_MAX: usize = 5000;

impl World {
    /// A worker that holds a state holds the right bits.
    pub(crate) fn check_process(&mut self, id: WorkerId) {
        let process = &self.processes[&id];
        let active = process.member.is_active();
        let Some((epoch, step)) = process.member.held() else {
            if active {
                self.violate(format!("worker {id} is active and holds no state"));
            }
            return;
        };
        let right = process.state.as_ref().is_some_and(|state| {
            !state.partial && state.step == step && self.right.get(&state.digest) == Some(&step)
        });
        if !right {
            let state = process.state.clone();
            self.violate(format!("worker {id} says it holds step {step} of epoch {epoch} but has {state:?}"));
        }
    }

    /// Without faults, no active worker waits but for a scheduled change or a verdict.
    pub(crate) fn check_wait(&mut self, id: WorkerId) {
        let member = &self.processes[&id].member;
        if !self.scenario.calm() || !member.is_active() || self.end.is_some() {
            return;
        }
        let (step, every) = (member.step(), self.scenario.rules.verdict_every);
        let asks = every > 0 && step.is_multiple_of(every) && step < self.scenario.rules.total_steps;
        if !asks && member.membership().hold_at.is_none_or(|at| at > step) {
            self.violate(format!("worker {id} has to wait at boundary {step} although nothing is wrong"));
        }
    }

    /// An update is reduced to the right result of a right state, and to the same one by every membership that does it
    /// before a state is loaded again, as far as the journal counts on it.
    pub(crate) fn check_result(&mut self, epoch: u64, steps: &Range<u64>, digest: u64, sum: u64) {
        let right = contribution(steps, 0..self.scenario.virtual_nodes, digest);
        if right != sum || self.right.get(&digest) != Some(&steps.start) {
            self.violate(format!("epoch {epoch} reduces steps {steps:?} to a wrong result"));
        }
        self.check_decided(steps);
        self.right.insert(applied(digest, steps, sum), steps.end);
        self.watch.reduced.insert(steps.end - 1);
        if epoch < self.watch.journaled.0 {
            // A member that was given up, and does not know it, trains on in vain.
            return;
        }
        let before = self.watch.done.insert(steps.end - 1, sum);
        // Where the batch may move, steps on which nothing depends yet may be done again by other updates.
        let counts = self.scenario.max_accumulation == 1 || steps.end <= self.watch.committed;
        if counts && before.is_some_and(|before| before != sum) {
            self.violate(format!("epoch {epoch} does steps {steps:?} otherwise than they were done before"));
        }
    }

    /// The membership in force never goes back.
    pub(crate) fn check_membership(&mut self, before: u64) {
        let Some(coordinator) = &self.coordinator else { return };
        let now = coordinator.membership().epoch;
        // No membership at all has epoch 0.
        if now < before && now != 0 {
            self.violate(format!("epoch {now} follows {before}"));
        }
    }

    fn check_shape(&mut self, membership: &Membership) {
        let epoch = membership.epoch;
        let nodes = self.scenario.virtual_nodes;
        let mut next = 0;
        for member in &membership.active {
            if member.nodes.start != next || member.nodes.is_empty() {
                self.violate(format!("epoch {epoch} does not share out {nodes} nodes: {membership:?}"));
            }
            next = member.nodes.end;
        }
        let mut everyone: Vec<WorkerId> = membership.active.iter().map(|m| m.worker).collect();
        everyone.extend(membership.shadows.iter().map(|m| m.worker));
        let all = everyone.len();
        everyone.sort_unstable();
        everyone.dedup();
        if next != nodes || membership.active.len() > nodes as usize || everyone.len() != all {
            self.violate(format!("epoch {epoch} has a wrong shape: {membership:?}"));
        }
        let newest = self.watch.memberships.last_key_value().map_or(0, |(epoch, _)| *epoch);
        match self.watch.memberships.get(&epoch) {
            Some(known) if known != membership => {
                self.violate(format!("epoch {epoch} means {known:?} and {membership:?}"));
            }
            Some(_) => {}
            None if epoch <= newest => self.violate(format!("epoch {epoch} comes after {newest}")),
            None => {
                self.watch.memberships.insert(epoch, membership.clone());
                if self.watch.memberships.len() > MEMBERSHIPS_MAX {
                    self.violate("memberships follow each other for ever".into());
                }
            }
        }
    }

    /// Looks at a message to a worker.
    pub(crate) fn check_message(&mut self, message: &ToWorker) {
        match message {
            ToWorker::Prepare(membership) => self.check_shape(membership),
            ToWorker::Recover { membership, load, .. } => {
                self.check_shape(membership);
                if let Some(load) = load {
                    let step = if let Load::Checkpoint(step) = load { *step } else { 0 };
                    self.check_loss(step);
                    self.watch.done.retain(|last, _| *last < step);
                }
            }
            ToWorker::Start { step, .. } => {
                let committed = self.watch.committed;
                if *step < committed {
                    self.violate(format!("the run goes on from {step} with {committed} steps committed"));
                }
            }
            ToWorker::Bye { .. } | ToWorker::SendCheckpoint { .. } | ToWorker::Inquire { .. } => {}
            ToWorker::GoOn { step } => {
                if self.watch.verdicts.get(step) != Some(&false) {
                    self.violate(format!("no verdict in the journal lets the run go on after {step}"));
                }
            }
            ToWorker::Phase(_)
            | ToWorker::Grant { .. }
            | ToWorker::EvaluateAlone { .. }
            | ToWorker::Serve(_)
            | ToWorker::HandOver { .. } => {
                self.violate(format!("{message:?} in a run that is reduced by its workers"));
            }
        }
    }

    /// Going on from `step` loses no committed step that a living member holds.
    fn check_loss(&mut self, step: u64) {
        let committed = self.watch.committed;
        if step >= committed {
            return;
        }
        if let Some(holder) = self.holder_of(committed) {
            self.violate(format!(
                "{committed} steps are committed, the run goes on from {step}, {holder} holds all"
            ));
        }
    }

    /// A living member, within reach of the coordinator, that holds at least this many steps.
    fn holder_of(&self, steps: u64) -> Option<WorkerId> {
        let journaled = self.watch.journaled.0;
        let holds = |id: &WorkerId| {
            let process = &self.processes[id];
            let member = &process.member;
            let connected = process.session.is_some_and(|s| self.attached.get(id) == Some(&s));
            // Whose sessions swallow what is said may try for long.
            let back_soon = process.session.is_none()
                && !process.hung_once
                && self.now - process.disconnected_s < GRACE_S.min(self.scenario.orphan_s) * 0.5;
            process.alive
                && !process.stood_still
                && member.membership().epoch >= journaled
                && member.membership().rank(*id).is_some()
                && member.held().is_some_and(|(_, held)| held >= steps)
                && (connected || back_soon)
        };
        self.processes.keys().copied().find(|id| holds(id))
    }

    /// Looks at a line of the journal.
    pub(crate) fn check_journal(&mut self, event: &Journal) {
        match event {
            Journal::Committed { first, last, accumulation } => {
                self.watch.ledger.push((*first, *last, *accumulation));
                let committed = self.watch.committed;
                if *first != committed || last < first {
                    self.violate(format!("steps {first} to {last} are committed after {committed}"));
                }
                self.watch.committed = last + 1;
                self.watch.committed_s = self.now;
                self.check_committed(*last);
            }
            Journal::RolledBack { to } => {
                let committed = self.watch.committed;
                if *to >= committed {
                    self.violate(format!("rolled back to {to} with {committed} steps committed"));
                }
                if let Some(holder) = self.holder_of(committed) {
                    self.violate(format!("rolled back to {to} although {holder} holds {committed} steps"));
                }
                self.watch.committed = *to;
                self.watch.ledger.retain_mut(|(first, last, _)| {
                    *last = (*last).min(to.wrapping_sub(1));
                    *first < *to
                });
                self.watch.rolled_back += 1;
                self.watch.done.retain(|last, _| last < to);
            }
            Journal::Membership { epoch, step, workers, accumulation, reason, .. } => {
                if reason.contains("came back") || self.scenario.max_accumulation > 1 {
                    // Those who were further may be lost; where the batch may move, they are told to forget it.
                    self.watch.done.retain(|last, _| last < step);
                }
                let before = std::mem::replace(&mut self.watch.accumulation, *accumulation);
                self.watch.batch_changes += u64::from(before != *accumulation && before > 0);
                if *epoch <= self.watch.journaled.0 {
                    let before = self.watch.journaled.0;
                    self.violate(format!("epoch {epoch} is journaled after {before}"));
                }
                self.watch.journaled = (*epoch, *step, workers.clone());
            }
            Journal::Crashed { worker, evidence, .. } => {
                self.watch.crashes += 1;
                self.watch.disturbed_s = self.now;
                self.check_silence(*worker, evidence);
                self.check_lateness(*worker, evidence);
                if self.scenario.calm() {
                    self.violate("a crash without a fault".into());
                }
            }
            Journal::Verdict { step, ends } => self.check_verdict(*step, ends.is_some()),
            Journal::Late { .. } => {
                self.watch.late += 1;
                self.watch.disturbed_s = self.now;
                if self.scenario.calm() {
                    self.violate(format!("somebody is late without a fault: {event:?}"));
                }
            }
            _ => {}
        }
    }

    /// Only who really says nothing is silent.
    fn check_silence(&mut self, worker: WorkerId, evidence: &str) {
        let speaks = self.processes.get(&worker).is_some_and(|process| {
            process.alive
                && !process.still
                && !process.stood_still
                && process.session.is_some_and(|s| self.is_whole(s))
        });
        if evidence.contains("silent") && speaks {
            self.violate(format!("worker {worker} is called silent, and speaks"));
        }
    }

    /// A committed step has been reduced, by all members.
    fn check_committed(&mut self, last: u64) {
        if !self.watch.reduced.contains(&last) && !self.stored.keys().any(|s| *s > last) {
            self.violate(format!("step {last} is committed but was never done"));
        }
        let Some(coordinator) = &self.coordinator else { return };
        let membership = coordinator.membership();
        if membership.epoch != self.watch.journaled.0 {
            // Steps of a checkpoint that is about to be loaded.
            return;
        }
        let lacks = |id: &WorkerId| {
            let process = &self.processes[id];
            process.alive && process.member.held().is_some_and(|(_, step)| step <= last)
        };
        if let Some(id) = membership.active.iter().map(|m| m.worker).find(lacks) {
            self.violate(format!("step {last} is committed but member {id} has not applied it"));
        }
    }

    /// Looks at the end of a run.
    pub(crate) fn check_outcome(&mut self, end: &End) {
        let allowed = match end.how {
            RunOutcome::Finished => true,
            RunOutcome::Stopped => self.watch.stop_asked,
            RunOutcome::Failed(_) => {
                let reason = end.how.reason();
                let poisoned = self.scenario.poison.is_some() && reason.contains("not committed");
                let lost = self.scenario.max_barren_crashes < 100 && reason.contains("in a row");
                let no_worker = !self.scenario.calm() && reason.contains("no worker comes up");
                let corrupt = self.scenario.corruption.is_some() && reason.contains("was applied");
                // A user who asks for an end while the last checkpoint cannot be written gets one.
                let cut = reason.contains("did not arrive whole");
                let impatient = (self.scenario.disk_full > 0.0 || cut) && reason.contains("asked for an end");
                poisoned || lost || no_worker || impatient || corrupt
            }
            RunOutcome::Broken(_) => false,
        };
        if !allowed {
            return self.violate(format!("the run ends with {end:?}"));
        }
        let Some(digest) = end.digest else {
            if end.how == RunOutcome::Finished {
                self.violate("finished without a digest".into());
            }
            return;
        };
        let digest = u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"));
        let committed = self.watch.committed;
        if self.right.get(&digest) != Some(&committed) {
            self.violate(format!("after {committed} steps the run ends with other bits"));
        }
        let is_good = matches!(end.how, RunOutcome::Finished | RunOutcome::Stopped);
        if is_good && self.stored.get(&committed) != Some(&digest) {
            self.violate(format!("the run ends well, and the state after {committed} steps is nowhere"));
        }
        self.check_ledger(digest);
        let total = self.last_step();
        if end.how == RunOutcome::Finished && committed != total {
            self.violate(format!("finished after {committed} steps of {total}"));
        }
        self.check_wanted(end);
    }

    /// The journal alone tells which updates led to the result, unless some of it was lost with all workers.
    fn check_ledger(&mut self, digest: u64) {
        let known = self.watch.ledger.iter().all(|(.., accumulation)| *accumulation > 0);
        if !known || self.watch.rolled_back > 0 {
            return;
        }
        self.watch.replayed += 1;
        let mut replayed = FRESH;
        for (first, last, accumulation) in self.watch.ledger.clone() {
            for start in (first..=last).step_by(accumulation as usize) {
                let steps = start..start + u64::from(accumulation);
                let sum = contribution(&steps, 0..self.scenario.virtual_nodes, replayed);
                replayed = applied(replayed, &steps, sum);
            }
        }
        if replayed != digest {
            let ledger = self.watch.ledger.clone();
            self.violate(format!("the run ends with other bits than its journal tells: {ledger:?}"));
        }
    }

    /// If there was time enough, the wanted number of workers computes in the end.
    fn check_wanted(&mut self, end: &End) {
        let Some(coordinator) = &self.coordinator else { return };
        // A coordinator that only waits for the last checkpoint admits no worker any more.
        let quiet = self.watch.committed_s - self.watch.disturbed_s.max(self.scenario.faults_until_s + 0.5);
        let (active, wanted) = (coordinator.membership().active.len(), coordinator.wanted());
        let stopping = end.how != RunOutcome::Finished || self.watch.stopped > 0;
        if quiet <= SETTLED_S || stopping || !self.scenario.schedule.is_empty() {
            return;
        }
        self.watch.wanted_checked += 1;
        if active != wanted as usize {
            let text = self.everyone();
            self.violate(format!("{active} workers at the end although {wanted} are wanted: {text}"));
        }
    }

    /// Looks at the whole history once the run is over.
    pub(crate) fn check_end(&mut self) {
        if self.end.is_none() {
            return self.violate("nothing happens any more and the run has not ended".into());
        }
        if let Some((id, process)) =
            self.processes.iter().find(|(_, p)| p.alive && !p.hung && p.session.is_some())
        {
            let text = format!("worker {id} is still there: {:?}", process.activity);
            return self.violate(text);
        }
        if self.scenario.calm() && self.watch.failures > 0 {
            self.violate("a round failed without a fault".into());
        }
        let whole = self.last_step() == self.scenario.rules.total_steps;
        if self.scenario.calm() && self.watch.stopped == 0 && self.scenario.poison.is_none() && whole {
            self.check_schedule();
        }
    }

    /// How many workers computed each step, the last time it was done.
    pub(crate) fn workers_by_step(&self) -> Vec<usize> {
        let mut workers = vec![0; self.scenario.rules.total_steps as usize];
        for epoch in self.data.epochs.values() {
            let rounds = epoch.rounds.iter().filter(|r| r.kind == Kind::Train && r.complete);
            let size = epoch.membership.active.len();
            rounds.for_each(|round| workers[round.steps()].fill(size));
        }
        workers
    }

    /// Without faults, scheduled changes happen exactly at their steps.
    fn check_schedule(&mut self) {
        if self.scenario.max_accumulation > 1 {
            // At the first boundary that is not before the step.
            return;
        }
        let workers = self.workers_by_step();
        let mut expected = self.scenario.wanted as usize;
        for (step, wanted) in self.scenario.schedule.clone() {
            self.watch.schedules_checked += 1;
            let (at, before) = (workers[step as usize], step.checked_sub(1).map(|s| workers[s as usize]));
            let steady = self.scenario.scales.is_empty() && before.is_some_and(|b| b != expected);
            // Members that wait for a verdict where the change has just happened can follow another order before they
            // do the step.
            let every = self.scenario.rules.verdict_every;
            let waits = every > 0 && step.is_multiple_of(every) && !self.scenario.scales.is_empty();
            let happened = |epoch: &Epoch| {
                epoch.begun.is_some_and(|(at, _)| at == step)
                    && epoch.membership.active.len() == wanted as usize
            };
            let replaced = waits && self.data.epochs.values().any(happened);
            if at != wanted as usize && !replaced || steady {
                let text = format!("{wanted} workers are due at step {step}: {before:?} before, {at} at it");
                self.violate(text);
            }
            expected = wanted as usize;
        }
    }
}
