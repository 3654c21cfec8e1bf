//! Sessions between workers and the coordinator, and a model of the coordinator's shell.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::plan::Synchronisation;
use bellwether_core::record::{Event as Journal, Line, RunOutcome};
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::membership::coordinator::{Action, Config, Coordinator, End, Event};
use bellwether_runtime::membership::{FromWorker, Membership, ToWorker, WorkerId};

use super::process::{Activity, Input};
use super::world::{Down, Happening, Up, World};

/// Seconds of silence after which a worker counts as lost.
pub(crate) const HEARTBEAT_TIMEOUT_S: f64 = 1.0;
/// Seconds that a coordinator waits for workers that may come back.
pub(crate) const GRACE_S: f64 = 1.5;
const HEARTBEAT_S: f64 = 0.25;
const BOOT_TIMEOUT_S: f64 = 3.0;
const RETRY_S: f64 = 0.05;

/// A connection between one worker and one coordinator process.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) generation: u64,
    up_s: f64,
    down_s: f64,
    /// Nothing gets through any more.
    pub(crate) cut: bool,
}

/// What the simulation remembers in order to judge.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    pub(crate) committed: u64,
    /// Epoch, step and active workers of the membership that the journal named last.
    pub(crate) journaled: (u64, u64, Vec<WorkerId>),
    /// All memberships that were ever sent.
    pub(crate) memberships: BTreeMap<u64, Membership>,
    pub(crate) rolled_back: u64,
    pub(crate) catch_ups: u64,
    pub(crate) lost_results: u64,
    pub(crate) failures: u64,
    pub(crate) refused: u64,
    pub(crate) pauses: u64,
    pub(crate) hangs: u64,
    pub(crate) silent_links: u64,
    pub(crate) late: u64,
    pub(crate) lost_late: u64,
    pub(crate) crashes: u64,
    pub(crate) stopped: u64,
    pub(crate) stop_asked: bool,
    /// How often a property that needs quiet was really looked at.
    pub(crate) wanted_checked: u64,
    pub(crate) schedules_checked: u64,
    /// When something last asked for another number of workers or took one away.
    pub(crate) disturbed_s: f64,
    /// When steps were last committed.
    pub(crate) committed_s: f64,
    /// Last steps of the updates that were reduced.
    pub(crate) reduced: BTreeSet<u64>,
    /// Results of updates since a state was loaded, by their last step.
    pub(crate) done: BTreeMap<u64, u64>,
    /// Committed steps, and how many each of their updates covered (0 when that is not known), as the journal tells.
    pub(crate) ledger: Vec<(u64, u64, u32)>,
    pub(crate) accumulation: u32,
    pub(crate) batch_changes: u64,
    pub(crate) replayed: u64,
    /// Steps that were not applied, and whose worker or checker was sent away for it.
    pub(crate) mismatches: u64,
    pub(crate) quarantined: BTreeSet<WorkerId>,
    /// By step: whether the run ends there.
    pub(crate) verdicts: BTreeMap<u64, bool>,
}

impl World {
    fn delay(&mut self) -> f64 {
        let limit = self.scenario.delay_s;
        let delay = self.random.between(0.0001, limit.max(0.0002));
        if !self.scenario.calm() && self.random.chance(0.01) { delay + 0.1 } else { delay }
    }

    /// Whether what is said in this session arrives.
    pub(crate) fn is_whole(&self, session: u64) -> bool {
        !self.sessions[&session].cut
    }

    /// A worker says something, if it has a session.
    pub(crate) fn send_up(&mut self, id: WorkerId, message: FromWorker) {
        if !matches!(message, FromWorker::Heartbeat | FromWorker::At(_)) {
            self.note(|| format!("{id} says {message:?}"));
        }
        if let Some(session) = self.processes[&id].session {
            self.up(session, Up::Said(message));
        }
    }

