//! The simulated world: a clock, a queue of happenings, and all processes in it.

use std::collections::BTreeMap;

use bellwether_core::record::{Event as Journal, RunOutcome};
use bellwether_runtime::membership::coordinator::{Coordinator, End, Event};
use bellwether_runtime::membership::{FromWorker, Membership, ToWorker, WorkerId, WorkloadDescription};

use super::control::{Session, Watch};
use super::process::Process;
use super::rounds::{DataPlane, Epoch, Kind};
use super::scenario::{Fault, Scenario};
use crate::digests::FRESH;
use bellwether_testkit::Random;

/// Simulated seconds within which a run must end once all faults have stopped.
const PATIENCE_S: f64 = 150.0;

/// Seconds between two ticks of the coordinator.
const TICK_S: f64 = 0.02;

/// What travels from a worker to the coordinator.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    /// Opens the session.
    Attach { held: Option<(u64, u64)>, workload: Option<WorkloadDescription> },
    /// A message.
    Said(FromWorker),
}

/// What travels from the coordinator to a worker.
#[derive(Debug, Clone)]
pub(crate) enum Down {
    /// The session is open.
    Opened,
    /// The coordinator does not let it in.
    Refused,
    /// A message.
    Message(ToWorker),
    /// The session is broken.
    Broken,
}

/// Something that happens at a time.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    /// The coordinator's clock.
    Tick(u64),
    /// Something arrives at the coordinator.
    Up(u64, Up),
    /// Something arrives at a worker.
    Down(WorkerId, u64, Down),
    /// The coordinator sees that a session is broken.
    Noticed(u64, String),
    /// The coordinator sees that a process it started has ended.
    ChildExited(u64, WorkerId),
    /// An upload has arrived.
    /// `cut`: the membership by which slices were cut, and how many it has.
    Uploaded { generation: u64, from: WorkerId, step: u64, digest: u64, full: bool, cut: (u64, usize) },
    /// It is written, or cannot be.
    Written { generation: u64, step: u64, digest: u64, full: bool },
    /// A process has started, or tries again, to open a session.
    Attach(WorkerId),
    /// A worker has warmed up.
    Warmed(WorkerId),
    /// A worker's heart beats.
    Heartbeat(WorkerId),
    /// The time of an activity is over.
    Done(WorkerId, u64),
    /// A worker has all that the round, or the connecting, gives.
    Receipt(WorkerId, u64),
    /// A round, or the connecting, fails.
    Fails(WorkerId, u64, Option<WorkerId>),
    /// Background connections stand, or one could not be made.
    Prepared(WorkerId, Membership, Option<WorkerId>),
    /// A shadow has received the last chunk of the state of this epoch.
    Chunks(WorkerId, u64),
    /// A worker that stood still goes on.
    Resume(WorkerId),
    /// The computing thread of a worker goes on.
    Unhang(WorkerId),
    /// What two workers send each other arrives again.
    LinkSpeaks(WorkerId, WorkerId),
    /// A process that was let go, with the number of that, is ended unless it came back.
    Killed(WorkerId, u64),
    /// A user tells the coordinator something.
    Told(Event),
    /// The coordinator goes on: it stood still, or only its main loop did (`true`).
    Awake(u64, bool),
    /// The server of a worker is gone.
    Revoked(WorkerId),
    /// Something goes wrong.
    Fault(Fault),
    /// Someone wants this many workers.
    Scale(u32),
    /// An update is to cover this many steps.
    Accumulate(u32),
    /// Someone wants the run to stop.
    Stop,
    /// A new coordinator process begins.
    CoordinatorStarts,
    /// The operator looks whether there are enough workers.
    Operator,
    /// The lead looks whether a verdict is due.
    Lead,
}

impl Happening {
    /// The process in which it happens; none if it is the coordinator or no process.
    fn process(&self) -> Option<WorkerId> {
        match self {
            Happening::Down(id, ..)
            | Happening::Attach(id)
            | Happening::Warmed(id)
            | Happening::Heartbeat(id)
            | Happening::Done(id, _)
            | Happening::Receipt(id, _)
            | Happening::Fails(id, ..)
            | Happening::Prepared(id, ..)
            | Happening::Chunks(id, _) => Some(*id),
            _ => None,
        }
    }

