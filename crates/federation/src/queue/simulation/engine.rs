//! One replication: events of arrival and departure, from empty servers to the end of the measured part.

use std::collections::VecDeque;

use bellwether_des::{Simulation, Streams};

use super::arrivals::Source;
use super::plan::{Candidate, Simulator};
use super::summary::{ClassCounts, Counts, Offered, Replication};

/// Simulates one replication: a function of its arguments and of nothing else.
pub fn run_once(simulator: &Simulator, seed: u64, replication: u64) -> Replication {
    let mut engine = Engine::new(simulator, seed, replication);
    engine.advance(simulator.begin_s);
    engine.begin_to_measure();
    engine.advance(simulator.end_s);
    Replication {
        measured_s: simulator.end_s - simulator.begin_s,
        events: engine.events,
        servers: simulator.owned.iter().map(|owned| engine.servers(owned.clone())).collect(),
        surplus: engine.surplus(),
        sites: engine.counts,
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The next job of a demand.
    Arrival(u32),
    Departure(Running),
}

/// A job that holds servers.
#[derive(Debug, Clone, Copy)]
struct Running {
    group: u32,
    member: u32,
    class: u32,
    /// How many of its servers are shared ones.
    from_shared: u32,
}

/// A job that has arrived.
#[derive(Debug, Clone, Copy)]
struct Job {
    /// Counts arrivals, so that heads of several lines can be compared.
    number: u64,
    arrival_s: f64,
    work: f64,
    member: u32,
    class: u32,
}

/// A demand of a member, and its next job's work.
#[derive(Debug)]
struct Demand<'a> {
    source: Source<'a>,
    work: f64,
    member: u32,
    class: u32,
    /// What has arrived in the measured part.
    jobs: u64,
    sum_work: f64,
}

