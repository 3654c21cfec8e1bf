//! The simulation itself: workers that step through the graph, servers that apply, and who waits for whom.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bellwether_core::error::InputError;
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::{OperationKind, Profile};
use bellwether_des::fair::LinkId;
use bellwether_des::{MaxMinFair, Queue, Stream as Random, Streams};

use super::connection::{Connection, Job};
use super::graph::Graph;
use super::measure::Measure;
use super::trace::{Place, TraceRow};
use super::{ComputeDiscipline, LinkSharing, Outcome, Resource, Setting, StepEnd, UpdateDiscipline};

/// What happens at a time that is known beforehand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A worker begins a step.
    Begin(u32),
    /// A computation is done.
    Computed(Job),
    /// A server has heard that a part is wanted.
    Asked(Job),
    /// The last byte of a part has arrived.
    Arrived(Job),
    /// A part has been made ready for use.
    Parsed(Job),
    /// A gradient has been applied.
    Updated(Job),
    /// The worker, or all of them, know that a gradient has been applied.
    Known(Job),
}

/// One worker within its step.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) step: u32,
    pub(super) drawn: u32,
    /// Operations of this step that are not done.
    remaining: u32,
    /// Operations that each operation waits for.
    waits: Vec<u32>,
    /// In order: the next computation.
    next_compute: usize,
    /// In slots: computations that are ready, by their turn.
    ready: BinaryHeap<Reverse<(u32, u32)>>,
    free_slots: u32,
    speed: f64,
    draws: Random,
    pub(super) sizes: Random,
}

/// Everything that changes while it runs.
pub(super) struct Engine<'a> {
    pub(super) graph: &'a Graph,
    pub(super) setting: &'a Setting,
    pub(super) now_s: f64,
    pub(super) queue: Queue<Event>,
    pub(super) links: MaxMinFair<u32>,
    pub(super) link_ids: Vec<LinkId>,
    pub(super) connections: Vec<Connection>,
    /// Idle connections that have got something to send. They choose when everything of this time has
    /// happened, and so among all parts that were asked for at once.
    pub(super) idle: Vec<u32>,
    pub(super) workers: Vec<Worker>,
    /// When each process's parser is free: workers, then servers.
    pub(super) parser_free_s: Vec<f64>,
    /// When each updater is free: by server, or by part.
    updater_free_s: Vec<f64>,
    /// Synchronous: workers whose gradient of an operation is there.
    gathered: Vec<u32>,
    /// Operations that are done, and whose followers have not heard.
    done: VecDeque<(u32, u32)>,
    /// Workers that wait for others, and steps completed by the slowest.
    blocked: Vec<u32>,
    slowest: u32,
    /// Workers that have completed no more than that.
    at_slowest: usize,
    /// Updates applied to each part, and how many were when each worker last asked for it: worker by worker.
    versions: Vec<u32>,
    asked: Vec<u32>,
    pub(super) measure: Measure,
    pub(super) transfers: u64,
}

impl<'a> Engine<'a> {
    pub(super) fn new(graph: &'a Graph, setting: &'a Setting) -> Self {
        let (workers, servers) = (setting.workers as usize, setting.servers as usize);
        let streams = Streams::new(setting.seed);
        let mut links = MaxMinFair::new();
        // Servers first: on ties they count as bottlenecks, and their many flows then share one rate.
        let server_links = std::iter::repeat_n(setting.server_link_bytes_per_s, 2 * servers);
        let worker_links = std::iter::repeat_n(setting.worker_link_bytes_per_s, 2 * workers);
        let link_ids = server_links.chain(worker_links).map(|capacity| links.add_link(capacity)).collect();
        let connections = match setting.link_sharing {
            LinkSharing::MaxMin => 2 * workers * servers,
            LinkSharing::OneAtATime => 2 * servers,
        };
        let updaters = match setting.updates {
            UpdateDiscipline::Serial => servers,
            UpdateDiscipline::PerPart => graph.parts,
        };
        let slots = match setting.compute {
            ComputeDiscipline::InOrder => 1,
            ComputeDiscipline::Slots(slots) => slots,
        };
        let worker = |number: usize| Worker {
            step: 0,
            drawn: 0,
            remaining: 0,
            waits: graph.waits.clone(),
            next_compute: 0,
            ready: BinaryHeap::new(),
            free_slots: slots,
            speed: setting.speeds.get(number).copied().unwrap_or(1.0),
            draws: streams.stream("measured step", number as u64),
            sizes: streams.stream("size", number as u64),
        };
        Engine {
            graph,
            setting,
            now_s: 0.0,
            queue: Queue::new(),
            links,
            link_ids,
            connections: (0..connections).map(|_| Connection::new(&setting.order)).collect(),
            idle: Vec::new(),
            workers: (0..workers).map(worker).collect(),
            parser_free_s: vec![0.0; workers + servers],
            updater_free_s: vec![0.0; updaters],
            gathered: vec![0; graph.tasks.len()],
            done: VecDeque::new(),
            blocked: Vec::new(),
            slowest: 0,
            at_slowest: workers,
            versions: vec![0; graph.parts],
            asked: vec![0; workers * graph.parts],
            measure: Measure::new(setting),
            transfers: 0,
        }
    }

