//! Who is there: workers that attach, warm up, fall silent, or ask to leave.

use bellwether_core::profile::Network;
use bellwether_core::record::{Boot, Event as Journal};

use super::plan::WAVE_PATIENCE_S;
use super::{Coordinator, Lifecycle};
use crate::membership::{
    Activity, Position, ToWorker, WorkerId, WorkloadDescription, any_class, different_parts,
};

/// Looks at the clock are never so far apart unless this coordinator stood still: stopped, moved to another machine, or
/// without a processor.
const PAUSE_S: f64 = 0.1;

/// A worker that waited for a machine this long ago still does: that is told many times a second.
const QUEUED_S: f64 = 1.0;

/// Workers that were told to go and are remembered.
const DISMISSED_MAX: usize = 10_000;

/// How far a worker is on its way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its process was started.
    Started,
    /// It has a session and warms up.
    Booting,
    /// Warm, without state.
    Standby,
    /// Holds state from before this coordinator's time.
    Holding,
    /// Receives state.
    Shadow,
    /// Holds all state, not yet computing.
    CaughtUp,
    /// Computes.
    Active,
    /// Computes until the next boundary at which it is left out.
    Leaving,
    /// Pauses while all wait for all.
    Paused,
}

/// What a worker is known to hold of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing.
    Nothing,
    /// It may be further than its last known step.
    AtLeast,
    /// It stands still with the state after that step.
    Exactly,
}

#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) stage: Stage,
    pub(super) address: String,
    pub(super) process: u32,
    /// Which process calls itself by this number.
    pub(super) instance: u64,
    pub(super) heard_s: f64,
    pub(super) started_s: f64,
    /// When it last waited for a machine, if it did.
    pub(super) queued_s: Option<f64>,
    /// Seconds from the request for it until its session was open; 0 where it joined by hand.
    pub(super) start_s: f64,
    /// Whether this coordinator started it.
    pub(super) is_ours: bool,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) finished: Option<(u64, [u8; 32])>,
    pub(super) workload: Option<WorkloadDescription>,
    /// Number of its session, or of its last failure to join: a plan that is older counts on one that is gone.
    pub(super) incarnation: u64,
    /// The state that it holds.
    pub(super) kept: Kept,
    /// How often members gave it up as a newcomer.
    pub(super) given_up: u32,
    /// Its server is taken away.
    pub(super) revoked: bool,
    /// Where it stands, and when it told.
    pub(super) position: Option<(f64, Position)>,
    pub(super) answered_s: f64,
    /// When it was asked for a sign of life.
    pub(super) asked_s: f64,
}

impl Coordinator {
    pub(super) fn attached(
        &mut self,
        worker: WorkerId,
        address: String,
        (process, instance): (u32, u64),
        held: Option<(u64, u64)>,
        workload: Option<WorkloadDescription>,
    ) {
        // The old session of this worker may be dead without our knowing.
        let old = self.workers.remove(&worker);
        let held = self.usable(worker, old.as_ref(), held);
        let known = old.as_ref().map(|w| w.stage);
        let is_ours = old.as_ref().is_some_and(|w| w.is_ours);
        let start_s =
            old.filter(|w| w.stage == Stage::Started).map_or(0.0, |w| (self.now_s - w.started_s).max(0.0));
        self.last_worker = self.last_worker.max(worker);
        self.journal(Journal::WorkerAttached {
            worker,
            address: address.clone(),
            process,
            held_step: held.map(|h| h.1),
        });
        // One that fills an open place is one of those wanted; one more raises their number.
        let spare = self.workers.len() >= self.wanted as usize;
        // Where none is started here, those who come back to a new coordinator had joined by hand, too.
        let came_back = !self.config.spawns && held.is_some() && known.is_none();
        let by_hand = self.by_hand.remove(&worker) || came_back;
        if by_hand && spare && self.wanted < self.config.max_workers {
            self.want(self.wanted + 1);
        }
        // Only a coordinator that has no members yet can use a state it did not follow; a member that was away for a
        // moment still has the whole state.
        let gathering = matches!(self.lifecycle, Lifecycle::Gathering { .. });
        let stage = match (held, &workload, known) {
            (Some(_), Some(_), _) if gathering => Stage::Holding,
            // Where units are granted no other process needs its state: it begins from scratch.
            (Some(_), Some(_), Some(member @ (Stage::Active | Stage::Leaving)))
                if self.lifecycle != Lifecycle::Asynchronous =>
            {
                member
            }
            (_, Some(_), _) => Stage::Standby,
            (_, None, _) => Stage::Booting,
        };
        let (epoch, step) = held.unwrap_or((0, 0));
        self.last_epoch = self.last_epoch.max(epoch);
        self.dismissed.remove(&worker);
        let incarnation = self.next_incarnation();
        let kept = if held.is_some() { Kept::Exactly } else { Kept::Nothing };
        let entry = Worker {
            stage,
            address,
            process,
            instance,
            step,
            epoch,
            kept,
            start_s,
            is_ours,
            ..Worker::new(self.now_s, incarnation)
        };
        self.workers.insert(worker, entry);
        if let Some(workload) = workload {
            self.warmed(worker, workload);
        }
        if !matches!(known, None | Some(Stage::Started)) {
            self.came_back(worker);
        }
    }

