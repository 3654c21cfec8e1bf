//! Planned changes: which membership is wanted next, and what is learnt when it begins.

use std::ops::Range;

use bellwether_core::record::{Event as Journal, Resize, RunFailure, RunOutcome};

use super::{Action, Coordinator, End, Kept, Lifecycle, MAX_BOOT_FAILURES, Proposal, Seats, Stage, Worker};
use crate::membership::{Active, Membership, Reason, Shadow, ToWorker, WorkerId, by_host};
use crate::tree::ranges_by_speed;

/// How long warm newcomers wait for others that are still starting, so that they join together.
pub(super) const WAVE_PATIENCE_S: f64 = 2.0;

/// Reports are no older than this, so that a plan for a later boundary can still be replaced.
const UNHEARD_S: f64 = 0.5;

impl Coordinator {
    /// Compares what is with what is wanted and takes the next step towards it.
    pub(super) fn advance(&mut self) {
        let workers = &self.workers;
        self.replacing.retain(|id| workers.get(id).is_some_and(|w| w.stage == Stage::Active));
        if self.barren_crashes > self.config.max_barren_crashes {
            let crashes = self.barren_crashes;
            let reason = format!("{crashes} workers were lost in a row without a step between them");
            return self.give_up(RunFailure::Other(reason));
        }
        match self.lifecycle {
            Lifecycle::Gathering { grace_until_s } => self.gather(grace_until_s),
            Lifecycle::Recovering { .. } => self.try_start(),
            Lifecycle::Running => {
                self.recover_if_suspect();
                self.finish_if_done();
                if self.lifecycle == Lifecycle::Running && !self.last_checkpoint.is_overdue() {
                    self.await_verdict();
                    self.ask_for_checkpoint();
                    self.spawn_missing();
                    self.spawn_servers();
                    self.propose();
                }
            }
            Lifecycle::Asynchronous => self.advance_phase(),
            Lifecycle::Ended => {}
        }
    }

    /// Workers that should exist: those wanted now, or at the next scheduled change (they boot ahead), and one for
    /// each that is to be replaced.
    pub(super) fn needed(&self) -> u32 {
        let next = self.schedule.front().map_or(0, |(_, workers)| *workers);
        self.wanted.max(next).min(self.config.virtual_nodes) + self.replacing.len() as u32
    }

    pub(super) fn spawn_missing(&mut self) {
        // Without members, a run that is decided to end needs new ones to come to its end.
        let is_ending = self.stopping || self.ends_here() && self.lifecycle == Lifecycle::Running;
        if !self.config.spawns
            || is_ending && !self.lacks_workers()
            || self.failure.is_some()
            || !self.starts.are_due(self.now_s)
        {
            return;
        }
        let present = self.workers.values().filter(|w| w.stage != Stage::Leaving).count();
        for _ in present..self.needed() as usize {
            let worker = self.next_worker();
            let incarnation = self.next_incarnation();
            let entry = Worker { is_ours: true, ..Worker::new(self.now_s, incarnation) };
            self.workers.insert(worker, entry);
            self.journal(Journal::WorkerStarted { worker });
            self.actions.push(Action::Spawn(worker));
        }
    }

    pub(super) fn staged(&self, stage: Stage) -> Vec<WorkerId> {
        self.workers.iter().filter(|(_, w)| w.stage == stage).map(|(id, _)| *id).collect()
    }

    /// The membership of these workers: those of one host follow each other, and all share the virtual nodes in rank
    /// order, by speed where speeds are known.
    pub(super) fn compose(&self, active: &[WorkerId], shadows: &[WorkerId]) -> Membership {
        let address = |id: &WorkerId| self.workers[id].address.clone();
        let active = &by_host(active, |id| &self.workers[id].address)[..];
        Membership {
            epoch: 0,
            active: active
                .iter()
                .zip(self.shares(active))
                .map(|(id, nodes)| Active { worker: *id, address: address(id), nodes })
                .collect(),
            shadows: shadows.iter().map(|id| Shadow { worker: *id, address: address(id) }).collect(),
            promoted: active.iter().copied().filter(|id| self.current.rank(*id).is_none()).collect(),
            from_step: 0,
            hold_at: self.holds_at(),
            decided: self.goes_on_after(),
            stop: false,
            accumulation: self.accumulation,
            paused: self.paused.iter().copied().collect(),
            sharded: self.config.sharded,
        }
    }