struct Engine<'a> {
    plan: &'a Simulator,
    classes: usize,
    simulation: Simulation<Event>,
    demands: Vec<Demand<'a>>,
    /// Idle servers of each group that its owner keeps.
    free_kept: Vec<u32>,
    /// Idle servers of each group that are shared.
    free_shared: Vec<u32>,
    /// Lines of each place (outer; the pool is the last) and class (inner).
    lines: Vec<VecDeque<Job>>,
    /// Jobs in all lines of each place.
    waiting: Vec<u64>,
    counts: Vec<Counts>,
    arrived: u64,
    events: u64,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Simulator, seed: u64, replication: u64) -> Engine<'a> {
        let streams = Streams::new(seed);
        let phase = streams.stream("phase", replication).uniform();
        let classes = plan.system.classes.len();
        let mut demands = Vec::new();
        for (member, site) in plan.members.iter().enumerate() {
            for (number, demand) in plan.system.sites[*site].demands.iter().enumerate() {
                let work = plan.system.classes[demand.class].work;
                let source =
                    Source::new(&demand.arrivals, work, (*site, number), phase, (&streams, replication));
                let (member, class) = (member as u32, demand.class as u32);
                demands.push(Demand { source, work: 0.0, member, class, jobs: 0, sum_work: 0.0 });
            }
        }
        let places = plan.members.len() + 1;
        let mut engine = Engine {
            plan,
            classes,
            simulation: Simulation::new(),
            demands,
            free_kept: plan.groups.iter().map(|group| group.servers - group.shared).collect(),
            free_shared: plan.groups.iter().map(|group| group.shared).collect(),
            lines: vec![VecDeque::new(); places * classes],
            waiting: vec![0; places],
            counts: vec![Counts::new(classes); plan.members.len()],
            arrived: 0,
            events: 0,
        };
        (0..engine.demands.len()).for_each(|demand| engine.schedule_arrival(demand));
        engine
    }

    fn schedule_arrival(&mut self, number: usize) {
        let demand = &mut self.demands[number];
        if let Some((time_s, work)) = demand.source.next() {
            demand.work = work;
            self.simulation.at(time_s, Event::Arrival(number as u32));
        }
    }

    /// Lets everything happen until a time, and that which happens at it.
    fn advance(&mut self, until_s: f64) {
        while self.simulation.next_time().is_some_and(|time_s| time_s <= until_s) {
            let Some(event) = self.simulation.step() else { break };
            self.events += 1;
            match event {
                Event::Arrival(number) => self.arrive(number as usize),
                Event::Departure(running) => self.depart(running),
            }
        }
    }

    /// Forgets what was counted, but not what is there.
    fn begin_to_measure(&mut self) {
        self.counts.iter_mut().for_each(Counts::restart);
        for demand in &mut self.demands {
            (demand.jobs, demand.sum_work) = (0, 0.0);
        }
    }

    /// What arrived in the measured part beyond the mean.
    fn surplus(&self) -> Offered {
        let measured_s = self.plan.end_s - self.plan.begin_s;
        let mut surplus = Offered::default();
        for demand in &self.demands {
            let Some((jobs_per_s, work_per_s)) = demand.source.means_per_s() else { continue };
            let class = &self.plan.system.classes[demand.class as usize];
            let fastest = class.speeds.iter().copied().fold(0.0, f64::max);
            let device_s = f64::from(class.devices) / fastest;
            surplus.jobs += demand.jobs as f64 - jobs_per_s * measured_s;
            surplus.device_s += (demand.sum_work - work_per_s * measured_s) * device_s;
        }
        surplus
    }

    fn servers(&self, owned: std::ops::Range<usize>) -> u64 {
        self.plan.groups[owned].iter().map(|group| u64::from(group.servers)).sum()
    }

    fn pool(&self) -> usize {
        self.counts.len()
    }

    fn class_counts(&mut self, job: &Job) -> &mut ClassCounts {
        &mut self.counts[job.member as usize].classes[job.class as usize]
    }

    fn arrive(&mut self, number: usize) {
        let demand = &mut self.demands[number];
        demand.jobs += 1;
        demand.sum_work += demand.work;
        let job = Job {
            number: self.arrived,
            arrival_s: self.simulation.now(),
            work: demand.work,
            member: demand.member,
            class: demand.class,
        };
        self.arrived += 1;
        self.schedule_arrival(number);
        self.class_counts(&job).arrivals += 1;
        let plan = self.plan;
        let options = &plan.options[job.member as usize * self.classes + job.class as usize];
        if self.admit(&job, job.member as usize, &options.home, options.home_room) {
            self.class_counts(&job).home += 1;
        } else if self.admit(&job, self.pool(), &options.pool, options.pool_room) {
            self.class_counts(&job).pool += 1;
        } else {
            self.class_counts(&job).forwarded += 1;
        }
    }

    /// Lets a job start at a place, or wait there; `false` when it may do neither.
    fn admit(&mut self, job: &Job, place: usize, candidates: &[Candidate], room: u64) -> bool {
        if candidates.is_empty() {
            return false;
        }
        if let Some(group) = self.free_group(job, place, candidates) {
            self.start(job, place, group);
        } else if self.may_wait(job, place, room) {
            self.lines[place * self.classes + job.class as usize].push_back(*job);
            self.waiting[place] += 1;
        } else {
            return false;
        }
        self.counts[job.member as usize].in_system += 1;
        true
    }

    /// The best group on which a job may start at once.
    fn free_group(&self, job: &Job, place: usize, candidates: &[Candidate]) -> Option<usize> {
        let devices = self.plan.system.classes[job.class as usize].devices;
        let mut best: Option<(u32, usize, u32)> = None;
        for Candidate { group, rank } in candidates {
            if best.is_some_and(|(best_rank, ..)| best_rank < *rank) {
                break;
            }
            let group = *group as usize;
            let free = self.free(place, group);
            let better = best.is_none_or(|(_, _, most)| free > most);
            if free >= devices && better && !self.claimed(place, group) {
                best = Some((*rank, group, free));
            }
        }
        best.map(|(_, group, _)| group)
    }

    /// Idle servers of a group that a place may use.
    fn free(&self, place: usize, group: usize) -> u32 {
        if place == self.pool() {
            self.free_shared[group]
        } else if self.plan.owners_first() {
            self.free_kept[group] + self.free_shared[group]
        } else {
            self.free_kept[group]
        }
    }

    /// Whether a job waits that comes before a newcomer on this group.
    fn claimed(&self, place: usize, group: usize) -> bool {
        // A server is free only when no waiting job needs just one.
        if !self.plan.gangs {
            return false;
        }
        let owner = self.plan.groups[group].member as usize;
        let owners = place == self.pool() && self.plan.owners_first();
        self.head(place, group).is_some() || (owners && self.head(owner, group).is_some())
    }

    /// The class of the first job in line at a place among those that can run on a group.
    fn head(&self, place: usize, group: usize) -> Option<usize> {
        if self.waiting[place] == 0 {
            return None;
        }
        let lines = &self.lines[place * self.classes..][..self.classes];
        let heads = lines.iter().enumerate().filter_map(|(class, line)| {
            let runs = self.plan.seconds_per_work[class * self.plan.groups.len() + group] > 0.0;
            line.front().filter(|_| runs).map(|job| (job.number, class))
        });
        heads.min().map(|(_, class)| class)
    }

    fn may_wait(&self, job: &Job, place: usize, room: u64) -> bool {
        if self.plan.counts() {
            return self.waiting[place] < room;
        }
        let lines = self.lines[place * self.classes..][..self.classes].iter();
        let rates_per_s = &self.plan.rates_per_s[place * self.classes..];
        let queued = lines.zip(rates_per_s).filter(|(line, _)| !line.is_empty());
        let wait_s: f64 = queued.map(|(line, rate_per_s)| line.len() as f64 / rate_per_s).sum();
        wait_s < self.plan.system.sites[self.plan.members[job.member as usize]].longest_wait_s
    }

    /// Starts a job on a group that has enough free servers for the place that starts it.
    fn start(&mut self, job: &Job, place: usize, group: usize) {
        let class = &self.plan.system.classes[job.class as usize];
        let owner = self.plan.groups[group].member;
        let foreign = owner != job.member;
        let kept = if place == self.pool() { 0 } else { self.free_kept[group].min(class.devices) };
        let from_shared = class.devices - kept;
        self.free_kept[group] -= kept;
        self.free_shared[group] -= from_shared;

        let seconds_per_work =
            self.plan.seconds_per_work[job.class as usize * self.plan.groups.len() + group];
        let transfer_s = if foreign { class.transfer_s } else { 0.0 };
        let now_s = self.simulation.now();
        let end_s = now_s + job.work * seconds_per_work + transfer_s;
        let running = Running { group: group as u32, member: job.member, class: job.class, from_shared };
        self.simulation.at(end_s, Event::Departure(running));

        let measured_s = (end_s.min(self.plan.end_s) - now_s.max(self.plan.begin_s)).max(0.0);
        let device_s = measured_s * f64::from(class.devices);
        self.counts[owner as usize].busy_device_s += device_s;
        if foreign {
            self.counts[owner as usize].lent_device_s += device_s;
            self.counts[job.member as usize].borrowed_device_s += device_s;
        }
        let longest_s = self.plan.system.sites[self.plan.members[job.member as usize]].longest_wait_s;
        self.counts[job.member as usize].add_wait(now_s - job.arrival_s, longest_s);
    }

    fn depart(&mut self, running: Running) {
        let group = running.group as usize;
        let devices = self.plan.system.classes[running.class as usize].devices;
        self.free_kept[group] += devices - running.from_shared;
        self.free_shared[group] += running.from_shared;
        let counts = &mut self.counts[running.member as usize];
        counts.in_system -= 1;
        counts.finished += 1;
        if self.serve(group) && self.plan.gangs {
            // A job that started may have been in the way elsewhere.
            while (0..self.plan.groups.len()).any(|group| self.serve(group)) {}
        }
    }

    /// Starts the jobs that wait for a group, as long as enough is free; returns whether one started.
    fn serve(&mut self, group: usize) -> bool {
        let home = self.plan.groups[group].member as usize;
        let (blocked, any) = self.serve_place(home, group);
        if blocked && self.plan.owners_first() {
            return any;
        }
        self.serve_place(self.pool(), group).1 || any
    }

    /// Serves the lines of a place: whether the first in line needs more than is free, and whether any started.
    fn serve_place(&mut self, place: usize, group: usize) -> (bool, bool) {
        let mut any = false;
        while let Some(class) = self.head(place, group) {
            if self.free(place, group) < self.plan.system.classes[class].devices {
                return (true, any);
            }
            let Some(job) = self.lines[place * self.classes + class].pop_front() else { break };
            self.waiting[place] -= 1;
            self.start(&job, place, group);
            any = true;
        }
        (false, any)
    }
}
