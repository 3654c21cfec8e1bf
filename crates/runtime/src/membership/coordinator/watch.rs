//! Who keeps a run from getting on, though it says that it lives.
//!
//! Members tell where they stand with each heartbeat, and at once when they are asked; they are asked as soon as the
//! run takes conspicuously longer than it should. A member is late if others wait for it, directly or not, and it
//! computes, evaluates or sends for much longer than that ever took. If all members wait and none works, a connection
//! swallows what it is given.
//!
//! No member is charged with time in which the machine gave it no processor, nor with more than the run stood still
//! while the coordinator listened. The limits follow what was measured in this run, so that a slow machine has longer
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::record::Event as Journal;

use super::{Coordinator, Lifecycle, Stage, Worker};
use crate::membership::{Activity, Position, ToWorker, WorkerId, reporting};

mod limits;
mod links;
mod phases;
mod silence;

use limits::Limits;

/// Seconds between two questions.
const ASK_S: f64 = 0.1;

/// Seconds beyond one and a half steps after which members are asked where they are; many members report less often,
/// and are asked as much later.
const REST_S: f64 = 0.25;

/// Seconds for which an answer counts.
const FRESH_S: f64 = 0.3;

/// What changes when a run gets on.
#[derive(Debug, Clone, PartialEq, Default)]
struct Mark {
    lifecycle: u8,
    epoch: u64,
    committed: u64,
    evaluated: Option<u64>,
    /// Whatever else members have done: recoveries formed, states sent, digests told.
    done: usize,
    furthest: u64,
}

/// What is known of how a run gets on.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch {
    mark: Mark,
    /// When it got on for the last time.
    moved_s: f64,
    asked_s: f64,
    limits: Limits,
    /// Whom people were told of: the late one (and its peer), and since when.
    told: BTreeMap<(WorkerId, Option<WorkerId>), Told>,
    /// Servers for which a worker was cut off, since when nothing was committed.
    suspects: BTreeSet<WorkerId>,
    /// Pairs that did not reach each other since the last membership was formed.
    unreachable: BTreeSet<(WorkerId, WorkerId)>,
    /// Newcomers that members did not reach.
    turned_away: BTreeSet<WorkerId>,
}

/// That a member is late.
#[derive(Debug, Clone)]
struct Told {
    since_s: f64,
    /// When people were told.
    told_s: f64,
    /// The reason is that nothing is heard of it.
    silent: bool,
}

/// Who is late, with what, and for how long against what was expected.
#[derive(Debug, Clone)]
struct Late {
    worker: WorkerId,
    peer: Option<WorkerId>,
    doing: String,
    seconds: f64,
    warn_s: f64,
    lose_s: f64,
}

impl Coordinator {
    /// A member told where it stands.
    pub(super) fn stands(&mut self, worker: WorkerId, position: Position) {
        let now_s = self.now_s;
        let Some(entry) = self.workers.get_mut(&worker) else { return };
        if entry.answered_s < self.watch.asked_s {
            self.watch.limits.answered(now_s - self.watch.asked_s);
        }
        entry.answered_s = now_s;
        if entry.stage == Stage::Booting {
            let before = entry.position.as_ref().map(|(_, before)| before.activity);
            if before != Some(position.activity) {
                // Each stage has an allowance of its own.
                entry.started_s = now_s;
            }
        }
        self.watch.limits.learn(&position);
        entry.position = Some((now_s, position));
    }

    /// What a worker is doing, for people; empty when it has not told.
    pub fn doing(&self, worker: WorkerId) -> String {
        let position = self.workers.get(&worker).and_then(|w| w.position.as_ref());
        position.map_or_else(String::new, |(_, position)| position.sentence())
    }

    /// The coordinator itself did not listen for that long.
    pub(super) fn spare_watch(&mut self, seconds: f64) {
        self.watch.moved_s += seconds;
        self.watch.asked_s += seconds;
        for worker in self.workers.values_mut() {
            worker.answered_s += seconds;
            if let Some((told_s, _)) = &mut worker.position {
                // Where it stood before no longer matters.
                *told_s = told_s.min(self.now_s - 2.0 * FRESH_S);
            }
        }
    }