    /// The virtual nodes of these workers, in rank order.
    fn shares(&self, active: &[WorkerId]) -> Vec<Range<u32>> {
        let speed = |id: &WorkerId| self.config.speeds.get(id).copied().unwrap_or(1.0);
        let speeds: Vec<f64> = active.iter().map(speed).collect();
        ranges_by_speed(self.config.virtual_nodes, &speeds)
    }

    /// The next boundary at which the members wait for another membership, or to hand their state over.
    fn holds_at(&self) -> Option<u64> {
        let scheduled = self.schedule.front().map(|(step, _)| *step);
        scheduled.into_iter().chain(self.hands_over_at()).min()
    }

    /// The next membership on the way to what is wanted, with its reason; `None` when nothing is to do.
    fn desired(&self) -> Option<(Membership, Reason)> {
        if self.current.stop {
            // They hand their state over, and take part in nothing else.
            return None;
        }
        // An earlier plan may be in force already: a worker that is not active there has left, or starts from scratch.
        let sure = |id: &WorkerId| self.proposed.iter().all(|p| p.membership.rank(*id).is_some());
        let mut members: Vec<WorkerId> = self.current.active.iter().map(|m| m.worker).filter(sure).collect();
        if members.is_empty() {
            return None;
        }
        if self.stopping || self.ends_here() {
            let reason = if self.stopping { Reason::Stop } else { Reason::EarlyEnd };
            return Some((Membership { stop: true, ..self.compose(&members, &[]) }, reason));
        }
        let leaves = |id: &WorkerId| {
            self.paused.contains(id) || self.workers.get(id).is_none_or(|w| w.stage == Stage::Leaving)
        };
        let stays = |id: &WorkerId| !leaves(id);
        let now: Vec<WorkerId> = members.iter().copied().filter(stays).collect();
        let complete = self.staged(Stage::CaughtUp);
        let (mut caught_up, again): (Vec<WorkerId>, Vec<WorkerId>) = complete.into_iter().partition(sure);
        if !self.proposed.is_empty() {
            // All earlier plans promote these: they count as members.
            members.append(&mut caught_up);
        }
        let staying: Vec<WorkerId> = members.iter().copied().filter(stays).collect();
        let wanted = self.wanted as usize;
        let remains = |id: &WorkerId| self.proposed.iter().all(|p| p.membership.contains(*id));
        let receiving: Vec<WorkerId> =
            self.staged(Stage::Shadow).into_iter().chain(again).filter(remains).collect();
        let leaving = members.iter().copied().find(leaves);
        let joining = if receiving.is_empty() { caught_up.len() } else { 0 };
        let mut active = self.relieved((staying.len() + joining).saturating_sub(wanted), &staying);
        active.truncate(wanted);
        let joins = &caught_up[..joining.min(wanted - active.len())];
        active.extend(joins);
        self.keep_one(&mut active, wanted);
        if !active.is_empty() && (leaving.is_some() || active != now) {
            let reason = match leaving {
                Some(worker) if self.paused.contains(&worker) => Reason::Pause { worker },
                Some(worker) => Reason::Leave { worker },
                None => Reason::Resize { wanted: self.wanted },
            };
            let mut shadows = receiving;
            shadows.extend(caught_up.iter().filter(|id| !active.contains(id)));
            shadows.truncate((self.needed() as usize).saturating_sub(active.len()));
            return Some((self.compose(&active, &self.newcomers(active.len(), &shadows)), reason));
        }
        let calm = receiving.is_empty() && caught_up.is_empty() && self.proposed.is_empty();
        if let Some(reason) = self.changed(&now).filter(|_| calm) {
            return Some((self.compose(&now, &[]), reason));
        }
        // A plan that not all can prepare has to be replaced, if it was to change anything.
        let stuck = self.proposed.last().is_some_and(|p| !self.intact(p));
        let undone = self.current.active.iter().map(|m| m.worker).ne(members.iter().copied());
        if receiving.is_empty() || stuck {
            let mut shadows = caught_up.clone();
            shadows.extend(receiving);
            let newcomers = self.newcomers(staying.len(), &shadows);
            if newcomers.len() > caught_up.len() || stuck && undone {
                return Some((self.compose(&members, &newcomers), Reason::Shadow));
            }
        }
        self.due_later(&members, &staying, &caught_up)
    }

