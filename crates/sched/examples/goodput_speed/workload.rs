//! Jobs over the measured tables, and a cluster that they share.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bellwether_core::cluster::Allocation;
use bellwether_model::elastic::Goodput;
use bellwether_model::elastic::jobs::{Applications, Sources};
use bellwether_sched::goodput::{Candidate, Problem, fair_share, optimise};

pub(crate) const NODES: u32 = 16;
pub(crate) const DEVICES: u32 = 64;
const JOBS: usize = 160;
const INTERVAL_S: f64 = 60.0;
const RESTART_S: f64 = 30.0;
/// The time of a snapshot.
const NOW_S: f64 = 7200.0;
/// Seconds over which the jobs arrive.
const ARRIVALS_S: f64 = 2400.0;

/// Random numbers of SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bellwether_core::mix::mix(self.0)
    }

    /// Uniform in 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }
}

/// Applications, and goodput by nodes and devices of each of their epochs, as far as it was asked for.
pub(crate) struct Tables {
    applications: Applications,
    known: RefCell<BTreeMap<(usize, u64), Vec<f64>>>,
}

const NAMES: [&str; 4] = ["bert", "cifar10", "deepspeech2", "ncf"];

macro_rules! read {
    ($applications:ident, $name:literal, $($batch:literal),+) => {{
        let place = concat!("data/pollux-tables/", $name);
        let sources = Sources {
            placements: include_str!(concat!("../../../../data/pollux-tables/", $name, "/placements.csv")),
            scalability: include_str!(concat!("../../../../data/pollux-tables/", $name, "/scalability.csv")),
            validation: &[$((
                $batch,
                include_str!(concat!("../../../../data/pollux-tables/", $name, "/validation-", $batch, ".csv")),
            )),+],
        };
        $applications.add($name, &sources, place).expect("tables of the project");
    }};
}

impl Tables {
    pub(crate) fn new() -> Tables {
        let mut applications = Applications::default();
        read!(applications, "bert", 12, 24, 48, 96, 192, 384);
        read!(applications, "cifar10", 128, 256, 512, 1024, 2048, 4096);
        read!(applications, "deepspeech2", 20, 40, 80, 160, 320, 640);
        read!(applications, "ncf", 256, 512, 1024, 2048, 4096, 8192, 16384, 32768);
        Tables { applications, known: RefCell::default() }
    }

    /// Goodput of an application when a part of its work is done.
    fn goodput(&self, application: usize, part: f64, nodes: u32, devices: u32) -> f64 {
        let name = NAMES[application];
        let limits = self.applications.limits(name).expect("it was read");
        let work = self.applications.work(name, limits.initial).expect("it was read");
        let noise = self.applications.noise_scale(name, limits.initial, part * work).expect("it was read");
        let mut known = self.known.borrow_mut();
        let empty = || vec![f64::NAN; ((NODES + 1) * (DEVICES + 1)) as usize];
        let table = known.entry((application, noise.to_bits())).or_insert_with(empty);
        let slot = &mut table[(nodes * (DEVICES + 1) + devices) as usize];
        if slot.is_nan() {
            let throughput = self.applications.throughput(name).expect("it was read");
            let goodput = Goodput::new(throughput, noise, limits).expect("limits that leave batches");
            *slot = goodput.optimum(nodes, devices).map_or(0.0, |best| best.goodput);
        }
        *slot
    }
}

struct Job {
    application: usize,
    arrival_s: f64,
    /// Goodput-seconds in all and done, in units of what one device does in a second at the beginning.
    work: f64,
    done: f64,
    current: Allocation,
    restarts: u32,
    largest: u32,
    started: bool,
}

/// The cluster at some time.
pub(crate) struct World<'a> {
    tables: &'a Tables,
    jobs: Vec<Job>,
    active: Vec<usize>,
    now_s: f64,
}