    fn up(&mut self, number: u64, up: Up) {
        let arrives = self.now + self.delay();
        let session = self.sessions.get_mut(&number).expect("a session that was opened");
        session.up_s = session.up_s.max(arrives);
        let time = session.up_s;
        self.at(time, Happening::Up(number, up));
    }

    fn down(&mut self, number: u64, down: Down) {
        let arrives = self.now + self.delay();
        let session = self.sessions.get_mut(&number).expect("a session that was opened");
        session.down_s = session.down_s.max(arrives);
        let (time, worker) = (session.down_s, session.worker);
        self.at(time, Happening::Down(worker, number, down));
    }

    /// A process tries to open a session.
    pub(crate) fn attach(&mut self, id: WorkerId) {
        let process = self.process(id);
        if process.session.is_some() || process.opening.is_some() {
            return;
        }
        if self.now - self.processes[&id].disconnected_s > self.scenario.orphan_s {
            self.note(|| format!("{id} gives up waiting for a coordinator"));
            return self.exit(id);
        }
        if self.coordinator.is_none() {
            return self.after(RETRY_S, Happening::Attach(id));
        }
        let (number, generation, now) = (self.number(), self.generation, self.now);
        let session = Session { worker: id, generation, up_s: now, down_s: now, cut: false };
        self.sessions.insert(number, session);
        let process = self.process(id);
        process.opening = Some(number);
        process.told_warm = process.warm;
        let held = process.member.held();
        let workload = process.warm.then(|| process.workload.clone());
        self.up(number, Up::Attach { held, workload });
    }

    /// Something arrives at a worker.
    pub(crate) fn arrived_down(&mut self, id: WorkerId, number: u64, down: Down) {
        let cut = self.sessions[&number].cut;
        let process = self.process(id);
        if process.session != Some(number) && process.opening != Some(number) {
            return;
        }
        match down {
            Down::Broken => {
                self.disconnected(id);
                self.after(RETRY_S, Happening::Attach(id));
            }
            _ if cut => {}
            Down::Opened => {
                process.opening = None;
                process.session = Some(number);
                let (warm, told) = (process.warm, process.told_warm);
                if warm && !told {
                    self.tell_warm(id);
                }
                if self.processes[&id].leaving {
                    self.send_up(id, FromWorker::Leave { replace: false });
                }
                self.hear(id, Input::Reconnected);
            }
            Down::Refused => self.exit(id),
            Down::Message(ToWorker::Inquire { .. }) => {
                let position = self.position(id);
                self.send_up(id, FromWorker::At(position));
            }
            Down::Message(message) => self.hear(id, Input::Message(message)),
        }
    }

    /// A worker has read the job and computed a batch.
    pub(crate) fn warmed(&mut self, id: WorkerId) {
        self.process(id).warm = true;
        if self.processes[&id].session.is_some() {
            self.tell_warm(id);
        }
    }

    fn tell_warm(&mut self, id: WorkerId) {
        let process = self.process(id);
        process.told_warm = true;
        let workload = process.workload.clone();
        self.send_up(id, FromWorker::Warmed(workload));
    }

    /// A sign of life.
    pub(crate) fn heartbeat(&mut self, id: WorkerId) {
        let position = self.position(id);
        self.send_up(id, FromWorker::At(position));
        self.after(HEARTBEAT_S, Happening::Heartbeat(id));
    }

    /// Something arrives at the coordinator.
    pub(crate) fn arrived_up(&mut self, number: u64, up: Up) {
        let session = self.sessions[&number].clone();
        if session.cut || session.generation != self.generation || self.coordinator.is_none() {
            return;
        }
        let worker = session.worker;
        match up {
            Up::Attach { held, workload } => {
                if self.end.is_some() {
                    return self.down(number, Down::Broken);
                }
                let refused = self.coordinator.as_ref().and_then(|c| c.refusal(worker, worker));
                if refused.is_some() {
                    return self.down(number, Down::Refused);
                }
                if let Some(old) = self.attached.insert(worker, number) {
                    self.down(old, Down::Broken);
                }
                // A worker that came back is not ended.
                self.leaving.remove(&worker);
                self.down(number, Down::Opened);
                let address = format!("host{}:{worker}", worker % 3);
                self.coordinate(Event::Attached {
                    worker,
                    address,
                    process: 1,
                    instance: worker,
                    waited_s: self.clock.map_or(0.0, |clock| self.now - clock),
                    held,
                    workload,
                });
            }
            Up::Said(message) => {
                if self.attached.get(&worker) == Some(&number) {
                    self.coordinate(Event::Said(worker, message));
                }
            }
        }
    }

