//! All processes, and the dice that say which is next.

use std::collections::{BTreeMap, VecDeque};

use bellwether_core::plan::Synchronisation;
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::{Coordinator, End, Event};
use bellwether_runtime::membership::{FromWorker, ServerReport, ToWorker, WorkerId, WorkloadDescription};

use super::server::Server;
use super::worker::Worker;
use bellwether_testkit::Random;

/// Moves within which a run must end once faults have stopped.
const PATIENCE: u64 = 60_000;

/// The units that were applied to each shard, as bits.
pub(crate) type State = Vec<u64>;

/// What a seed stands for, but for the dice thrown on the way.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) synchronisation: Synchronisation,
    pub(crate) total_steps: u64,
    pub(crate) per_step: u64,
    pub(crate) wanted: u32,
    pub(crate) spawns: bool,
    pub(crate) checkpoint_every: u64,
    pub(crate) evaluate_every: u64,
    pub(crate) schedule: Vec<(u64, u32)>,
    /// Moves until faults stop.
    pub(crate) faults: u64,
    /// How often something goes wrong.
    pub(crate) rate: f64,
}

/// What travels to the coordinator.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    Attach { held: Option<(u64, u64)>, workload: Option<WorkloadDescription> },
    AttachServer,
    Said(FromWorker),
}

/// A worker's or a server's trade.
#[derive(Debug, Clone)]
pub(crate) enum Trade {
    Worker(Box<Worker>),
    Server(Server),
}

/// A process and its session.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    pub(crate) connected: bool,
    /// It says that it lives, and does nothing any more.
    pub(crate) hangs: bool,
    pub(crate) up: VecDeque<Up>,
    pub(crate) down: VecDeque<ToWorker>,
    pub(crate) trade: Trade,
}

/// What is remembered in order to judge.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    pub(crate) committed: u64,
    /// Units whose records were committed.
    pub(crate) counted: u64,
    /// Updates of each shard that were told to be lost.
    pub(crate) stated: Vec<u64>,
    pub(crate) largest_staleness: BTreeMap<u64, u64>,
    pub(crate) replaced: u64,
    pub(crate) crashed: u64,
    pub(crate) applied: u64,
    pub(crate) stop_asked: bool,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now_s: f64,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) generation: u64,
    pub(crate) processes: BTreeMap<WorkerId, Process>,
    pub(crate) journal: Vec<Journal>,
    /// Checkpoints on disk.
    pub(crate) stored: BTreeMap<u64, State>,
    /// The newest state in the coordinator's memory.
    pub(crate) held: Option<(u64, State)>,
    /// A state that is put together: its step, who hands over, and what came.
    pub(crate) collecting: Option<(u64, Vec<WorkerId>, Vec<Option<u64>>)>,
    /// States to be written.
    pub(crate) writing: VecDeque<(u64, State)>,
    /// Ends of sessions that the coordinator has not seen.
    pub(crate) notices: Vec<WorkerId>,
    /// The boundaries at which memberships began.
    pub(crate) begun: BTreeMap<u64, u64>,
    pub(crate) end: Option<End>,
    pub(crate) watch: Watch,
    pub(crate) violation: Option<String>,
    trace: Option<Vec<String>>,
    moves: u64,
}