    /// The membership of a later boundary, once everything else is settled.
    fn due_later(
        &self,
        members: &[WorkerId],
        staying: &[WorkerId],
        caught_up: &[WorkerId],
    ) -> Option<(Membership, Reason)> {
        let next = self.holds_at();
        // A plan that not all can prepare will never be adopted.
        let settled = self.proposed.last().is_none_or(|p| !self.intact(p));
        let mut shadows = self.staged(Stage::Shadow);
        let go_on = |mut shadows: Vec<WorkerId>| {
            shadows.extend(self.staged(Stage::CaughtUp));
            (self.compose(members, &shadows), Reason::Resize { wanted: self.wanted })
        };
        if self.awaited_verdict().is_some() && settled && !self.proposed.is_empty() {
            // Members that could prepare that plan wait in a round for those that could not, and do nothing else: the
            // first of them sends no checkpoint, without which there is no verdict.
            return Some(go_on(shadows));
        }
        // Another change was asked for than the one for which the members wait.
        let in_vain = |at: u64| next.is_none_or(|next| at < next);
        if settled && self.current.hold_at.is_some_and(in_vain) {
            return Some(go_on(shadows));
        }
        let first = self.schedule.front().map_or(u64::MAX, |(step, _)| *step);
        if self.hands_over_at().is_some_and(|step| step <= first) {
            shadows.extend(self.staged(Stage::CaughtUp).iter().filter(|id| !members.contains(id)));
            return self.hand_over(members, &shadows);
        }
        // Two plans crossed, and the members do not know where to wait next.
        let unknown = settled && next != self.current.hold_at;
        self.scheduled(staying, caught_up).or_else(|| unknown.then(|| go_on(shadows)))
    }

    /// Those of `staying` that remain when up to `spare` of them may go: those to be replaced go first.
    fn relieved(&self, spare: usize, staying: &[WorkerId]) -> Vec<WorkerId> {
        let mut spare = spare;
        let mut goes = |id: &WorkerId| {
            let goes = spare > 0 && self.replacing.contains(id);
            spare -= usize::from(goes);
            goes
        };
        staying.iter().copied().filter(|id| !goes(id)).collect()
    }

    /// Why the same members should go on otherwise than now.
    fn changed(&self, members: &[WorkerId]) -> Option<Reason> {
        let accumulation = self.accumulation;
        if members.is_empty() {
            None
        } else if accumulation != self.current.accumulation {
            Some(Reason::Batch { accumulation })
        } else {
            self.uneven(members).then_some(Reason::Speeds)
        }
    }

    /// Of several members one stays for another plan when all are to go at once: until those that came are known to be
    /// members, the ends of all that were would look like the loss of the state.
    fn keep_one(&self, active: &mut Vec<WorkerId>, wanted: usize) {
        let members = &self.current.active;
        let known = |id: &WorkerId| self.current.rank(*id).is_some();
        let present = |id: &WorkerId| self.workers.contains_key(id);
        let sure = |id: &WorkerId| self.proposed.iter().all(|p| p.membership.rank(*id).is_some());
        if members.len() > 1
            && !active.is_empty()
            && !active.iter().any(known)
            && let Some(keeper) = members.iter().map(|m| m.worker).find(|id| present(id) && sure(id))
        {
            active.insert(0, keeper);
            active.truncate(wanted.max(1));
        }
    }

    /// Whether the members share the virtual nodes otherwise than their speeds ask for.
    fn uneven(&self, members: &[WorkerId]) -> bool {
        self.current.active.iter().map(|member| &member.nodes).ne(&self.shares(members))
    }

    /// Warm workers to admit as shadows beside `present` others, and those that are shadows already.
    fn newcomers(&self, present: usize, already: &[WorkerId]) -> Vec<WorkerId> {
        let mut shadows = already.to_vec();
        let standby = self.staged(Stage::Standby);
        let booting = self.workers.values().any(|w| matches!(w.stage, Stage::Started | Stage::Booting));
        let patient = standby.iter().any(|id| self.now_s - self.workers[id].started_s > WAVE_PATIENCE_S);
        if !booting || patient {
            let room = (self.needed() as usize).saturating_sub(present + already.len());
            shadows.extend(standby.into_iter().take(room));
        }
        shadows
    }

    /// The change that the schedule asks for next, once its newcomers hold the state.
    fn scheduled(&self, staying: &[WorkerId], caught_up: &[WorkerId]) -> Option<(Membership, Reason)> {
        let (step, workers) = *self.schedule.front()?;
        if self.verdict_holds_at().is_some_and(|at| at < step) {
            // It could not be replaced any more, and the members may have to wait for long before they come there.
            return None;
        }
        let mut workers = workers.clamp(1, self.config.virtual_nodes) as usize;
        let ready = staying.len() + caught_up.len();
        if workers > ready && self.config.spawns && self.starts.failures() >= MAX_BOOT_FAILURES {
            // No other worker will come: better fewer than none.
            let coming = [Stage::Started, Stage::Booting, Stage::Standby, Stage::Shadow];
            if !self.workers.values().any(|w| coming.contains(&w.stage)) {
                workers = ready;
            }
        }
        if workers > ready || ready == 0 {
            return None;
        }
        let active: Vec<WorkerId> = staying.iter().chain(caught_up).copied().take(workers).collect();
        let next = Membership {
            from_step: step,
            hold_at: self.schedule.get(1).map(|(step, _)| *step),
            ..self.compose(&active, &[])
        };
        Some((next, Reason::Resize { wanted: workers as u32 }))
    }