    /// The coordinator sees that a session is broken.
    pub(crate) fn noticed(&mut self, number: u64, why: String) {
        let session = &self.sessions[&number];
        let (worker, generation) = (session.worker, session.generation);
        if generation == self.generation && self.attached.get(&worker) == Some(&number) {
            self.attached.remove(&worker);
            self.coordinate(Event::Gone(worker, why));
        }
    }

    /// The coordinator sees that a process it started has ended.
    pub(crate) fn child_exited(&mut self, generation: u64, id: WorkerId) {
        if generation == self.generation {
            self.coordinate(Event::Gone(id, "its process ended".into()));
            self.coordinate(Event::Ended(id));
        }
    }

    /// An upload is complete, unless its sender died meanwhile.
    pub(crate) fn uploaded(&mut self, generation: u64, from: WorkerId, step: u64, digest: u64, full: bool) {
        if generation != self.generation || self.coordinator.is_none() {
            return;
        }
        if !self.processes[&from].alive {
            let why = "the state did not arrive whole".to_string();
            return self.coordinate(Event::Checkpoint(step, Err(why)));
        }
        if !self.coordinator.as_ref().is_some_and(|coordinator| coordinator.state_counts(from)) {
            return;
        }
        let delay = self.random.between(0.0, 0.1);
        self.after(delay, Happening::Written { generation, step, digest, full });
        self.coordinate(Event::Received(step));
    }

    /// A worker wrote its slice; whether all have.
    pub(crate) fn has_all_slices(
        &mut self,
        of: (u64, u64, u64),
        from: WorkerId,
        digest: u64,
        count: usize,
    ) -> bool {
        if !self.processes[&from].alive {
            return false;
        }
        let slices = self.slices.entry(of).or_default();
        slices.insert(from, digest);
        let same = slices.values().all(|other| *other == digest);
        let whole = slices.len() == count;
        if !same {
            self.violate(format!("the slices of step {} are of different states", of.1));
        }
        if whole {
            self.slices.remove(&of);
        }
        whole
    }

    /// A state that came is written, or cannot be.
    pub(crate) fn written(&mut self, generation: u64, step: u64, digest: u64, full: bool) {
        if generation != self.generation || self.coordinator.is_none() {
            return;
        }
        let result = if full { Err("no space left".to_string()) } else { Ok(()) };
        if !full {
            self.stored.insert(step, digest);
            if self.right.get(&digest) != Some(&step) {
                self.violate(format!("the checkpoint of step {step} has wrong bits"));
            }
        }
        self.coordinate(Event::Checkpoint(step, result));
    }

