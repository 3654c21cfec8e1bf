//! Unplanned changes: workers that vanish, a coordinator that comes back, a start from nothing.

use std::collections::BTreeMap;

use bellwether_core::record::{Event as Journal, RunFailure, RunOutcome};

use super::{
    Coordinator, End, Kept, Lifecycle, MAX_BOOT_FAILURES, MAX_REBOOT_FAILURES, Seats, Stage, Worker,
};
use crate::membership::{Load, Membership, Reason, ToWorker, WorkerId};

/// How long a broken connection between two workers may wait for evidence that one of them is dead.
const SUSPICION_S: f64 = 0.05;

/// Recoveries in a row that may fail for want of the same connection.
const MAX_FORMATION_FAILURES: u32 = 3;

/// What a member of a recovery holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ready {
    /// Applied steps.
    pub(super) step: u64,
    /// Steps of the result that it can hand on.
    pub(super) last: u64,
    /// The last membership in which it trained, and the steps that its updates covered.
    pub(super) trained: (u64, u32),
}

impl Coordinator {
    /// A worker's session broke or its process ended.
    pub(super) fn gone(&mut self, worker: WorkerId, why: &str) {
        let Some(entry) = self.workers.get(&worker) else { return };
        let (stage, revoked, kept, started_s) = (entry.stage, entry.revoked, entry.kept, entry.started_s);
        self.close(worker);
        if matches!(stage, Stage::Started | Stage::Booting) {
            if !revoked {
                self.boot_failed(worker, started_s, why);
            }
            return;
        }
        if kept != Kept::Nothing && self.lifecycle != Lifecycle::Asynchronous {
            self.strays.insert(worker);
        }
        match self.lifecycle {
            Lifecycle::Running | Lifecycle::Recovering { .. } if self.is_relied_on(worker) => {
                let survivors = self.current.active.len().saturating_sub(1).max(1) as f64;
                let update = f64::from(self.current.accumulation.max(1));
                let mean_s = update * self.progress.mean_step_s().unwrap_or(0.0);
                let expected_s = mean_s * (1.0 + (survivors + 1.0) / survivors) / 2.0;
                let step = self.progress.committed();
                self.journal(Journal::Crashed { worker, step, evidence: why.into(), expected_s });
                self.progress.crashed(worker, self.now_s);
                self.barren_crashes += 1;
                self.recover(Reason::Crash { worker, evidence: why.into() });
            }
            Lifecycle::Asynchronous if matches!(stage, Stage::Active | Stage::Leaving) => {
                self.lost_asynchronous(worker, why)
            }
            _ => self.journal(Journal::Warning { message: format!("worker {worker} went away: {why}") }),
        }
        if let Lifecycle::Gathering { grace_until_s } = &mut self.lifecycle
            && stage == Stage::Holding
        {
            // It may come back as it did before.
            *grace_until_s = grace_until_s.max(self.now_s + self.config.reattach_grace_s);
        }
    }

    /// A worker that is gone will not come back: the run need not wait for it.
    pub(super) fn ended(&mut self, worker: WorkerId) {
        self.strays.remove(&worker);
        self.dismissed.remove(&worker);
    }

    /// Whether the members wait for what this worker contributes, by the membership in force or by one that
    /// may be in force without our knowing.
    pub(super) fn is_relied_on(&self, worker: WorkerId) -> bool {
        let planned = self.proposed.iter().any(|p| p.membership.rank(worker).is_some());
        planned || self.current.rank(worker).is_some()
    }

    /// A worker that we believed to be there opened a new session.
    pub(super) fn came_back(&mut self, worker: WorkerId) {
        let evidence = "it opened a new session".to_string();
        if self.lifecycle == Lifecycle::Asynchronous {
            return self.came_back_asynchronous(worker);
        }
        let running = matches!(self.lifecycle, Lifecycle::Running | Lifecycle::Recovering { .. });
        if running && self.is_relied_on(worker) {
            self.barren_crashes += 1;
            self.recover(Reason::Link { evidence: format!("worker {worker}: {evidence}") });
        }
    }

    /// A worker has said goodbye.
    pub(super) fn left(&mut self, worker: WorkerId) {
        let relied_on = self.is_relied_on(worker);
        self.close(worker);
        if relied_on && matches!(self.lifecycle, Lifecycle::Running | Lifecycle::Recovering { .. }) {
            // It left by a plan that a recovery has overtaken.
            self.recover(Reason::Leave { worker });
        }
    }