impl<'a> World<'a> {
    pub(crate) fn new(tables: &'a Tables, seed: u64) -> World<'a> {
        let mut random = Random::new(seed);
        let mut arrival_s = 0.0;
        let jobs = (0..JOBS).map(|_| {
            arrival_s -= (-random.unit()).ln_1p() * ARRIVALS_S / JOBS as f64;
            Job::new(&mut random, arrival_s)
        });
        let jobs = jobs.collect();
        World { tables, jobs, active: Vec::new(), now_s: 0.0 }
    }

    /// `jobs` jobs of up to two hours, which hold nothing, or what was decided for four fifths of them.
    pub(crate) fn snapshot(tables: &'a Tables, seed: u64, jobs: usize, held: bool) -> World<'a> {
        let mut random = Random::new(seed.wrapping_mul(977));
        let job = |random: &mut Random| {
            let arrival_s = NOW_S * random.unit();
            let mut job = Job::new(random, arrival_s);
            job.done = job.work * random.unit();
            job.largest = 1 << random.below(5);
            job.restarts = random.below(4) as u32;
            job
        };
        let all: Vec<Job> = (0..jobs).map(|_| job(&mut random)).collect();
        let mut world = World { tables, jobs: all, active: Vec::new(), now_s: NOW_S };
        if held {
            world.active = (0..jobs).filter(|job| job % 5 > 0).collect();
            let decided = world.with_problem(optimise);
            world.apply(&decided);
        }
        world.active = (0..jobs).collect();
        world
    }

    /// Jobs that have arrived and have not ended.
    pub(crate) fn active(&self) -> &[usize] {
        &self.active
    }

    /// To the next decision.
    pub(crate) fn advance(&mut self) {
        self.now_s += INTERVAL_S;
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            let (nodes, devices) = (job.current.shares().len() as u32, job.current.devices());
            if devices > 0 {
                let speed = self.goodput(index, nodes, devices) / self.goodput(index, 1, 1);
                self.jobs[index].done += INTERVAL_S * speed;
            }
            let job = &mut self.jobs[index];
            if job.done >= job.work {
                job.current = Allocation::none();
            }
        }
        let active = |job: &Job| job.arrival_s <= self.now_s && job.done < job.work;
        self.active = (0..self.jobs.len()).filter(|&index| active(&self.jobs[index])).collect();
    }

    /// Gives the active jobs what was decided.
    pub(crate) fn apply(&mut self, decided: &[Allocation]) {
        for (&index, allocation) in self.active.iter().zip(decided) {
            let job = &mut self.jobs[index];
            if *allocation != job.current {
                job.restarts += u32::from(job.started && !allocation.is_empty());
                job.started |= !allocation.is_empty();
                job.largest = job.largest.max(allocation.devices());
                job.current = allocation.clone();
            }
        }
    }

    /// The question of this moment.
    pub(crate) fn with_problem<T>(&self, ask: impl FnOnce(&Problem) -> T) -> T {
        let (_, share) = fair_share(NODES, DEVICES, self.active.len() as u32);
        let candidate = |&index: &usize| {
            let job = &self.jobs[index];
            Candidate {
                min_devices: 1,
                max_devices: (2 * job.largest).clamp(1, DEVICES),
                // As the published implementation has it: on one node, whatever fits into it.
                fair_goodput: self.goodput(index, 1, share),
                current: job.current.clone(),
                age_s: self.now_s - job.arrival_s,
                restarts: job.restarts,
            }
        };
        let jobs: Vec<Candidate> = self.active.iter().map(candidate).collect();
        let goodput = |job: usize, nodes: u32, devices: u32| self.goodput(self.active[job], nodes, devices);
        ask(&Problem {
            nodes: &[DEVICES / NODES; NODES as usize],
            jobs: &jobs,
            goodput: &goodput,
            power: -1.0,
            restart_s: RESTART_S,
        })
    }

    fn goodput(&self, index: usize, nodes: u32, devices: u32) -> f64 {
        let job = &self.jobs[index];
        self.tables.goodput(job.application, (job.done / job.work).min(1.0), nodes, devices)
    }
}

impl Job {
    /// 2 minutes to 4 hours on one device, by logarithm.
    fn new(random: &mut Random, arrival_s: f64) -> Job {
        Job {
            application: random.below(NAMES.len()),
            arrival_s,
            work: 120.0 * 120f64.powf(random.unit()),
            done: 0.0,
            current: Allocation::none(),
            restarts: 0,
            largest: 0,
            started: false,
        }
    }
}