    /// Whether it happens in a worker's computing thread.
    fn is_of_the_computing_thread(&self) -> bool {
        matches!(
            self,
            Happening::Done(..)
                | Happening::Receipt(..)
                | Happening::Fails(..)
                | Happening::Prepared(..)
                | Happening::Chunks(..)
        )
    }

    /// Whether it waits while the coordinator stands still.
    fn is_for_the_coordinator(&self) -> bool {
        matches!(
            self,
            Happening::Tick(_)
                | Happening::Up(..)
                | Happening::Noticed(..)
                | Happening::ChildExited(..)
                | Happening::Uploaded { .. }
                | Happening::Written { .. }
                | Happening::Told(_)
        )
    }
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) random: Random,
    pub(crate) now: f64,
    queue: BTreeMap<(u64, u64), Happening>,
    serial: u64,
    pub(crate) processes: BTreeMap<WorkerId, Process>,
    pub(crate) coordinator: Option<Coordinator>,
    /// Which coordinator process this is.
    pub(crate) generation: u64,
    /// The coordinator stands still: what came meanwhile, and when.
    pub(crate) still: Option<Vec<(f64, Happening)>>,
    /// What a coordinator that is behind takes for the time.
    pub(crate) clock: Option<f64>,
    /// Processes that this coordinator has let go, each with the number of that.
    pub(crate) leaving: BTreeMap<WorkerId, u64>,
    /// The coordinator dies after this many further actions.
    pub(crate) dies_after: Option<u64>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// The session that the coordinator has with each worker.
    pub(crate) attached: BTreeMap<WorkerId, u64>,
    pub(crate) data: DataPlane,
    pub(crate) journal: Vec<Journal>,
    /// Checkpoints on disk: step and digest.
    pub(crate) stored: BTreeMap<u64, u64>,
    /// Who has written slices, and of which state, by coordinator, step and membership.
    pub(crate) slices: BTreeMap<(u64, u64, u64), BTreeMap<WorkerId, u64>>,
    /// Workers wanted by the last command, for a coordinator that starts again.
    pub(crate) asked: Option<u32>,
    /// Steps in the state with each digest that is the right result of updates of the right states.
    pub(crate) right: BTreeMap<u64, u64>,
    pub(crate) watch: Watch,
    pub(crate) end: Option<End>,
    pub(crate) violation: Option<String>,
    trace: Option<Vec<String>>,
    pub(crate) events: u64,
}

impl World {
    /// The world at time 0; `recording` keeps a line for each happening.
    pub(crate) fn new(scenario: Scenario, recording: bool) -> Self {
        let mut world = World {
            random: Random::new(scenario.seed),
            now: 0.0,
            queue: BTreeMap::new(),
            serial: 0,
            processes: BTreeMap::new(),
            coordinator: None,
            generation: 0,
            still: None,
            clock: None,
            leaving: BTreeMap::new(),
            dies_after: None,
            sessions: BTreeMap::new(),
            attached: BTreeMap::new(),
            data: DataPlane::default(),
            journal: Vec::new(),
            stored: BTreeMap::new(),
            slices: BTreeMap::new(),
            asked: None,
            right: BTreeMap::from([(FRESH, 0)]),
            watch: Watch::default(),
            end: None,
            violation: None,
            trace: recording.then(Vec::new),
            events: 0,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.at(0.0, Happening::CoordinatorStarts);
        if !self.scenario.spawns {
            self.at(0.1, Happening::Operator);
        }
        if self.scenario.rules.verdict_every > 0 {
            self.at(0.1, Happening::Lead);
        }
        if let Some(time) = self.scenario.stop_at_s {
            self.at(time, Happening::Stop);
        }
        for (time, workers) in self.scenario.scales.clone() {
            self.at(time, Happening::Scale(workers));
        }
        for (time, steps) in self.scenario.batches.clone() {
            self.at(time, Happening::Accumulate(steps));
        }
        for (fault, mean) in self.scenario.intervals.clone() {
            let mut time = self.random.interval(mean);
            while time < self.scenario.faults_until_s {
                self.at(time, Happening::Fault(fault));
                time += self.random.interval(mean);
            }
        }
        if !self.scenario.calm() {
            // Whatever the faults left behind, a user looks after the run in the end.
            let limit = u64::from(self.scenario.virtual_nodes.min(6));
            let workers = 1 + self.random.below(limit) as u32;
            let workers = if self.scenario.spawns { workers } else { self.scenario.wanted };
            self.at(self.scenario.faults_until_s + 0.5, Happening::Scale(workers));
        }
    }

    /// Lets it happen in `delay` seconds.
    pub(crate) fn after(&mut self, delay: f64, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    /// Lets it happen at this time.
    pub(crate) fn at(&mut self, time: f64, happening: Happening) {
        self.serial += 1;
        self.queue.insert((time.to_bits(), self.serial), happening);
    }

    /// A number not used before.
    pub(crate) fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether faults still happen.
    pub(crate) fn in_fault_lifecycle(&self) -> bool {
        self.now < self.scenario.faults_until_s
    }

    /// Adds a line to the trace, if one is kept.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:.6} {}", line()));
        }
    }