impl World {
    pub(crate) fn new(seed: u64, recording: bool) -> World {
        let mut random = Random::new(seed);
        let plan = draw(&mut random);
        let shards = plan.synchronisation.servers as usize;
        let mut world = World {
            random,
            now_s: 0.0,
            coordinator: None,
            generation: 0,
            processes: BTreeMap::new(),
            journal: Vec::new(),
            stored: BTreeMap::new(),
            held: None,
            collecting: None,
            writing: VecDeque::new(),
            notices: Vec::new(),
            begun: BTreeMap::new(),
            end: None,
            watch: Watch { stated: vec![0; shards], ..Watch::default() },
            violation: None,
            trace: recording.then(Vec::new),
            moves: 0,
            plan,
        };
        world.start_coordinator();
        world
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let (moves, generation) = (self.moves, self.generation);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{moves} [{generation}] {}", line()));
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The last lines kept so far.
    pub(crate) fn last_lines(&self, count: usize) -> String {
        let trace = self.trace.as_deref().unwrap_or_default();
        trace[trace.len().saturating_sub(count)..].join("\n")
    }

    /// Runs until the run has ended and all processes have gone.
    pub(crate) fn run(&mut self) {
        while self.violation.is_none() {
            self.moves += 1;
            if self.end.is_some() && !self.processes.values().any(|p| p.alive) {
                return;
            }
            if self.moves > self.plan.faults + PATIENCE {
                let text = self.everyone();
                return self.violate(format!("the run does not end: {text}"));
            }
            self.now_s += self.random.between(0.0005, 0.01);
            if self.moves < self.plan.faults && self.random.chance(self.plan.rate) {
                self.fault();
            }
            self.happen();
        }
    }

    /// Everything below `step` is applied to all shards.
    pub(crate) fn before(&self, step: u64) -> u64 {
        (1u64 << (step * self.plan.per_step)) - 1
    }

    fn happen(&mut self) {
        let living: Vec<WorkerId> =
            self.processes.iter().filter(|(_, p)| p.alive).map(|(id, _)| *id).collect();
        match self.random.below(10) {
            0 => {
                self.coordinate(Event::Tick);
                self.operate();
            }
            1 => self.write_one(),
            2 => {
                if let Some(id) = self.random.pick(&self.notices) {
                    self.notices.retain(|noticed| *noticed != id);
                    self.coordinate(Event::Gone(id, "its session broke".into()));
                }
            }
            3 if self.coordinator.is_none() && self.end.is_none() => self.start_coordinator(),
            what => {
                let Some(id) = self.random.pick(&living) else { return };
                match what {
                    // Its session's thread goes on.
                    8.. if self.processes[&id].hangs && !self.processes[&id].connected => self.work(id),
                    6 | 7 => self.speak(id),
                    _ if self.processes[&id].hangs => {}
                    3..=5 => self.hear(id),
                    _ => self.work(id),
                }
            }
        }
    }

    /// A process gets the next message.
    fn hear(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(message) = process.down.pop_front() else { return };
        if !process.connected && !matches!(message, ToWorker::Bye { .. }) {
            return;
        }
        self.note(|| format!("{id} hears {message:?}"));
        if matches!(message, ToWorker::Bye { .. }) {
            let process = self.processes.get_mut(&id).expect("it hears");
            (process.alive, process.connected) = (false, false);
            process.up.clear();
            self.forget_links(id);
            return self.notices.push(id);
        }
        match self.processes.get_mut(&id).map(|process| &mut process.trade) {
            Some(Trade::Worker(_)) => self.worker_hears(id, message),
            Some(Trade::Server(_)) => self.server_hears(id, message),
            None => {}
        }
    }

    /// The next message of a process arrives at the coordinator.
    fn speak(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if self.coordinator.is_none() || !process.connected {
            return;
        }
        let Some(up) = process.up.pop_front() else { return };
        if !matches!(up, Up::Said(FromWorker::ServerReport(_))) {
            self.note(|| format!("{id} says {up:?}"));
        }
        let attaches = matches!(up, Up::Attach { .. } | Up::AttachServer);
        if attaches && self.coordinator.as_ref().is_some_and(|c| c.refusal(id, id).is_some()) {
            // It hears why, and ends.
            let process = self.processes.get_mut(&id).expect("it speaks");
            (process.alive, process.connected) = (false, false);
            return self.forget_links(id);
        }
        let address = format!("host{}:{id}", id % 3);
        self.coordinate(match up {
            Up::Attach { held, workload } => Event::Attached {
                worker: id,
                address,
                process: 1,
                instance: id,
                waited_s: 0.0,
                held,
                workload,
            },
            Up::AttachServer => {
                Event::ServerAttached { server: id, address, process: 1, instance: id, waited_s: 0.0 }
            }
            Up::Said(message) => Event::Said(id, message),
        });
    }

    fn work(&mut self, id: WorkerId) {
        let process = &self.processes[&id];
        if !process.connected {
            if self.coordinator.is_some() && self.end.is_none() {
                return self.attach(id);
            }
            if self.end.is_some() {
                // No coordinator lives any more.
                self.kill(id);
            }
            return;
        }
        match &process.trade {
            Trade::Worker(_) => self.worker_works(id),
            Trade::Server(server) => {
                let epoch = server.duty.as_ref().map(|duty| duty.epoch);
                if let Some(epoch) = epoch.filter(|_| self.random.chance(0.1)) {
                    let report = ServerReport { epoch, ..ServerReport::default() };
                    self.say(id, FromWorker::ServerReport(report));
                }
            }
        }
    }

    /// Opens a session; of an earlier one nothing is heard any more.
    fn attach(&mut self, id: WorkerId) {
        self.notices.retain(|noticed| *noticed != id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        (process.connected, process.up, process.down) = (true, VecDeque::new(), VecDeque::new());
        let up = match &mut process.trade {
            Trade::Worker(worker) => {
                worker.member.reconnected();
                let workload = worker.warm.then(WorkloadDescription::default);
                Up::Attach { held: worker.member.held(), workload }
            }
            Trade::Server(_) => Up::AttachServer,
        };
        process.up.push_back(up);
    }

    pub(crate) fn say(&mut self, id: WorkerId, message: FromWorker) {
        if let Some(process) = self.processes.get_mut(&id).filter(|process| process.connected) {
            process.up.push_back(Up::Said(message));
        }
    }

    pub(crate) fn kill(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        (process.alive, process.connected) = (false, false);
        self.note(|| format!("{id} is killed"));
        self.forget_links(id);
        self.notices.push(id);
    }

    /// The session breaks, and both ends live.
    pub(crate) fn disconnect(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.connected) else { return };
        process.connected = false;
        process.up.clear();
        process.down.clear();
        match &mut process.trade {
            Trade::Worker(worker) => worker.disconnected(),
            Trade::Server(server) => server.duty = None,
        }
        self.forget_links(id);
        self.note(|| format!("the session of {id} breaks"));
        self.notices.push(id);
    }

    fn fault(&mut self) {
        let living: Vec<WorkerId> =
            self.processes.iter().filter(|(_, p)| p.alive).map(|(id, _)| *id).collect();
        let serves = |id: &WorkerId| matches!(self.processes[id].trade, Trade::Server(_));
        let (servers, workers): (Vec<WorkerId>, Vec<WorkerId>) = living.iter().copied().partition(serves);
        let kind = self.random.below(13);
        self.note(|| format!("fault {kind}"));
        match kind {
            0..=2 => self.random.pick(&workers).into_iter().for_each(|id| self.kill(id)),
            3 | 4 => self.random.pick(&servers).into_iter().for_each(|id| self.kill(id)),
            5 => workers.into_iter().for_each(|id| self.kill(id)),
            6 if self.random.chance(0.3) => living.into_iter().for_each(|id| self.kill(id)),
            7 => self.random.pick(&living).into_iter().for_each(|id| self.disconnect(id)),
            8 if self.random.chance(0.5) => self.kill_coordinator(),
            9 => {
                let workers = 1 + self.random.below(4) as u32;
                self.coordinate(Event::Scale(workers));
            }
            10 => self.ask_protocol(),
            11 if self.random.chance(0.1) => {
                self.watch.stop_asked = true;
                self.coordinate(Event::Stop);
            }
            12 => {
                match self.random.pick(&servers) {
                    // A process that does not go when the run is over is killed.
                    Some(id) if self.end.is_some() => self.kill(id),
                    Some(id) => self.processes.get_mut(&id).expect("it lives").hangs = true,
                    None => {}
                }
            }
            11 => {
                if let Some(id) = self.random.pick(&workers) {
                    self.say(id, FromWorker::Leave { replace: false });
                }
            }
            _ => {}
        }
    }

    fn ask_protocol(&mut self) {
        let protocols = [Protocol::Asp, Protocol::Ssp(0), Protocol::Ssp(2), Protocol::Bsp];
        let protocol = self.random.pick(&protocols).expect("not empty");
        let at = self.watch.committed + self.random.below(4);
        self.coordinate(Event::Protocol(at, protocol));
    }

    /// Where every process is, for the report of a run that is stuck.
    fn everyone(&self) -> String {
        let mut lines = Vec::new();
        if let Some(c) = &self.coordinator {
            lines.push(format!("coordinator {} at {}: {c:?}", c.lifecycle(), c.progress().committed()));
        }
        for (id, process) in self.processes.iter().filter(|(_, process)| process.alive) {
            lines.push(format!("{id}: {process:?}"));
        }
        lines.join("\n")
    }
}

fn draw(random: &mut Random) -> Plan {
    let per_step = 1 + random.below(4);
    let total_steps = 6 + random.below(56 / per_step - 6).min(14);
    let protocols = [Protocol::Bsp, Protocol::Asp, Protocol::Ssp(0), Protocol::Ssp(1), Protocol::Ssp(3)];
    let mut phases = vec![(0, random.pick(&protocols).expect("not empty"))];
    for _ in 0..random.below(3) {
        let at = phases.last().map_or(0, |last| last.0) + 1 + random.below(5);
        if at < total_steps {
            phases.push((at, random.pick(&protocols).expect("not empty")));
        }
    }
    let (calm, spawns) = (random.chance(0.15), random.chance(0.7));
    Plan {
        synchronisation: Synchronisation {
            phases,
            servers: 1 + random.below(3) as u32,
            reduce_at_servers: random.chance(0.6),
            replica: random.chance(0.5),
            ..Synchronisation::default()
        },
        total_steps,
        per_step,
        wanted: 1 + random.below(4) as u32,
        spawns,
        checkpoint_every: random.pick(&[0, 0, 2, 5]).expect("not empty"),
        evaluate_every: random.pick(&[0, 3]).expect("not empty"),
        // A person who starts workers by hand is not told of a schedule.
        schedule: if spawns && random.chance(0.3) {
            vec![(2, 1 + random.below(4) as u32), (5, 2)]
        } else {
            Vec::new()
        },
        faults: if calm { 0 } else { 500 + random.below(4000) },
        rate: random.pick(&[0.002, 0.01, 0.03]).expect("not empty"),
    }
}