    /// What a worker holds, if the run may go on from it. Where the batch may move, steps done again after a loss may
    /// be other updates than before. Only a worker that is known to have held the latest membership's initial state, or
    /// has trained in it, has the same.
    fn usable(
        &mut self,
        worker: WorkerId,
        old: Option<&Worker>,
        held: Option<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        let known = self.strays.remove(&worker) || old.is_some_and(|w| w.kept != Kept::Nothing);
        let (epoch, step) = self.sensible(held)?;
        match known {
            true => Some((epoch.max(self.begun), step)),
            false => (self.config.max_accumulation == 1 || epoch >= self.begun).then_some((epoch, step)),
        }
    }

    /// A worker measured its link to the coordinator.
    pub(super) fn link_measured(&mut self, worker: WorkerId, network: Network, shared: Option<Network>) {
        // The journal's JSON cannot hold a number that is not finite.
        let is_finite = |link: &Network| link.bandwidth_bytes_per_s.is_finite() && link.latency_s.is_finite();
        if is_finite(&network) {
            let Network { bandwidth_bytes_per_s, latency_s } = network;
            let shared_memory = shared.filter(is_finite);
            self.journal(Journal::LinkMeasured { worker, bandwidth_bytes_per_s, latency_s, shared_memory });
        }
    }

    /// A worker told what its start took, as far as it knows.
    pub(super) fn booted(&mut self, worker: WorkerId, stages: Boot) {
        let Some(start_s) = self.workers.get(&worker).map(|w| w.start_s) else { return };
        let boot = Boot { start_s, ..stages };
        self.progress.booted(boot);
        self.journal(Journal::WorkerWarm { worker, boot });
    }

    pub(super) fn warmed(&mut self, worker: WorkerId, workload: WorkloadDescription) {
        if let Some(ours) = &self.workload
            && let Some(difference) = difference(ours, &workload)
        {
            return self.refuse(worker, difference);
        }
        self.starts.restart();
        let entry = self.workers.get_mut(&worker).expect("only a known worker warms up");
        entry.workload = Some(workload.clone());
        if entry.stage == Stage::Booting {
            (entry.stage, entry.started_s) = (Stage::Standby, self.now_s);
        }
        self.workload.get_or_insert(workload);
    }

    fn refuse(&mut self, worker: WorkerId, reason: String) {
        self.journal(Journal::Refused { peer: format!("worker {worker}"), reason: reason.clone() });
        let started_s = self.workers.get(&worker).map_or(self.now_s, |worker| worker.started_s);
        self.say_goodbye(worker, reason.clone(), true);
        self.close(worker);
        if !self.by_hand.contains(&worker) {
            // One that is started in its place would be refused, too: not at once, and not without end.
            self.boot_failed(worker, started_s, &reason);
        }
    }

    /// Why a process that calls itself by this number is not let in.
    pub fn refusal(&self, number: WorkerId, instance: u64) -> Option<String> {
        if !Self::is_number(number) {
            return Some(format!(
                "invalid worker number {number}; start the worker without a number of its own"
            ));
        }
        if self.quarantined.contains(&number) {
            return Some("it computed a wrong gradient and no longer belongs to the run".into());
        }
        if self.dismissed.get(&number) == Some(&instance) {
            return Some("it was told to go and no longer belongs to the run".into());
        }
        let worker = self.workers.get(&number).filter(|w| w.stage != Stage::Started);
        let known = worker.map(|w| (w.instance, w.heard_s)).or_else(|| self.server_instance(number));
        let (_, heard_s) = known.filter(|(known, _)| *known != instance)?;
        let (silent_s, limit_s) = (self.now_s - heard_s, self.silence_timeout_s());
        (silent_s <= limit_s).then(|| {
            format!(
                "number {number} is taken by another process, which was heard of {silent_s:.1} s ago; start this one \
                 without a number of its own, or end the other (its number is free after {limit_s} s of silence)"
            )
        })
    }