    pub(super) fn boot_failed(&mut self, worker: WorkerId, started_s: f64, why: &str) {
        let wait_s = self.starts.failed(started_s, self.now_s);
        let alone = self.workers.values().all(|w| matches!(w.stage, Stage::Started | Stage::Booting));
        let over =
            alone && matches!(self.lifecycle, Lifecycle::Gathering { .. }) && self.no_worker_comes_up();
        let next = match self.config.spawns && !over {
            true => format!("; the next try is in {wait_s:.2} s"),
            false => String::new(),
        };
        self.journal(Journal::Warning { message: format!("worker {worker} did not come up: {why}{next}") });
        if over {
            self.give_up(RunFailure::Other(format!("no worker comes up: {why}")));
        }
    }

    /// Whether enough starts failed in a row to end a run without any worker. One that has trained has more to lose.
    pub(super) fn no_worker_comes_up(&self) -> bool {
        let trained = !self.progress.worker_counts.is_empty();
        self.starts.failures() >= if trained { MAX_REBOOT_FAILURES } else { MAX_BOOT_FAILURES }
    }

    /// A worker reports a broken connection.
    pub(super) fn lost(&mut self, worker: WorkerId, at: (u64, u64), peer: Option<WorkerId>, why: &str) {
        let (epoch, step) = at;
        if let Some(proposal) = self.proposed.iter().find(|p| p.membership.epoch == epoch) {
            let planned = &proposal.membership;
            if planned.shadows(worker) {
                // Of a plan that has failed for it before there is nothing new: another was made since.
                let news = self.workers.get(&worker).is_some_and(|w| w.incarnation <= proposal.incarnation);
                if news {
                    self.failed_to_join(worker, step);
                }
                return;
            }
            let unreachable = peer.filter(|p| planned.new_peers(worker).iter().any(|(id, _)| id == p));
            if let Some(peer) = unreachable {
                // A newcomer that members cannot reach is of no use, whichever of the two says so.
                let is_new = |id: &WorkerId| planned.shadows(*id) || planned.promoted.contains(id);
                let blames_itself = is_new(&worker) && !is_new(&peer);
                let (away, other) = if blames_itself { (worker, peer) } else { (peer, worker) };
                self.turn_away(away, &format!("worker {other} cannot reach it: {why}"));
                if !blames_itself && self.current.rank(worker).is_none() && self.is_relied_on(worker) {
                    // The members agree among themselves, and may be waiting for it by now.
                    self.recover(Reason::JoinerLost);
                }
                return;
            }
            if planned.rank(worker).is_some() {
                self.adopted(epoch, self.progress.committed());
            }
        }
        // What happened before the last recovery no longer matters: connections of a plan that it overtook may fail
        // long afterwards, and must not bring about the next. Later, even a member that did not get as far as the
        // others keeps them waiting.
        let running = self.lifecycle == Lifecycle::Running;
        if self.current.epoch != epoch && !(running && (self.formed..self.current.epoch).contains(&epoch)) {
            return;
        }
        if self.current.rank(worker).is_none() {
            return self.failed_to_join(worker, step);
        }
        if !running && let Some(peer) = peer {
            self.watch.cannot_reach(worker, peer);
            if self.formation_failures + 1 >= MAX_FORMATION_FAILURES {
                self.formation_failures = 0;
                return self.cut_one_of(worker, peer, why);
            }
        }
        // The evidence of a crash is on its way, if there was one: acting on it needs one recovery, not two.
        let dead = peer.is_some_and(|p| !self.workers.contains_key(&p));
        let at_s = if dead || peer.is_none() { self.now_s } else { self.now_s + SUSPICION_S };
        self.suspicion = format!("worker {worker}: {why}");
        self.suspect_at_s = Some(self.suspect_at_s.map_or(at_s, |s: f64| s.min(at_s)));
    }

