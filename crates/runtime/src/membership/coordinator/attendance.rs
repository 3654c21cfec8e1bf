//! Who is there: workers that attach, warm up, fall silent, or ask to leave.

use bellwether_core::record::Event as Journal;

use super::{Coordinator, Phase};
use crate::membership::{ToWorker, TraineeDescription, WorkerId};

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
    Benched,
}

#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) stage: Stage,
    pub(super) address: String,
    pub(super) process: u32,
    pub(super) heard_s: f64,
    pub(super) started_s: f64,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) finished: Option<(u64, [u8; 32])>,
    pub(super) trainee: Option<TraineeDescription>,
    /// Number of its session, or of its last failure to join: a plan that is older counts on one that is gone.
    pub(super) incarnation: u64,
    /// It stands still with the state after `step` steps; otherwise it may be further by now.
    pub(super) holds: bool,
    /// Its server is taken away.
    pub(super) revoked: bool,
}

impl Coordinator {
    pub(super) fn attached(
        &mut self,
        worker: WorkerId,
        address: String,
        process: u32,
        held: Option<(u64, u64)>,
        trainee: Option<TraineeDescription>,
    ) {
        // The old session of this worker may be dead without our knowing.
        let known = self.workers.remove(&worker).map(|w| w.stage);
        self.last_worker = self.last_worker.max(worker);
        self.journal(Journal::WorkerAttached {
            worker,
            address: address.clone(),
            process,
            held_step: held.map(|h| h.1),
        });
        // One that fills an open place is one of those wanted; one more raises their number.
        let spare = self.workers.len() >= self.wanted as usize;
        if self.by_hand.remove(&worker) && spare && self.wanted < self.config.max_workers {
            self.want(self.wanted + 1);
        }
        // Only a coordinator that has no members yet can use a state it did not follow; a member that was
        // away for a moment still has all of it.
        let gathering = matches!(self.phase, Phase::Gathering { .. });
        let stage = match (held, &trainee, known) {
            (Some(_), Some(_), _) if gathering => Stage::Holding,
            (Some(_), Some(_), Some(member @ (Stage::Active | Stage::Leaving))) => member,
            (_, Some(_), _) => Stage::Standby,
            (_, None, _) => Stage::Booting,
        };
        let (epoch, step) = held.unwrap_or((0, 0));
        self.last_epoch = self.last_epoch.max(epoch);
        let incarnation = self.next_incarnation();
        let holds = held.is_some();
        let entry =
            Worker { stage, address, process, step, epoch, holds, ..Worker::new(self.now_s, incarnation) };
        self.workers.insert(worker, entry);
        if let Some(trainee) = trainee {
            self.warmed(worker, trainee);
        }
        if !matches!(known, None | Some(Stage::Started)) {
            self.came_back(worker);
        }
    }

    pub(super) fn warmed(&mut self, worker: WorkerId, trainee: TraineeDescription) {
        if let Some(ours) = &self.trainee
            && let Some(difference) = difference(ours, &trainee)
        {
            return self.refuse(worker, difference);
        }
        self.boot_failures = 0;
        let entry = self.workers.get_mut(&worker).expect("only a known worker warms up");
        entry.trainee = Some(trainee.clone());
        if entry.stage == Stage::Booting {
            (entry.stage, entry.started_s) = (Stage::Standby, self.now_s);
        }
        self.trainee.get_or_insert(trainee);
    }

    fn refuse(&mut self, worker: WorkerId, reason: String) {
        self.journal(Journal::Refused { peer: format!("worker {worker}"), reason: reason.clone() });
        self.send(worker, ToWorker::Bye { reason, refused: true });
        self.close(worker);
    }

    pub(super) fn asked_to_leave(&mut self, worker: WorkerId, replace: bool) {
        let Some(entry) = self.workers.get_mut(&worker) else { return };
        // SIGTERM looks the same to the worker, whoever sends it.
        let replace = replace || entry.revoked;
        match entry.stage {
            Stage::Leaving => {}
            Stage::Holding => {
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

    /// Lets a worker go that is not a member.
    pub(super) fn dismiss(&mut self, worker: WorkerId, reason: &str) {
        self.send(worker, ToWorker::Bye { reason: reason.into(), refused: false });
    }

    /// A member pauses from the next boundary on; one stays at least.
    pub(super) fn bench(&mut self, worker: WorkerId) {
        let others =
            self.current.active.iter().any(|m| m.worker != worker && !self.benched.contains(&m.worker));
        let active = self.workers.get(&worker).is_some_and(|w| w.stage == Stage::Active);
        if active && others && self.phase == Phase::Running && self.benched.insert(worker) {
            let step = self.progress.committed();
            self.journal(Journal::Benched { worker, step });
        }
    }

    /// Nobody pauses any more: those who did join like newcomers.
    pub(super) fn unbench(&mut self) {
        self.benched.clear();
        for worker in self.workers.values_mut().filter(|w| w.stage == Stage::Benched) {
            (worker.stage, worker.started_s) = (Stage::Standby, self.now_s);
        }
    }

    /// Marks workers that have been silent for too long, or never came up, as gone.
    pub(super) fn check_silence(&mut self) {
        let now_s = self.now_s;
        let (heartbeat_s, boot_s) = (self.config.heartbeat_timeout_s, self.config.boot_timeout_s);
        let late: Vec<(WorkerId, String)> = self
            .workers
            .iter()
            .filter_map(|(id, w)| match w.stage {
                Stage::Started | Stage::Booting if now_s - w.started_s > boot_s => {
                    Some((*id, format!("it was not ready {boot_s} s after its start")))
                }
                Stage::Started => None,
                _ if now_s - w.heard_s > heartbeat_s => {
                    Some((*id, format!("it was silent for {heartbeat_s} s")))
                }
                _ => None,
            })
            .collect();
        for (worker, why) in late {
            self.gone(worker, &why);
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
            heard_s: now_s,
            started_s: now_s,
            step: 0,
            epoch: 0,
            finished: None,
            trainee: None,
            incarnation,
            holds: false,
            revoked: false,
        }
    }
}

/// What keeps a worker from joining, or `None` when both compute the same bits.
fn difference(ours: &TraineeDescription, theirs: &TraineeDescription) -> Option<String> {
    if ours.fingerprint != theirs.fingerprint {
        return Some(format!(
            "its kernel class differs, so it would not compute the same bits: the run has `{}`, it has `{}`",
            ours.fingerprint, theirs.fingerprint
        ));
    }
    (ours != theirs).then(|| "its model or data have other sizes than the run's".to_string())
}