    /// Whether a worker was started that has not come yet.
    pub fn is_to_come(&self, number: WorkerId) -> bool {
        self.workers.get(&number).is_some_and(|worker| worker.stage == Stage::Started)
    }

    /// Whether a worker or server was told to go.
    pub fn was_dismissed(&self, number: WorkerId) -> bool {
        self.dismissed.contains_key(&number)
    }

    pub(super) fn say_goodbye(&mut self, worker: WorkerId, reason: String, refused: bool) {
        let entry = self.workers.get(&worker).map(|w| w.instance);
        if let Some(instance) = entry.or_else(|| self.server_instance(worker).map(|(instance, _)| instance)) {
            self.dismissed.insert(worker, instance);
            if self.dismissed.len() > DISMISSED_MAX {
                self.dismissed.pop_first();
            }
        }
        self.send(worker, ToWorker::Bye { reason, refused });
    }

    pub(super) fn asked_to_leave(&mut self, worker: WorkerId, replace: bool) {
        let relied_on = self.is_relied_on(worker);
        let Some(entry) = self.workers.get_mut(&worker) else { return };
        // SIGTERM looks the same to the worker, no matter which process sends it.
        let replace = replace || entry.revoked;
        match entry.stage {
            Stage::Leaving => {}
            Stage::Holding => {
                self.parting.insert(worker, replace);
            }
            // It may be the only member by now.
            Stage::CaughtUp if relied_on => {
                self.parting.insert(worker, replace);
            }
            Stage::Active => {
                entry.stage = Stage::Leaving;
                if replace {
                    let message = format!("worker {worker} is about to lose its server");
                    self.journal(Journal::Warning { message });
                } else {
                    self.journal(Journal::Warning { message: format!("worker {worker} was asked to leave") });
                    // One fewer, unless others take its place: the user asked this process to go, not the job
                    // to wait.
                    self.want(self.wanted.saturating_sub(1).max(1));
                }
            }
            _ => {
                self.dismiss(worker, "it asked to leave");
                self.left(worker);
            }
        }
    }

    /// Another worker is to take the place of a member, which goes on until then.
    pub(super) fn replace(&mut self, worker: WorkerId) {
        if self.workers.get(&worker).is_some_and(|w| w.stage == Stage::Active) {
            self.replacing.insert(worker);
        }
    }

    /// A member leaves at the next boundary, and none takes its place; one stays at least.
    pub(super) fn leave_out(&mut self, worker: WorkerId) {
        let is_active = self.workers.get(&worker).is_some_and(|w| w.stage == Stage::Active);
        let others = self.current.active.iter().filter(|member| !self.replacing.contains(&member.worker));
        if is_active && !self.replacing.contains(&worker) && others.count() > 1 && self.wanted > 1 {
            self.replacing.insert(worker);
            self.want(self.wanted - 1);
        }
    }

    /// Lets a worker go that is not a member.
    pub(super) fn dismiss(&mut self, worker: WorkerId, reason: &str) {
        self.say_goodbye(worker, reason.into(), false);
    }

    /// A member pauses from the next boundary on; one stays at least.
    pub(super) fn pause(&mut self, worker: WorkerId) {
        let others =
            self.current.active.iter().any(|m| m.worker != worker && !self.paused.contains(&m.worker));
        let active = self.workers.get(&worker).is_some_and(|w| w.stage == Stage::Active);
        if active && others && self.lifecycle == Lifecycle::Running && self.paused.insert(worker) {
            let step = self.progress.committed();
            self.journal(Journal::Paused { worker, step });
        }
    }

    /// No worker pauses any more: those that did join like newcomers.
    pub(super) fn unpause(&mut self) {
        self.paused.clear();
        for worker in self.workers.values_mut().filter(|w| w.stage == Stage::Paused) {
            (worker.stage, worker.started_s) = (Stage::Standby, self.now_s);
        }
    }

    /// A worker that was asked for cannot begin yet, and is not to blame for it.
    pub fn await_start(&mut self, worker: WorkerId) {
        if let Some(entry) = self.workers.get_mut(&worker) {
            entry.heard_s = self.now_s;
        }
    }

    /// A worker that was asked for waits for a machine, perhaps for long: the others need not wait for it.
    pub fn await_machine(&mut self, worker: WorkerId) {
        self.await_start(worker);
        let now_s = self.now_s;
        self.workers.entry(worker).and_modify(|entry| entry.queued_s = Some(now_s));
    }