    /// A coordinator process begins, the first or a later one.
    pub(crate) fn start_coordinator(&mut self) {
        self.generation += 1;
        let lines: Vec<Line> =
            self.journal.iter().map(|event| Line { time_s: 0.0, event: event.clone() }).collect();
        let known =
            (self.generation > 1).then(|| lines.iter().collect::<RunHistory>().resumed().unwrap_or_default());
        let started =
            Journal::CoordinatorStarted { process: 1, version: "0".into(), resumed: known.is_some() };
        self.journal.push(started);
        let workload = self.processes.values().find(|p| p.warm && p.workload.fingerprint == "a");
        let config = Config {
            virtual_nodes: self.scenario.virtual_nodes,
            wanted: self.asked.unwrap_or(self.scenario.wanted),
            min_workers: 1,
            max_workers: self.scenario.max_workers,
            schedule: self.scenario.schedule.clone(),
            spawns: self.scenario.spawns,
            speeds: std::collections::BTreeMap::new(),
            heartbeat_timeout_s: HEARTBEAT_TIMEOUT_S,
            boot_timeout_s: BOOT_TIMEOUT_S,
            reattach_grace_s: GRACE_S,
            max_barren_crashes: self.scenario.max_barren_crashes,
            max_accumulation: self.scenario.max_accumulation,
            synchronisation: Synchronisation::default(),
            units_per_step: u64::from(self.scenario.virtual_nodes),
            evaluate_every: self.scenario.rules.evaluate_every,
            checkpoint_every: self.scenario.rules.checkpoint_every,
            slices: self.scenario.rules.slices,
            sharded: self.scenario.rules.sharded,
            verdict_every: self.scenario.rules.verdict_every,
            verdict_needs_state: !self.scenario.by_results,
            checkpoint_period_s: if self.scenario.rules.checkpoint_every > 0 { 0.3 } else { 0.0 },
            last_checkpoint_wait_s: 300.0,
            expected_step_s: None,
            replaces_alone: false,
            resumed: known.clone(),
            checkpoint: self.stored.last_key_value().map(|(step, _)| *step),
            workload: workload.map(|p| p.workload.clone()),
        };
        self.note(|| format!("coordinator starts with {known:?}, checkpoint {:?}", config.checkpoint));
        let mut coordinator = Coordinator::new(config, self.now);
        if workload_known(&coordinator) {
            coordinator.set_total_steps(self.scenario.rules.total_steps);
        }
        self.coordinator = Some(coordinator);
        let generation = self.generation;
        self.after(0.0, Happening::Tick(generation));
    }