    pub(super) fn run(mut self, profile: &Profile) -> Result<Outcome, InputError> {
        let streams = Streams::new(self.setting.seed);
        for worker in 0..self.setting.workers {
            let offset_s = match self.setting.random_start {
                true => streams.stream("start", u64::from(worker)).uniform() * self.graph.mean_step_s,
                false => 0.0,
            };
            self.queue.schedule(offset_s, Event::Begin(worker));
        }
        while !self.measure.is_enough() {
            let flow_s = self.links.next_time().unwrap_or(f64::INFINITY);
            let event_s = self.queue.next_time().unwrap_or(f64::INFINITY);
            if !self.idle.is_empty() && self.now_s < flow_s.min(event_s) {
                self.start_idle();
            } else if flow_s <= event_s && flow_s.is_finite() {
                // What is under way ends before something begins.
                self.end_turn();
            } else if let Some((time_s, event)) = self.queue.pop() {
                self.now_s = self.now_s.max(time_s);
                self.happen(event);
            } else {
                return Err(InputError::new("operations", "the step of this profile never ends"));
            }
            self.settle();
            if !self.now_s.is_finite() {
                return Err(InputError::new("steps", "durations of this size cannot be added up"));
            }
        }
        let events = self.queue.scheduled() + self.transfers;
        self.measure.outcome(profile, self.setting, self.now_s, events)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin(worker) => self.begin(worker),
            Event::Computed(job) => self.computed(job),
            Event::Asked(job) => self.asked(job),
            Event::Arrived(job) => self.arrived(job),
            Event::Parsed(job) => self.parsed(job),
            Event::Updated(job) => self.updated(job),
            Event::Known(job) => self.known(job),
        }
    }

    fn begin(&mut self, number: u32) {
        let (graph, worker) = (self.graph, &mut self.workers[number as usize]);
        worker.drawn = worker.draws.below(graph.measured) as u32;
        worker.remaining = graph.tasks.len() as u32;
        worker.waits.copy_from_slice(&graph.waits);
        worker.next_compute = 0;
        for operation in &graph.sources {
            self.ready(number, *operation);
        }
        self.compute(number);
    }

    /// The job of an operation in the worker's present step.
    fn job(&self, worker: u32, operation: u32) -> Job {
        let Worker { step, drawn, .. } = self.workers[worker as usize];
        // A computation has no part, and nothing asks for its version.
        let part = self.graph.tasks[operation as usize].part as usize;
        let version = self.asked.get(worker as usize * self.graph.parts + part).copied().unwrap_or(0);
        Job { worker, operation, step, drawn, version }
    }

    /// A server has heard that a worker wants a part: it is sent as it is now.
    fn asked(&mut self, job: Job) {
        let part = self.graph.tasks[job.operation as usize].part as usize;
        self.asked[job.worker as usize * self.graph.parts + part] = self.versions[part];
        self.enqueue(job);
    }

    /// A gradient has been applied to its part.
    pub(super) fn applied(&mut self, job: Job) {
        let part = self.graph.tasks[job.operation as usize].part as usize;
        // What was never asked for is not stale, and what all wait for neither.
        if self.graph.downloaded[part] && self.setting.protocol != Protocol::Bsp {
            self.measure.applied(self.versions[part].wrapping_sub(job.version));
        }
        self.versions[part] = self.versions[part].wrapping_add(1);
    }

    /// An operation waits for no other any more.
    fn ready(&mut self, number: u32, operation: u32) {
        let task = &self.graph.tasks[operation as usize];
        match task.kind {
            OperationKind::Compute => {
                if self.setting.compute != ComputeDiscipline::InOrder {
                    self.workers[number as usize].ready.push(Reverse((task.turn, operation)));
                }
            }
            OperationKind::Download(_) => {
                let job = self.job(number, operation);
                self.later(self.setting.latency_s, Event::Asked(job));
            }
            OperationKind::Upload(_) => self.enqueue(self.job(number, operation)),
            OperationKind::Update(_) => match (self.setting.protocol, self.setting.step_end) {
                (Protocol::Bsp, _) => {
                    self.gathered[operation as usize] += 1;
                    if self.gathered[operation as usize] == self.setting.workers {
                        self.gathered[operation as usize] = 0;
                        self.update(self.job(number, operation));
                    }
                }
                // The worker does not wait for it; the server hears of it with the part.
                (_, StepEnd::Sent) => self.complete(number, operation),
                (_, StepEnd::Applied) => self.update(self.job(number, operation)),
            },
        }
    }

    /// Lets an event happen after a delay, at once when there is none.
    pub(super) fn later(&mut self, delay_s: f64, event: Event) {
        if delay_s > 0.0 {
            self.queue.schedule(self.now_s + delay_s, event);
        } else {
            self.happen(event);
        }
    }

    pub(super) fn complete(&mut self, worker: u32, operation: u32) {
        self.done.push_back((worker, operation));
    }

    /// Tells the followers of what is done, until nothing more is done at this time.
    fn settle(&mut self) {
        while let Some((number, operation)) = self.done.pop_front() {
            let graph = self.graph;
            for follower in graph.followers(operation) {
                let waits = &mut self.workers[number as usize].waits[*follower as usize];
                *waits -= 1;
                if *waits == 0 {
                    self.ready(number, *follower);
                }
            }
            self.compute(number);
            let worker = &mut self.workers[number as usize];
            worker.remaining -= 1;
            if worker.remaining == 0 {
                self.step_done(number);
            }
        }
    }

    /// Starts what can be computed.
    fn compute(&mut self, number: u32) {
        let graph = self.graph;
        loop {
            let worker = &mut self.workers[number as usize];
            if worker.free_slots == 0 {
                return;
            }
            let next = match self.setting.compute {
                ComputeDiscipline::InOrder => {
                    let next = graph.computes.get(worker.next_compute).copied();
                    next.filter(|operation| worker.waits[*operation as usize] == 0)
                }
                ComputeDiscipline::Slots(_) => worker.ready.pop().map(|Reverse((_, operation))| operation),
            };
            let Some(operation) = next else { return };
            worker.next_compute += 1;
            worker.free_slots -= 1;
            let duration_s = graph.duration_s(worker.drawn, operation) / worker.speed;
            let job = self.job(number, operation);
            self.record(job, Place::Compute, self.now_s, self.now_s + duration_s);
            self.measure.work(Resource::Compute(number), duration_s);
            // Always an event: a chain of operations that take no time must not become a deep recursion.
            self.queue.schedule(self.now_s + duration_s, Event::Computed(job));
        }
    }

    fn computed(&mut self, job: Job) {
        self.workers[job.worker as usize].free_slots += 1;
        self.complete(job.worker, job.operation);
    }

    /// Gives a gradient to its server's updater.
    pub(super) fn update(&mut self, job: Job) {
        let task = &self.graph.tasks[job.operation as usize];
        let updater = match self.setting.updates {
            UpdateDiscipline::Serial => task.server,
            UpdateDiscipline::PerPart => task.part,
        };
        let free_s = &mut self.updater_free_s[updater as usize];
        let begin_s = free_s.max(self.now_s);
        let duration_s = self.graph.duration_s(job.drawn, job.operation);
        *free_s = begin_s + duration_s;
        let end_s = *free_s;
        self.measure.work(Resource::ServerUpdate(task.server), duration_s);
        self.record(job, Place::Update(task.server), begin_s, end_s);
        self.later(end_s - self.now_s, Event::Updated(job));
    }

    fn updated(&mut self, job: Job) {
        self.applied(job);
        if self.setting.step_end == StepEnd::Applied {
            self.later(self.setting.latency_s, Event::Known(job));
        }
    }

    fn known(&mut self, job: Job) {
        let is_update = matches!(self.graph.tasks[job.operation as usize].kind, OperationKind::Update(_));
        if is_update && self.setting.protocol == Protocol::Bsp {
            (0..self.setting.workers).for_each(|worker| self.complete(worker, job.operation));
        } else {
            self.complete(job.worker, job.operation);
        }
    }

    fn step_done(&mut self, number: u32) {
        self.measure.completed(self.now_s);
        self.workers[number as usize].step += 1;
        let ahead = match self.setting.protocol {
            // Without a server no step of it is local.
            Protocol::Bsp | Protocol::Local(_) => 0,
            Protocol::Ssp(bound) => bound,
            Protocol::Asp | Protocol::Gossip => {
                self.queue.schedule(self.now_s, Event::Begin(number));
                return;
            }
        };
        // Only the last of the slowest lets others go on.
        if self.workers[number as usize].step == self.slowest + 1 {
            self.at_slowest -= 1;
            if self.at_slowest == 0 {
                self.slowest += 1;
                let is_slowest = |worker: &&Worker| worker.step == self.slowest;
                self.at_slowest = self.workers.iter().filter(is_slowest).count();
                self.blocked.sort_unstable();
                for worker in std::mem::take(&mut self.blocked) {
                    self.go_on(worker, ahead);
                }
            }
        }
        self.go_on(number, ahead);
    }

    /// Lets a worker begin its next step, unless it is too far ahead.
    fn go_on(&mut self, number: u32, ahead: u32) {
        if self.workers[number as usize].step - self.slowest <= ahead {
            self.queue.schedule(self.now_s, Event::Begin(number));
        } else {
            self.blocked.push(number);
        }
    }

    /// Notes a row of the trace.
    pub(super) fn record(&mut self, job: Job, place: Place, start_s: f64, end_s: f64) {
        if self.measure.trace.len() < self.setting.trace_rows {
            let Job { worker, operation, step, .. } = job;
            self.measure.trace.push(TraceRow { worker, step, operation, place, start_s, end_s });
        }
    }
}