    fn propose(&mut self) {
        // Time alone changes a plan only where workers wait for others that are still starting.
        if !self.has_news
            && self.actions.is_empty()
            && !self.workers.values().any(|w| w.stage == Stage::Standby)
        {
            return;
        }
        let Some((mut next, reason)) = self.desired() else { return };
        if let Some(latest) = self.proposed.last() {
            let proposed = &latest.membership;
            let future = proposed.from_step > self.progress.committed() + self.steps_unheard_of();
            // The same result at another boundary is another plan.
            let same = proposed.same_as(&next) && (!next.stop || proposed.from_step == next.from_step);
            if self.intact(latest) && (same || !(future || self.stopping || self.ends_here())) {
                return;
            }
        } else {
            let receives = |id: WorkerId| matches!(self.workers[&id].stage, Stage::Shadow | Stage::CaughtUp);
            if self.current.same_as(&next) && next.shadows.iter().all(|m| receives(m.worker)) {
                return;
            }
        }
        self.last_epoch += 1;
        next.epoch = self.last_epoch;
        let next = Seats::from(next);
        // Every worker that takes part now or may do so by an earlier plan must hear of it, or it would wait for ever.
        let concerned = |id: WorkerId| {
            let earlier = self.proposed.iter().any(|p| p.membership.contains(id));
            earlier || self.current.contains(id) || next.contains(id)
        };
        let concerned: Vec<WorkerId> = self.workers.keys().copied().filter(|id| concerned(*id)).collect();
        for worker in concerned {
            if let Some(w) = self.workers.get_mut(&worker)
                && w.stage == Stage::Standby
                && next.shadows(worker)
            {
                // A newcomer drops what it holds.
                w.kept = Kept::Nothing;
            }
            self.send(worker, ToWorker::Prepare(Membership::clone(&next)));
        }
        let (since_s, incarnation) = (self.now_s, self.incarnations);
        self.proposed.push(Proposal { membership: next, reason, since_s, incarnation });
    }

    /// Steps that the members may be ahead of what is known.
    fn steps_unheard_of(&self) -> u64 {
        let update = u64::from(self.config.max_accumulation.max(1));
        2 * update + self.progress.mean_step_s().map_or(0, |step_s| (UNHEARD_S / step_s.max(1e-6)) as u64)
    }

    /// Whether every worker in it is there and still as it was when the plan was made.
    fn intact(&self, proposal: &Proposal) -> bool {
        let as_before =
            |id: WorkerId| self.workers.get(&id).is_some_and(|w| w.incarnation <= proposal.incarnation);
        let Membership { active, shadows, .. } = &*proposal.membership;
        active.iter().all(|m| as_before(m.worker)) && shadows.iter().all(|m| as_before(m.worker))
    }

    /// Takes note that a member is in `epoch`; returns whether that is the membership in force.
    pub(super) fn adopted(&mut self, epoch: u64, step: u64) -> bool {
        let place = self.proposed.iter().position(|p| p.membership.epoch == epoch);
        if let Some(place) = place.filter(|_| self.lifecycle == Lifecycle::Running) {
            let proposal = self.proposed.drain(..=place).next_back().expect("it has a place");
            self.adopt(proposal, step);
        }
        self.current.epoch == epoch
    }