    /// Notes that something is not as it must be.
    pub(crate) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.note(|| format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    /// Runs until the run is over and all processes have ended.
    pub(crate) fn run(&mut self) {
        let limit = self.scenario.faults_until_s.max(10.0) + PATIENCE_S;
        let mut ends = f64::INFINITY;
        while let Some((key, happening)) = self.queue.pop_first() {
            self.now = f64::from_bits(key.0);
            if self.violation.is_some() || self.now > ends {
                break;
            }
            if self.now > limit {
                let text = self.everyone();
                self.violate(format!("the run does not end: {text}"));
                break;
            }
            self.events += 1;
            self.happen(happening);
            if self.end.is_some() && ends.is_infinite() {
                ends = self.now + 3.0;
            }
        }
        if self.violation.is_none() {
            self.check_end();
        }
    }

    pub(crate) fn happen(&mut self, happening: Happening) {
        if let Some(id) = happening.process() {
            let Some(process) = self.processes.get_mut(&id) else { return };
            if !process.alive {
                return;
            }
            if process.still {
                process.deferred.push(happening);
                return;
            }
            if process.hung && happening.is_of_the_computing_thread() {
                process.held_up.push(happening);
                return;
            }
            self.happen_in(id, happening);
            if self.violation.is_none() {
                self.check_process(id);
            }
            return;
        }
        if happening.is_for_the_coordinator()
            && let Some(put_off) = &mut self.still
        {
            put_off.push((self.now, happening));
            return;
        }
        match happening {
            Happening::Tick(generation) => self.tick(generation),
            Happening::Up(session, up) => self.arrived_up(session, up),
            Happening::Noticed(session, why) => self.noticed(session, why),
            Happening::ChildExited(generation, id) => self.child_exited(generation, id),
            Happening::Uploaded { generation, from, step, digest, full, cut } => {
                let (epoch, count) = cut;
                let slices = self.scenario.rules.slices;
                if !slices || self.has_all_slices((generation, step, epoch), from, digest, count) {
                    self.uploaded(generation, from, step, digest, full);
                }
            }
            Happening::Written { generation, step, digest, full } => {
                self.written(generation, step, digest, full);
            }
            Happening::Resume(id) => self.resume(id),
            Happening::Unhang(id) => self.unhang(id),
            Happening::LinkSpeaks(a, b) => self.let_link_speak(a, b),
            Happening::Killed(id, number) => self.see_off(id, number),
            Happening::Told(event) => self.coordinate(event),
            Happening::Awake(generation, behind) => self.awake(generation, behind),
            Happening::Revoked(id) => self.kill(id),
            Happening::Fault(fault) => self.fault(fault),
            Happening::Scale(workers) => self.scale(workers),
            Happening::Accumulate(steps) => self.tell(Event::Accumulate(steps)),
            Happening::Stop => self.ask_to_stop(),
            Happening::CoordinatorStarts => self.start_coordinator(),
            Happening::Operator => self.operate(),
            Happening::Lead => self.lead(),
            _ => unreachable!("it happens in a process"),
        }
    }

    fn happen_in(&mut self, id: WorkerId, happening: Happening) {
        if !matches!(happening, Happening::Heartbeat(_) | Happening::Attach(_)) {
            self.note(|| format!("{happening:?}"));
        }
        match happening {
            Happening::Down(_, session, down) => self.arrived_down(id, session, down),
            Happening::Attach(_) => self.attach(id),
            Happening::Warmed(_) => self.warmed(id),
            Happening::Heartbeat(_) => self.heartbeat(id),
            Happening::Done(_, serial) => self.done(id, serial),
            Happening::Receipt(_, serial) => self.receipt(id, serial),
            Happening::Fails(_, serial, peer) => self.fails(id, serial, peer),
            Happening::Prepared(_, membership, lacking) => self.prepared(id, membership, lacking),
            Happening::Chunks(_, epoch) => self.chunks(id, epoch),
            _ => unreachable!("it does not happen in a process"),
        }
    }

    fn tick(&mut self, generation: u64) {
        if generation == self.generation && self.coordinator.is_some() && self.end.is_none() {
            self.coordinate(Event::Tick);
            self.after(TICK_S, Happening::Tick(generation));
        }
    }

    /// Where every process is, for the report of a run that is stuck.
    pub(crate) fn everyone(&self) -> String {
        let mut lines = vec![match &self.coordinator {
            Some(coordinator) => format!(
                "coordinator {} wanted {} committed {} workers {:?} in {:?}",
                coordinator.lifecycle(),
                coordinator.wanted(),
                coordinator.progress().committed(),
                coordinator.workers().map(|w| (w.0, w.1, w.4)).collect::<Vec<_>>(),
                coordinator.membership()
            ),
            None => "no coordinator".to_string(),
        }];
        for (id, process) in self.processes.iter().filter(|(_, p)| p.alive) {
            lines.push(format!(
                "worker {id} {:?} next {:?} held {:?} session {:?} member {:?}",
                process.activity,
                process.member.next_task(),
                process.member.held(),
                process.session,
                process.member
            ));
        }
        lines.join("\n  ")
    }

    /// Whether the run did all its steps.
    pub(crate) fn finished(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.how == RunOutcome::Finished)
    }