    /// Looks whether the run gets on, and if not, who keeps it.
    pub(super) fn watch(&mut self) {
        self.note_whether_it_moves();
        self.hear_the_silent();
        if self.relied_on().is_empty() {
            self.watch.moved_s = self.now_s;
            return;
        }
        let quiet_s = self.now_s - self.watch.moved_s;
        let longer_s = reporting::longer_s(self.current.active.len());
        if quiet_s > REST_S + longer_s + 1.5 * self.usual_step_s() {
            self.ask();
            self.judge(quiet_s);
        }
    }

    /// Seconds that an update is expected to take.
    fn usual_step_s(&self) -> f64 {
        let step_s = self.progress.mean_step_s().or(self.config.expected_step_s).unwrap_or(0.0);
        f64::from(self.current.accumulation.max(1)) * step_s
    }

    fn note_whether_it_moves(&mut self) {
        let lifecycle = match &self.lifecycle {
            Lifecycle::Gathering { .. } => 0,
            Lifecycle::Recovering { .. } => 1,
            Lifecycle::Running => 2,
            Lifecycle::Asynchronous => 3,
            Lifecycle::Ended => 4,
        };
        let ready = if let Lifecycle::Recovering { ready, .. } = &self.lifecycle { ready.len() } else { 0 };
        let finished = self.workers.values().filter(|w| w.finished.is_some()).count();
        let mark = Mark {
            lifecycle,
            epoch: self.current.epoch,
            committed: self.progress.committed(),
            evaluated: self.progress.evaluation.map(|evaluation| evaluation.step),
            done: ready + finished + self.settled.len() + self.received.len(),
            furthest: self
                .current
                .active
                .iter()
                .filter_map(|m| Some(self.workers.get(&m.worker)?.step))
                .max()
                .unwrap_or(0),
        };
        if mark == self.watch.mark {
            return;
        }
        let before = std::mem::replace(&mut self.watch.mark, mark.clone());
        self.watch.moved_s = self.now_s;
        if mark.committed != before.committed {
            self.watch.suspects.clear();
        }
        let told = self.watch.told.iter().filter(|(_, told)| !told.silent);
        let told: Vec<_> = told.map(|(who, _)| *who).collect();
        // A new membership does not clear it: a member that is late in it, too, is named again.
        let trained = mark.committed > before.committed
            || mark.furthest > before.furthest
            || mark.evaluated != before.evaluated;
        for who in told {
            if trained {
                self.is_in_time(who);
            } else {
                self.watch.told.remove(&who);
            }
        }
    }

    /// A member that people were told of got on, or is gone.
    fn is_in_time(&mut self, who: (WorkerId, Option<WorkerId>)) {
        let Some(told) = self.watch.told.remove(&who) else { return };
        if self.workers.contains_key(&who.0) || self.is_server(who.0) {
            let seconds = self.now_s - told.since_s;
            self.watch.limits.was_wrong(self.now_s);
            self.journal(Journal::InTime { worker: who.0, peer: who.1, seconds });
        }
    }

    /// Members, by the membership in force or by one that may be in force without our knowing.
    fn relied_on(&self) -> Vec<WorkerId> {
        match self.lifecycle {
            Lifecycle::Running | Lifecycle::Recovering { .. } => {}
            Lifecycle::Asynchronous => return self.relied_on_asynchronous(),
            Lifecycle::Gathering { .. } | Lifecycle::Ended => return Vec::new(),
        }
        let known = |id: &WorkerId| {
            self.is_relied_on(*id)
                && self.workers.get(id).is_some_and(|w| !matches!(w.stage, Stage::Started | Stage::Booting))
        };
        self.workers.keys().copied().filter(known).collect()
    }

    /// Asks all members where they stand, unless that was done just now.
    fn ask(&mut self) {
        if self.now_s - self.watch.asked_s < ASK_S {
            return;
        }
        self.watch.asked_s = self.now_s;
        for worker in self.relied_on() {
            self.send(worker, ToWorker::Inquire { explain: false });
        }
    }

    /// Where a member stands, if it told just now.
    fn position(&self, worker: WorkerId) -> Option<&Position> {
        let (told_s, position) = self.workers.get(&worker)?.position.as_ref()?;
        (self.now_s - told_s <= FRESH_S + self.watch.limits.answer_s()).then_some(position)
    }