    /// Whether workers that are here begin without the others: they are enough, and all others wait for machines.
    pub(super) fn begins_without_others(&self, here: &[WorkerId]) -> bool {
        let is_queued = |w: &Worker| w.queued_s.is_some_and(|at_s| self.now_s - at_s <= QUEUED_S);
        let others_queue = self.workers.values().all(|w| match w.stage {
            Stage::Started => is_queued(w),
            Stage::Booting => false,
            _ => true,
        });
        let waited_s = here.iter().map(|id| self.now_s - self.workers[id].started_s).fold(f64::MAX, f64::min);
        here.len() >= self.config.min_workers.max(1) as usize && others_queue && waited_s > WAVE_PATIENCE_S
    }

    /// A member leaves at the next boundary, because its machine goes; another one takes its place.
    pub(super) fn relieve(&mut self, worker: WorkerId) {
        self.workers.entry(worker).and_modify(|entry| entry.revoked = true);
        self.asked_to_leave(worker, true);
    }

    /// Lets time pass. No worker is charged with time in which this coordinator itself stood still.
    pub(super) fn pass(&mut self, now_s: f64) {
        let gap_s = now_s - self.now_s;
        self.now_s = self.now_s.max(now_s);
        if gap_s <= PAUSE_S {
            return;
        }
        for worker in self.workers.values_mut() {
            worker.heard_s += gap_s;
            worker.started_s += gap_s;
        }
        self.spare_servers(gap_s);
        self.spare_watch(gap_s);
        if let Lifecycle::Gathering { grace_until_s } = &mut self.lifecycle {
            *grace_until_s += gap_s;
        }
    }

    /// Marks workers that have been silent for too long, or never came up, as gone.
    pub(super) fn check_silence(&mut self) {
        let now_s = self.now_s;
        let (silence_s, boot_s) = (self.silence_timeout_s(), self.config.boot_timeout_s);
        let stuck: Vec<(WorkerId, String)> = self
            .workers
            .iter()
            .filter(|(_, w)| now_s - w.started_s > w.allowance_s(boot_s))
            .filter_map(|(id, w)| {
                let what = match w.boot_stage()? {
                    Activity::Idle => "starting".into(),
                    stage => stage.to_string(),
                };
                Some((*id, format!("it was still {what} after {} s", w.allowance_s(boot_s))))
            })
            .collect();
        for (worker, why) in stuck {
            // One that joined by hand has to hear that it is not waited for any more.
            self.expel(worker, &why);
        }
        let late: Vec<(WorkerId, String)> = self
            .workers
            .iter()
            .filter_map(|(id, w)| match w.stage {
                Stage::Started if now_s - w.started_s.max(w.heard_s) > boot_s => {
                    Some((*id, format!("it was not there {boot_s} s after its start")))
                }
                Stage::Started => None,
                _ if now_s - w.heard_s > silence_s => Some((*id, format!("it was silent for {silence_s} s"))),
                _ => None,
            })
            .collect();
        for (worker, why) in late {
            self.gone(worker, &why);
        }
        for (worker, why) in self.stuck_shadows() {
            self.expel(worker, &why);
        }
        self.check_servers();
    }
}

impl Worker {
    pub(super) fn new(now_s: f64, incarnation: u64) -> Self {
        Worker {
            stage: Stage::Started,
            address: String::new(),
            process: 0,
            instance: 0,
            heard_s: now_s,
            started_s: now_s,
            queued_s: None,
            start_s: 0.0,
            is_ours: false,
            step: 0,
            epoch: 0,
            finished: None,
            workload: None,
            incarnation,
            kept: Kept::Nothing,
            given_up: 0,
            revoked: false,
            position: None,
            answered_s: now_s,
            asked_s: 0.0,
        }
    }
}

/// What keeps a worker from joining, or `None` when both compute the same bits.
fn difference(ours: &WorkloadDescription, theirs: &WorkloadDescription) -> Option<String> {
    if ours.fingerprint != theirs.fingerprint {
        let is_open = ours.fingerprint == any_class(&ours.fingerprint);
        let (ours, theirs) = different_parts(&ours.fingerprint, &theirs.fingerprint);
        if is_open {
            return Some(format!("it has other data than the run: the run has `{ours}`, it has `{theirs}`"));
        }
        return Some(format!(
            "its kernel class differs, so it would not compute the same bits: the run has `{ours}`, it has `{theirs}`"
        ));
    }
    (ours != theirs).then(|| "its model or data have other sizes than the run's".to_string())
}
