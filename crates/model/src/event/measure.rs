//! What is counted while it runs: completions, work of each resource, and when there is enough of it.

use bellwether_core::error::InputError;
use bellwether_core::profile::Profile;
use bellwether_des::statistics::{Interval, Tally};

use super::trace::TraceRow;
use super::{ComputeDiscipline, Outcome, Resource, Setting, UpdateDiscipline, Utilisation};

/// Fewest batches of an interval.
const BATCHES: usize = 20;
/// An early end needs batches of this many steps of each worker, so that they do not depend on each other.
const STEPS_PER_BATCH: usize = 5;
const LEVEL: f64 = 0.95;
/// Staleness values that are told apart: more than one turn of this many workers.
const STALENESS_MAX: u32 = 1 << 16;

pub(super) struct Measure {
    workers: usize,
    servers: usize,
    most_steps: usize,
    warm_up: usize,
    wanted: f64,
    /// Completions so far, and the times of those after the warm-up, from its end on.
    completed: usize,
    times_s: Vec<f64>,
    next_look: usize,
    enough: bool,
    /// Seconds of work by resource, and what it was at the end of the warm-up.
    work_s: Vec<f64>,
    warm_s: Vec<f64>,
    /// Updates by their staleness.
    staleness: Vec<u64>,
    pub(super) trace: Vec<TraceRow>,
}

impl Measure {
    pub(super) fn new(setting: &Setting) -> Self {
        let (workers, servers) = (setting.workers as usize, setting.servers as usize);
        let most_steps = setting.steps as usize;
        // Whole rounds of all workers, so that steps that end together are counted together.
        let rounds = (most_steps / 20).div_ceil(workers).max(2);
        let warm_up = (rounds * workers).min(most_steps / 2);
        Measure {
            workers,
            servers,
            most_steps,
            warm_up,
            wanted: setting.relative_half_width,
            completed: 0,
            times_s: Vec::new(),
            next_look: warm_up + BATCHES * STEPS_PER_BATCH * workers,
            enough: false,
            work_s: vec![0.0; 4 * (workers + servers)],
            warm_s: vec![0.0; 4 * (workers + servers)],
            staleness: Vec::new(),
            trace: Vec::new(),
        }
    }

    pub(super) fn is_enough(&self) -> bool {
        self.enough
    }

    /// A worker has completed a step.
    pub(super) fn completed(&mut self, now_s: f64) {
        if self.enough {
            return;
        }
        self.completed += 1;
        if self.completed >= self.warm_up {
            self.times_s.push(now_s);
        }
        if self.completed == self.warm_up {
            self.warm_s.copy_from_slice(&self.work_s);
        }
        if self.completed == self.next_look && self.wanted > 0.0 {
            self.next_look += self.next_look / 2;
            self.enough = self.interval().1.relative() <= self.wanted;
        }
        self.enough |= self.completed >= self.most_steps;
    }

    /// A gradient was applied after this many others since its part was asked for.
    pub(super) fn applied(&mut self, others: u32) {
        if self.completed < self.warm_up {
            return;
        }
        let place = others.min(STALENESS_MAX) as usize;
        if self.staleness.len() <= place {
            self.staleness.resize(place + 1, 0);
        }
        self.staleness[place] += 1;
    }

    /// Steps of a batch, and the interval of the seconds that a batch takes.
    fn interval(&self) -> (usize, Interval) {
        let steps = self.times_s.len() - 1;
        // Whole rounds of all workers where there are enough of them.
        let rounds = steps / (BATCHES * self.workers);
        let length = if rounds > 0 { rounds * self.workers } else { (steps / BATCHES).max(1) };
        let ends: Vec<f64> = self.times_s.iter().rev().step_by(length).copied().collect();
        let batches: Tally = ends.windows(2).map(|pair| pair[0] - pair[1]).collect();
        (length, batches.interval(LEVEL))
    }

    /// Counts seconds of work of a resource.
    pub(super) fn work(&mut self, resource: Resource, seconds: f64) {
        let number = self.number(resource);
        self.work_s[number] += seconds;
    }

    fn number(&self, resource: Resource) -> usize {
        let at_worker = |kind: usize, worker: u32| kind * self.workers + worker as usize;
        let at_server = |kind: usize, server: u32| 4 * self.workers + kind * self.servers + server as usize;
        match resource {
            Resource::Compute(worker) => at_worker(0, worker),
            Resource::WorkerParser(worker) => at_worker(1, worker),
            Resource::WorkerDownlink(worker) => at_worker(2, worker),
            Resource::WorkerUplink(worker) => at_worker(3, worker),
            Resource::ServerDownlink(server) => at_server(0, server),
            Resource::ServerUplink(server) => at_server(1, server),
            Resource::ServerParser(server) => at_server(2, server),
            Resource::ServerUpdate(server) => at_server(3, server),
        }
    }

    fn resources(&self) -> Vec<Resource> {
        let workers =
            [Resource::Compute, Resource::WorkerParser, Resource::WorkerDownlink, Resource::WorkerUplink];
        let servers = [
            Resource::ServerDownlink,
            Resource::ServerUplink,
            Resource::ServerParser,
            Resource::ServerUpdate,
        ];
        let at_workers = workers.iter().flat_map(|kind| (0..self.workers as u32).map(kind));
        at_workers.chain(servers.iter().flat_map(|kind| (0..self.servers as u32).map(kind))).collect()
    }

    fn utilisation(&self, passed_s: f64, setting: &Setting, parts: usize) -> Vec<Utilisation> {
        let row = |resource| {
            let capacity = match (resource, setting.compute, setting.updates) {
                (Resource::Compute(_), ComputeDiscipline::Slots(slots), _) => f64::from(slots),
                (Resource::ServerUpdate(_), _, UpdateDiscipline::PerPart) => {
                    (parts as f64 / self.servers as f64).max(1.0)
                }
                _ => 1.0,
            };
            let number = self.number(resource);
            let busy = (self.work_s[number] - self.warm_s[number]) / (passed_s * capacity);
            // Work is counted as a whole when it begins or ends, which may lie at the edge of the window.
            Utilisation { resource, busy: busy.clamp(0.0, 1.0) }
        };
        self.resources().into_iter().map(row).collect()
    }

    pub(super) fn outcome(
        self,
        profile: &Profile,
        setting: &Setting,
        now_s: f64,
        events: u64,
    ) -> Result<Outcome, InputError> {
        let steps = self.times_s.len() - 1;
        let passed_s = self.times_s[steps] - self.times_s[0];
        let (length, interval) = self.interval();
        // All time may also have passed in the steps that no batch holds.
        if passed_s <= 0.0 || interval.mean <= 0.0 {
            let what = "a step of this profile takes no time: neither computing nor bytes";
            return Err(InputError::new("operations", what).hint("measure again"));
        }
        let examples = profile.batch as f64;
        // The interval of the seconds per step, turned over; seconds stay positive.
        let s_per_step = interval.mean / length as f64;
        let half_width_s = interval.half_width / length as f64;
        let least_s = (s_per_step - half_width_s).max(s_per_step / 100.0);
        Ok(Outcome {
            examples_per_s: examples / s_per_step,
            low: examples / (s_per_step + half_width_s),
            high: examples / least_s,
            step_s: self.workers as f64 * s_per_step,
            steps: steps as u32,
            simulated_s: now_s,
            events,
            utilisation: self.utilisation(passed_s, setting, profile.parts.len()),
            staleness: self.staleness,
            trace: self.trace,
        })
    }
}