    fn adopt(&mut self, proposal: Proposal, step: u64) {
        // What the members of the one before have proven.
        self.commit();
        let Proposal { membership: next, ref reason, since_s, incarnation } = proposal;
        let (from, to) = (self.current.active.len() as u32, next.active.len() as u32);
        for member in &self.current.active {
            if next.rank(member.worker).is_none()
                && let Some(w) = self.workers.get_mut(&member.worker)
            {
                let paused = next.paused.contains(&member.worker);
                w.stage = if paused { Stage::Paused } else { Stage::Leaving };
                if paused {
                    w.kept = Kept::Nothing;
                }
            }
        }
        let mut dropped = Vec::new();
        for (id, worker) in &mut self.workers {
            match worker.stage {
                Stage::Leaving | Stage::Paused => {}
                // It holds what this membership begins with, whatever it has said of that by now.
                _ if next.rank(*id).is_some() => {
                    (worker.stage, worker.kept, worker.epoch) = (Stage::Active, Kept::AtLeast, next.epoch);
                }
                // A worker that came back since then does not belong to this plan.
                _ if next.shadows(*id) && worker.incarnation <= incarnation => {
                    (worker.stage, worker.kept, worker.started_s) =
                        (Stage::Shadow, Kept::Nothing, self.now_s);
                }
                _ if next.shadows(*id) => worker.stage = Stage::Standby,
                Stage::Shadow | Stage::CaughtUp => dropped.push(*id),
                _ => {}
            }
        }
        for worker in dropped {
            self.dismiss(worker, "it is not needed any more");
            self.close(worker);
        }
        if self.schedule.front().is_some_and(|(at, _)| *at == next.from_step && next.from_step > 0) {
            self.schedule.pop_front();
            (self.wanted, self.wanted_since_s) = (to, since_s);
        }
        (self.current, self.applied) = (next, None);
        (self.begun, self.begun_step) = (self.current.epoch, step);
        self.journal_membership(step, reason);
        for (worker, replace) in std::mem::take(&mut self.parting) {
            self.asked_to_leave(worker, replace);
        }
        if from != to {
            let hidden_s = self.now_s - if to > from { self.wanted_since_s.min(since_s) } else { since_s };
            let resize = Resize { step, from, to, stall_s: 0.0, reason: reason.to_string() };
            self.progress.resized(self.current.epoch, resize, hidden_s);
        }
    }

    pub(super) fn journal_membership(&mut self, step: u64, reason: &Reason) {
        let m = &self.current;
        let event = Journal::Membership {
            epoch: m.epoch,
            step,
            workers: m.active.iter().map(|a| a.worker).collect(),
            bounds: m
                .active
                .iter()
                .map(|a| a.nodes.start)
                .chain(m.active.last().map(|a| a.nodes.end))
                .collect(),
            shadows: m.shadows.iter().map(|s| s.worker).collect(),
            accumulation: m.accumulation.max(1),
            reason: reason.to_string(),
        };
        let count = m.active.len() as u32;
        if self.progress.worker_counts.last() != Some(&count) || m.shadows.is_empty() {
            self.progress.worker_counts.push(count);
        }
        self.journal(event);
    }

    /// Ends the run when all members have handed over the same result.
    fn finish_if_done(&mut self) {
        let hands_over = self.current.stop && !self.stopping && !self.ends_here() && self.failure.is_none();
        let finished = |id: &WorkerId| self.workers.get(id).and_then(|w| w.finished);
        let ends: Option<Vec<_>> = self.current.active.iter().map(|m| finished(&m.worker)).collect();
        let Some(ends) = ends else { return };
        let Some((step, digest)) = ends.first().copied() else { return };
        if ends.iter().any(|end| *end != (step, digest)) {
            let reason = "workers disagree about the trained parameters; please report this".to_string();
            return self.end(End { how: RunOutcome::Broken(reason), digest: None });
        }
        let here = match self.diverged {
            // A state that led to no finite loss replaces no checkpoint, unless it was to be kept before.
            true => self.settled.contains(&step) || !self.is_kept_anyway(step),
            false => self.settled.contains(&step) || hands_over && self.received.contains(&step),
        };
        if !here {
            return self.await_last_checkpoint(step, digest);
        }
        if hands_over && self.total_steps.is_some_and(|total| step < total) {
            self.checkpoint = self.checkpoint.max(Some(step));
            return self.begin_asynchronous(step);
        }
        let how = match self.failure.take() {
            Some(failure) => RunOutcome::Failed(failure),
            None if self.last_step().is_some_and(|last| step >= last) => RunOutcome::Finished,
            None => RunOutcome::Stopped,
        };
        self.end(End { how, digest: Some(digest) });
    }

    pub(super) fn give_up(&mut self, failure: RunFailure) {
        self.end(End { how: RunOutcome::Failed(failure), digest: None });
    }

    pub(super) fn end(&mut self, end: End) {
        self.lifecycle = Lifecycle::Ended;
        let servers = self.server_ids();
        for worker in self.workers.keys().copied().chain(servers).collect::<Vec<_>>() {
            self.send(worker, ToWorker::Bye { reason: "the run is over".into(), refused: false });
        }
        self.journal(Journal::Ended {
            step: self.progress.committed(),
            outcome: end.how.clone(),
            params_digest: end.digest.map(|d| crate::state::hex(&d)),
        });
        self.actions.push(Action::End(end));
    }
}