    /// Hands an event to the coordinator and carries out what it wants.
    pub(crate) fn coordinate(&mut self, event: Event) {
        let now = self.clock.unwrap_or(self.now);
        let Some(coordinator) = &mut self.coordinator else { return };
        let tick = event == Event::Tick;
        let quiet = tick || matches!(event, Event::Said(_, FromWorker::Heartbeat | FromWorker::At(_)));
        let text = if quiet { None } else { Some(event.clone()) };
        let before = coordinator.membership().epoch;
        let actions = coordinator.handle(event, now);
        if workload_known(coordinator) {
            coordinator.set_total_steps(self.scenario.rules.total_steps);
        }
        if let Some(event) = text {
            self.note(|| format!("coordinator takes {event:?}"));
        }
        self.check_membership(before);
        for action in actions {
            if self.dies_after == Some(0) && !matches!(action, Action::End(_)) {
                self.dies_after = None;
                return self.kill_coordinator();
            }
            self.dies_after = self.dies_after.map(|n| n.saturating_sub(1));
            self.note(|| format!("coordinator does {action:?}"));
            self.carry_out(action);
            if self.violation.is_some() {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Send(worker, message) => {
                self.check_message(&message);
                if let Some(session) = self.attached.get(&worker) {
                    self.down(*session, Down::Message(message));
                }
            }
            Action::Spawn(worker) => self.spawn(worker),
            Action::Close(worker) => self.close(worker),
            Action::Journal(event) => {
                self.check_journal(&event);
                self.check_quarantine(&event);
                self.journal.push(event);
            }
            Action::Committed(records) => {
                let committed = self.watch.committed;
                if records.iter().any(|r| r.step >= committed) {
                    self.violate(format!("records of steps beyond {committed}: {records:?}"));
                }
            }
            Action::End(end) => self.ended(end),
            Action::SpawnServer(_) | Action::Collect { .. } => {
                self.violate("a server in a run that is reduced by its workers".into());
            }
        }
    }

    fn spawn(&mut self, worker: WorkerId) {
        if self.processes.contains_key(&worker) {
            return self.violate(format!("worker number {worker} is used twice"));
        }
        let generation = self.generation;
        self.create_process(worker, Some(generation), "a");
        if self.in_fault_lifecycle() && self.random.chance(self.scenario.boot_failure) {
            self.process(worker).alive = false;
            let delay = self.random.between(0.05, 0.5);
            return self.after(delay, Happening::ChildExited(generation, worker));
        }
        self.boot(worker);
    }

    /// A process boots, attaches and warms up.
    pub(crate) fn boot(&mut self, worker: WorkerId) {
        let boot = self.random.between(0.05, 0.4);
        let warm = boot + self.random.between(0.05, 0.4);
        self.process(worker).disconnected_s = self.now + boot;
        self.after(boot, Happening::Attach(worker));
        self.after(warm, Happening::Warmed(worker));
        self.after(boot, Happening::Heartbeat(worker));
    }

    /// A process without a number opens its session, and has one from now on.
    pub(crate) fn welcome_by_hand(&mut self, worker: WorkerId) {
        let (number, generation, now) = (self.number(), self.generation, self.now);
        let session = Session { worker, generation, up_s: now, down_s: now, cut: false };
        self.sessions.insert(number, session);
        self.attached.insert(worker, number);
        self.process(worker).opening = Some(number);
        self.down(number, Down::Opened);
        let address = format!("host{}:{worker}", worker % 3);
        self.coordinate(Event::Attached {
            worker,
            address,
            process: 1,
            instance: worker,
            waited_s: 0.0,
            held: None,
            workload: None,
        });
        let known = self
            .journal
            .iter()
            .any(|e| matches!(e, Journal::WorkerAttached { worker: w, .. } if *w == worker));
        if !known {
            // The coordinator died before anyone knew of the number.
            self.processes.remove(&worker);
            return;
        }
        let warm = self.random.between(0.05, 0.4);
        self.after(warm, Happening::Warmed(worker));
        self.after(0.1, Happening::Heartbeat(worker));
    }

    fn close(&mut self, worker: WorkerId) {
        if let Some(session) = self.attached.remove(&worker) {
            self.down(session, Down::Broken);
        }
        let generation = self.generation;
        if self.processes.get(&worker).is_some_and(|p| p.alive && p.parent == Some(generation)) {
            // It has a moment to exit by itself, or to come back if it was not told to go.
            let told = self.coordinator.as_ref().is_some_and(|c| c.was_dismissed(worker));
            let delay = self.random.between(0.0, 0.5) + if told { 0.0 } else { GRACE_S };
            let number = self.number();
            self.leaving.insert(worker, number);
            self.after(delay, Happening::Killed(worker, number));
        }
    }

    /// A process that was let go has not come back, and is ended.
    pub(crate) fn see_off(&mut self, id: WorkerId, number: u64) {
        if self.leaving.get(&id) != Some(&number) {
            return;
        }
        if self.still.is_some() {
            // No observer looks.
            return self.after(0.1, Happening::Killed(id, number));
        }
        self.leaving.remove(&id);
        self.kill_or_let_go(id);
    }

    /// The coordinator stands still for so long, or only its main loop does.
    pub(crate) fn pause(&mut self, seconds: f64, behind: bool) {
        if self.coordinator.is_some() && self.still.is_none() && self.end.is_none() {
            self.still = Some(Vec::new());
            self.watch.pauses += 1;
            let generation = self.generation;
            self.after(seconds, Happening::Awake(generation, behind));
        }
    }

    /// The coordinator goes on, and takes in what came meanwhile. If only the main loop stood still, it knows when that
    /// was.
    pub(crate) fn awake(&mut self, generation: u64, behind: bool) {
        let Some(put_off) = self.still.take_if(|_| generation == self.generation) else { return };
        self.note(|| format!("the coordinator goes on, with {} things to take in", put_off.len()));
        for (time, happening) in put_off {
            self.clock = behind.then_some(time);
            self.happen(happening);
            if self.violation.is_some() {
                break;
            }
        }
        self.clock = None;
    }

    /// Tells the coordinator something, once it goes on.
    pub(crate) fn tell(&mut self, event: Event) {
        self.happen(Happening::Told(event));
    }

    fn ended(&mut self, end: End) {
        self.check_outcome(&end);
        if end.how == RunOutcome::Stopped && self.violation.is_none() {
            // It is resumed when all processes have ended.
            self.watch.stopped += 1;
            self.watch.stop_asked = false;
            self.coordinator = None;
            self.attached.clear();
            self.leaving.clear();
            for id in self.processes.keys().copied().collect::<Vec<_>>() {
                self.kill(id);
            }
            return self.after(1.0, Happening::CoordinatorStarts);
        }
        self.end = Some(end);
    }

    /// Breaks the session of a worker while both ends live.
    pub(crate) fn glitch(&mut self, worker: WorkerId) {
        let Some(number) = self.processes[&worker].session.or(self.processes[&worker].opening) else {
            return;
        };
        self.sessions.get_mut(&number).expect("it is open").cut = true;
        let worker_sees = self.random.between(0.0, 0.08);
        let slow = if self.random.chance(0.5) { 0.4 } else { 0.04 };
        let coordinator_sees = self.random.between(0.0, slow);
        self.after(worker_sees, Happening::Down(worker, number, Down::Broken));
        self.after(coordinator_sees, Happening::Noticed(number, "the session broke".into()));
    }

    /// The process is gone at once.
    pub(crate) fn kill(&mut self, id: WorkerId) {
        self.end_process(id, false);
    }

    /// The coordinator ends a process; one that is about to exit has sent everything.
    pub(crate) fn kill_or_let_go(&mut self, id: WorkerId) {
        let leaves = self.processes[&id].activity == Activity::Leaving;
        self.end_process(id, leaves);
    }

    /// The process ends by itself; what it sent arrives.
    pub(crate) fn exit(&mut self, id: WorkerId) {
        self.end_process(id, true);
    }

    fn end_process(&mut self, id: WorkerId, gracefully: bool) {
        let number = self.number();
        let process = self.process(id);
        if !process.alive {
            return;
        }
        process.alive = false;
        process.serial = number;
        let (session, parent) = (process.session.or(process.opening), process.parent);
        self.note(|| format!("{id} {}", if gracefully { "exits" } else { "is killed" }));
        self.leave_epochs(id, None, gracefully);
        if let Some(number) = session {
            let at = self.sessions[&number].up_s.max(self.now) + self.random.between(0.0, 0.03);
            self.at(at, Happening::Noticed(number, "connection reset".into()));
        }
        if let Some(generation) = parent {
            let delay = self.random.between(0.0, 0.05);
            self.after(delay + 0.05, Happening::ChildExited(generation, id));
        }
    }

    /// The coordinator process is gone at once; all sessions break.
    pub(crate) fn kill_coordinator(&mut self) {
        if self.coordinator.take().is_none() || self.end.is_some() {
            return;
        }
        self.note(|| "the coordinator is killed".into());
        self.still = None;
        self.leaving.clear();
        // The next one does not stand still with them.
        self.processes.values_mut().for_each(|process| process.stood_still |= process.still);
        let generation = self.generation;
        let open: Vec<u64> =
            self.sessions.iter().filter(|(_, s)| s.generation == generation).map(|(n, _)| *n).collect();
        for number in open {
            let session = self.sessions.get_mut(&number).expect("just seen");
            if self.random.chance(0.5) {
                session.cut = true;
            }
            let at = session.down_s.max(self.now) + self.random.between(0.0, 0.05);
            let worker = session.worker;
            self.at(at, Happening::Down(worker, number, Down::Broken));
        }
        self.attached.clear();
        let away = self.random.between(0.05, 2.0);
        self.after(away, Happening::CoordinatorStarts);
    }
}

fn workload_known(coordinator: &Coordinator) -> bool {
    coordinator.workload().is_some()
}