    /// A shadow does not receive the state any more: it has to begin again.
    pub(super) fn failed_to_join(&mut self, worker: WorkerId, step: u64) {
        let incarnation = self.next_incarnation();
        let relied_on = self.is_relied_on(worker);
        if let Some(w) = self.workers.get_mut(&worker)
            && matches!(w.stage, Stage::Shadow | Stage::CaughtUp | Stage::Standby)
        {
            if w.stage == Stage::CaughtUp {
                (w.kept, w.step) = (Kept::Exactly, step);
            }
            (w.stage, w.started_s, w.incarnation) = (Stage::Standby, self.now_s, incarnation);
        }
        if relied_on {
            // The members may have switched, and wait for it.
            self.barren_crashes += 1;
            self.recover(Reason::JoinerLost);
        }
    }

    pub(super) fn recover_if_suspect(&mut self) {
        if self.suspect_at_s.is_some_and(|at_s| at_s <= self.now_s) {
            self.barren_crashes += 1;
            self.formation_failures += u32::from(self.lifecycle != Lifecycle::Running);
            let evidence = self.suspicion.clone();
            self.recover(Reason::Link { evidence });
        }
    }

    /// Forms a new membership of the members that are left.
    pub(super) fn recover(&mut self, reason: Reason) {
        let load = if let Lifecycle::Recovering { load, .. } = self.lifecycle { load } else { None };
        let computes = |id: &WorkerId| {
            self.workers.get(id).is_some_and(|w| matches!(w.stage, Stage::Active | Stage::Leaving))
        };
        let mut members: Vec<WorkerId> =
            self.current.active.iter().map(|m| m.worker).filter(computes).collect();
        // One that was a shadow a moment ago may be some steps behind; then the others may come back.
        let committed = self.progress.committed();
        if load.is_none() {
            // A worker that was away for a moment, and still has the whole state, is a member again.
            let back = |(_, w): &(&WorkerId, &Worker)| {
                let holds = w.stage == Stage::Standby && w.kept == Kept::Exactly;
                holds && w.epoch >= self.begun && w.step >= committed && w.workload.is_some()
            };
            let back = self.workers.iter().filter(back).map(|(id, _)| *id);
            members.extend(back.filter(|id| self.current.rank(*id).is_none()));
            members.truncate(self.config.virtual_nodes as usize);
        }
        if load.is_some() && !members.is_empty()
            || members.iter().any(|id| self.workers[id].step >= committed)
        {
            return self.form(&members, load, reason);
        }
        self.recovery_reason = reason;
        self.fall_back();
    }

    /// The members together have no longer the whole optimizer state: none of them can go on from what it holds.
    pub(super) fn lacking(&mut self, epoch: u64, shard: u32) {
        if self.current.epoch != epoch || self.lifecycle != Lifecycle::Running {
            return;
        }
        let message = format!(
            "the workers that held virtual shard {shard} of the optimizer's state are gone: the run goes back to its last \
             checkpoint (sharding.copies = 2 or more would have kept a copy)"
        );
        self.journal(Journal::Warning { message });
        self.strays.clear();
        self.workers.values_mut().for_each(|worker| worker.kept = Kept::Nothing);
        self.recovery_reason = Reason::Link { evidence: format!("virtual shard {shard} is lost") };
        self.fall_back();
    }

    /// No worker is known to hold all of the state: one of those that are lost may come back with it.
    /// Otherwise some may hold the state of earlier steps, shadows among them.
    pub(super) fn fall_back(&mut self) {
        self.proposed.clear();
        self.suspect_at_s = None;
        let begun = self.begun;
        for (id, worker) in &mut self.workers {
            if matches!(worker.stage, Stage::Active | Stage::Leaving) {
                // It has what the latest membership began with, also if it told nothing since.
                worker.epoch = worker.epoch.max(begun);
            }
            if worker.stage == Stage::Leaving {
                // The number of workers that are wanted has followed it already.
                self.parting.insert(*id, true);
            }
            worker.stage = match worker.stage {
                Stage::Active | Stage::Leaving | Stage::CaughtUp | Stage::Standby
                    if worker.kept != Kept::Nothing =>
                {
                    Stage::Holding
                }
                Stage::Active | Stage::Leaving | Stage::CaughtUp | Stage::Shadow => Stage::Standby,
                other => other,
            };
        }
        self.current = Default::default();
        self.lifecycle = Lifecycle::Gathering { grace_until_s: self.now_s + self.config.reattach_grace_s };
    }