    /// What the history went through, in counts.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let rounds = |kind: Kind| -> u64 {
            let complete = |e: &Epoch| e.rounds.iter().filter(|r| r.kind == kind && r.complete).count();
            self.data.epochs.values().map(complete).sum::<usize>() as u64
        };
        let promotions = self.watch.memberships.values().filter(|m| !m.promoted.is_empty()).count();
        let ended = |word: &str| u64::from(self.end.as_ref().is_some_and(|end| end.how.word() == word));
        let failed_for =
            |why: &str| u64::from(self.end.as_ref().is_some_and(|end| end.how.reason().contains(why)));
        vec![
            ("finished", ended("finished")),
            ("failed", ended("failed")),
            ("failed to boot", failed_for("comes up")),
            ("failed barren", failed_for("in a row")),
            ("stopped", self.watch.stopped),
            ("coordinators", self.generation),
            ("workers", self.processes.len() as u64),
            ("memberships", self.watch.memberships.len() as u64),
            ("promotions", promotions as u64),
            ("crashes", self.watch.crashes),
            ("failures of rounds", self.watch.failures),
            ("catch-ups", self.watch.catch_ups),
            ("lost results", self.watch.lost_results),
            ("rollbacks", self.watch.rolled_back),
            ("refusals", self.watch.refused),
            ("verdicts", self.watch.verdicts.len() as u64),
            ("early ends", self.watch.verdicts.values().filter(|ends| **ends).count() as u64),
            ("mismatches", self.watch.mismatches),
            ("quarantines", self.watch.quarantined.len() as u64),
            ("pauses of the coordinator", self.watch.pauses),
            ("hangs", self.watch.hangs),
            ("silent links", self.watch.silent_links),
            ("late members", self.watch.late),
            ("late members that were lost", self.watch.lost_late),
            ("training rounds", rounds(Kind::Train)),
            ("hold rounds", rounds(Kind::Hold)),
            ("changes of the batch", self.watch.batch_changes),
            ("histories compared with their journal", self.watch.replayed),
            ("evaluations", rounds(Kind::Evaluate)),
            ("wanted numbers looked at", self.watch.wanted_checked),
            ("scheduled changes looked at", self.watch.schedules_checked),
            ("events", self.events),
        ]
    }

    /// The lines kept so far.
    pub(crate) fn into_trace(self) -> Vec<String> {
        self.trace.unwrap_or_default()
    }

    /// The last lines kept so far.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let trace = self.trace.as_deref().unwrap_or_default();
        trace[trace.len().saturating_sub(count)..].join("\n")
    }
}