    /// Decides who is late. The run has stood still for so long.
    fn judge(&mut self, quiet_s: f64) {
        let members = self.relied_on();
        let positions: BTreeMap<WorkerId, Position> =
            members.iter().filter_map(|id| Some((*id, self.position(*id)?.clone()))).collect();
        // A member that is in an exchange and waits for no other is at work, or stands still in the middle of the
        // exchange.
        let works = |position: &&Position| position.activity != Activity::Idle && !position.waits();
        let late: Vec<Late> = positions
            .iter()
            .filter(|(_, position)| works(position))
            .map(|(id, position)| self.late(*id, position, quiet_s))
            .filter(|late| late.seconds > late.warn_s)
            .collect();
        if !late.is_empty() {
            return self.blame(&late, members.len());
        }
        if self.lifecycle == Lifecycle::Asynchronous {
            return self.judge_servers(&positions, quiet_s);
        }
        // While a member works, or none has told, all may be as it should.
        if positions.len() == members.len() && !positions.values().any(|position| works(&position)) {
            self.judge_links(&positions, quiet_s);
        }
    }

    /// How long a member has been at what it is doing, against what that may take.
    fn late(&self, worker: WorkerId, position: &Position, quiet_s: f64) -> Late {
        let (warn_s, lose_s) = self.limits_of(position);
        let seconds = (position.since_s - position.starved_s).min(quiet_s);
        let thread =
            if position.thread.is_empty() { String::new() } else { format!(": {}", position.thread) };
        let doing = format!("{}{thread}", position.sentence());
        Late { worker, peer: None, doing, seconds, warn_s, lose_s }
    }

    fn limits_of(&self, position: &Position) -> (f64, f64) {
        if matches!(position.activity, Activity::Forming | Activity::Checkpointing) {
            // Each of these moves, however slowly: a member that makes connections gives up by itself.
            let whole_s = self.transfer_limit_s();
            return (whole_s, 1.5 * whole_s);
        }
        let expected_s =
            self.config.expected_step_s.map(|step_s| step_s * f64::from(self.current.accumulation.max(1)));
        self.watch.limits.of(position, expected_s)
    }

    /// These keep the others waiting; `members` counts all.
    fn blame(&mut self, late: &[Late], members: usize) {
        // If most are late, the machine or what they all read from is slow. No member is lost for that so soon.
        let patience = if 2 * late.len() > members { 4.0 } else { 1.0 };
        let others = members > late.len();
        for one in late {
            let alone = !others && !self.config.replaces_alone && !self.is_state_at_servers();
            let lost = one.seconds > patience * one.lose_s && !alone;
            let named = self.tell(one, alone);
            if lost && named {
                let Late { worker, doing, seconds, .. } = one;
                let why = format!("it keeps the run waiting for {seconds:.1} s: {doing}");
                self.watch.told.remove(&(*worker, None));
                self.expel(*worker, &why);
                // What comes next is another membership.
                return;
            }
        }
    }

    /// Tells people, once, and has the late one write down what its threads are doing. Whether that was long enough ago
    /// for a second look.
    fn tell(&mut self, late: &Late, alone: bool) -> bool {
        let who = (late.worker, late.peer);
        if let Some(told) = self.watch.told.get(&who) {
            return self.now_s - told.told_s >= 2.0 * ASK_S;
        }
        let told = Told { since_s: self.now_s - late.seconds, told_s: self.now_s, silent: false };
        self.watch.told.insert(who, told);
        self.journal_late(
            late,
            if alone { "the run cannot go on without it" } else { "it is replaced if it goes on" },
        );
        for worker in [Some(late.worker), late.peer].into_iter().flatten() {
            self.send(worker, ToWorker::Inquire { explain: true });
        }
        false
    }

    fn journal_late(&mut self, late: &Late, next: &str) {
        let Late { worker, peer, doing, seconds, warn_s, .. } = late;
        self.journal(Journal::Late {
            worker: *worker,
            peer: *peer,
            step: self.progress.committed(),
            doing: doing.clone(),
            seconds: *seconds,
            limit_s: *warn_s,
            next: next.into(),
        });
    }
}

impl Worker {
    /// Seconds within which a worker that boots must have left the stage that it is in.
    pub(super) fn allowance_s(&self, otherwise_s: f64) -> f64 {
        let told = self.position.as_ref().and_then(|(_, position)| position.allowance_s);
        told.unwrap_or(otherwise_s)
    }
}