    pub(super) fn form(&mut self, members: &[WorkerId], load: Option<Load>, reason: Reason) {
        self.last_epoch += 1;
        let formed = Membership { epoch: self.last_epoch, ..self.compose(members, &[]) };
        let membership = Seats::from(formed.clone());
        self.formed = self.last_epoch;
        let everyone: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, w)| !matches!(w.stage, Stage::Started | Stage::Booting))
            .map(|(id, _)| *id)
            .collect();
        for id in everyone {
            let member = membership.rank(id).is_some();
            let worker = self.workers.get_mut(&id).expect("taken from the map");
            worker.finished = None;
            worker.kept = match worker.kept {
                // Loading overwrites what is held; a worker that is told to go on without loading stands still until it
                // starts.
                _ if load.is_some() => Kept::Nothing,
                Kept::Nothing => Kept::Nothing,
                _ if member => Kept::AtLeast,
                kept => kept,
            };
            if self.paused.contains(&id) {
                worker.stage = Stage::Paused;
            } else if !member {
                (worker.stage, worker.started_s) = (Stage::Standby, self.now_s);
            } else if worker.stage != Stage::Leaving {
                worker.stage = Stage::Active;
            }
            // Until the members are known to be able to go on, no worker drops what may be needed.
            let keep = load.is_none();
            self.send(id, ToWorker::Recover { membership: formed.clone(), load, keep });
        }
        self.current = membership;
        self.proposed.clear();
        self.taking_over = false;
        self.suspect_at_s = None;
        self.settled.clear();
        self.received.clear();
        self.last_checkpoint.restart();
        self.verdicts.restart();
        self.recovery_reason = reason;
        self.lifecycle = Lifecycle::Recovering { load, ready: BTreeMap::new() };
        for (worker, replace) in std::mem::take(&mut self.parting) {
            self.asked_to_leave(worker, replace);
        }
    }

    /// Before the first membership of this coordinator: waits for workers, then forms it.
    pub(super) fn gather(&mut self, grace_until_s: f64) {
        let holding = self.staged(Stage::Holding);
        // Those who hold all that is committed need not wait for others, but together with whom they trained they go on
        // best.
        let whole = |id: &WorkerId| self.workers[id].step >= self.progress.committed();
        let enough = !self.taking_over && holding.iter().any(whole);
        if !self.strays.is_empty() && !enough && self.now_s < grace_until_s {
            // Others start meanwhile, unless a whole run's workers are about to come back.
            if !self.taking_over {
                self.spawn_missing();
            }
            return;
        }
        if self.now_s >= grace_until_s {
            // A worker that is not back by now has died, or was away for too long.
            self.strays.clear();
        }
        let holds = holding.iter().map(|id| self.workers[id].step).max();
        if self.waits_for_writing(holds.unwrap_or(0)) {
            return;
        }
        let members = self.best_holders(&holding);
        if !members.is_empty() {
            return self.form(&members, None, Reason::Reattached);
        }
        for id in holding {
            self.workers.get_mut(&id).expect("it is there").stage = Stage::Standby;
        }
        if let Some(failure) = self.failure.take() {
            return self.give_up(failure);
        }
        if self.stopping {
            let to = self.checkpoint.unwrap_or(0);
            if to < self.progress.committed() {
                // No worker that could hand the rest over is left.
                self.journal(Journal::RolledBack { to });
                self.progress.roll_back(to);
            }
            return self.end(End { how: RunOutcome::Stopped, digest: None });
        }
        self.spawn_missing();
        let standby = self.staged(Stage::Standby);
        let hopeless = self.starts.failures() >= MAX_BOOT_FAILURES && !standby.is_empty();
        if standby.len() < self.wanted as usize && !hopeless && !self.begins_without_others(&standby) {
            return;
        }
        let members = standby[..standby.len().min(self.wanted as usize)].to_vec();
        let to = self.checkpoint.unwrap_or(0);
        if self.config.resumed.is_some() {
            self.asynchronous.resume_at(to);
        }
        if to < self.progress.committed() {
            self.journal(Journal::RolledBack { to });
            self.progress.roll_back(to);
        } else if to > self.progress.committed() {
            // The checkpoint came, but not the report of the steps in it.
            let first = self.progress.committed();
            self.journal(Journal::FoundInCheckpoint { first, last: to - 1 });
            self.commit_to(to);
        }
        let (load, reason) = match self.checkpoint {
            // The initial weights.
            Some(0) => (Load::Checkpoint(0), Reason::Formed),
            Some(step) => (Load::Checkpoint(step), Reason::Restored { step }),
            None => (Load::Fresh, Reason::Formed),
        };
        self.form(&members, Some(load), reason);
    }

    pub(super) fn ready(&mut self, worker: WorkerId, epoch: u64, held: Ready) {
        if let Lifecycle::Recovering { ready, .. } = &mut self.lifecycle
            && self.current.epoch == epoch
            && self.current.rank(worker).is_some()
        {
            ready.insert(worker, held);
            // All the others wait for the last.
            self.has_news |= ready.len() >= self.current.active.len();
        }
    }

    /// Takes back what was committed after `step`: the workers that had it are gone.
    fn roll_back(&mut self, step: u64) {
        if step < self.progress.committed() {
            self.journal(Journal::RolledBack { to: step });
            self.progress.roll_back(step);
            // A phase that lies before what was committed is to be done again, too.
            if self.config.resumed.is_some() {
                self.asynchronous.resume_at(step);
            }
        }
    }

    /// Goes on when all members of a recovery are ready.
    pub(super) fn try_start(&mut self) {
        self.recover_if_suspect();
        let Lifecycle::Recovering { ready, .. } = &self.lifecycle else { return };
        // Only members are among them.
        if ready.len() < self.current.active.len() {
            return;
        }
        let ready = ready.clone();
        let step = ready.values().map(|r| r.step).max().expect("a recovery has members");
        let most = ready
            .iter()
            .filter(|(_, r)| r.step == step)
            .max_by_key(|(id, r)| (r.last, std::cmp::Reverse(**id)));
        let (source, last) = most.map(|(id, r)| (*id, r.last)).expect("the maximum is among them");
        // A second attempt to hand over the same result would fail as the first.
        let hopeless = |id: &WorkerId, at: u64| at < step && (at + last != step || self.lagging.contains(id));
        let too_far: Vec<WorkerId> =
            ready.iter().filter(|(id, r)| hopeless(id, r.step)).map(|(id, _)| *id).collect();
        if !too_far.is_empty() {
            let members: Vec<WorkerId> = ready.keys().copied().filter(|id| !too_far.contains(id)).collect();
            let reason = self.recovery_reason.clone();
            return self.form(&members, None, reason);
        }
        let somebody = !self.strays.is_empty() || self.is_further(&ready, step);
        if step < self.progress.committed() && somebody {
            // A worker that has the rest may come back, or has.
            return self.fall_back();
        }
        if self.waits_for_writing(step) {
            return;
        }
        if let Some(checkpoint) = self.checkpoint.filter(|c| *c > step) {
            let members: Vec<WorkerId> = ready.keys().copied().collect();
            return self.form(
                &members,
                Some(Load::Checkpoint(checkpoint)),
                Reason::Restored { step: checkpoint },
            );
        }
        let behind: Vec<WorkerId> = ready.iter().filter(|(_, r)| r.step < step).map(|(id, _)| *id).collect();
        self.roll_back(step);
        self.progress.goes_on_from(step);
        self.lagging.clone_from(&behind);
        let formed = self.current.clone();
        // A worker that applied what is about to be done again may come back: the updates must be the same again.
        let (trained, accumulation) = ready.values().map(|r| r.trained).max().unwrap_or_default();
        self.current.accumulate(if trained > 0 { accumulation.max(1) } else { self.accumulation });
        if !self.batch_asked {
            self.accumulation = self.current.accumulation;
        }
        let accumulation = self.current.accumulation;
        let epoch = self.current.epoch;
        for (id, at) in &ready {
            let worker = self.workers.get_mut(id).expect("a lost member would have begun a new recovery");
            (worker.epoch, worker.step, worker.kept) = (epoch, at.step, Kept::AtLeast);
            self.send(*id, ToWorker::Start { epoch, step, behind: behind.clone(), source, accumulation });
        }
        self.lifecycle = Lifecycle::Running;
        (self.begun, self.begun_step) = (epoch, step);
        self.forget_other_states(&formed);
        self.formation_failures = 0;
        self.watch.all_reach_all();
        let reason = self.recovery_reason.clone();
        self.journal_membership(step, &reason);
        self.back_together(step);
        self.commit();
    }
}
