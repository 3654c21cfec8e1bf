//! What a seed stands for: a job, a way to run it, and which faults happen how often.

use std::collections::BTreeMap;

use bellwether_core::job::Goodput;
use bellwether_runtime::membership::member::Rules;

use super::mismatch::Corruption;
use bellwether_testkit::Random;

/// What may go wrong, or may be asked for, while a run is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of a worker.
    Kill,
    /// Of several workers at once.
    KillSeveral,
    /// Of all workers at once.
    KillAll,
    /// Of the coordinator; it comes back.
    KillCoordinator,
    /// A session breaks while both ends live.
    Glitch,
    /// A worker stands still for a while.
    Silence,
    /// The connection between two living workers breaks.
    BreakLink,
    /// SIGTERM to a worker.
    Leave,
    /// Someone wants another number of workers.
    Scale,
    /// Someone starts a worker by hand.
    Join,
    /// A provider takes a worker's server away, with a notice or without.
    Revoke,
    /// A worker is to be replaced.
    Replace,
    /// Other speeds of workers become known.
    Speeds,
    /// Someone wants another batch.
    Accumulate,
    /// The sessions of several workers break at once.
    GlitchSeveral,
    /// The coordinator stands still, or its main loop does.
    Pause,
    /// The whole machine stands still, with all that live on it.
    PauseAll,
    /// The computing thread of a worker hangs; its session goes on.
    Hang,
    /// What two workers send each other vanishes; their connections stay.
    SilentLink,
    /// What a worker and the coordinator tell each other vanishes; the connection stays.
    HalfOpen,
}

const FAULTS: [Fault; 20] = [
    Fault::Kill,
    Fault::KillSeveral,
    Fault::KillAll,
    Fault::KillCoordinator,
    Fault::Glitch,
    Fault::Silence,
    Fault::BreakLink,
    Fault::Leave,
    Fault::Scale,
    Fault::Join,
    Fault::Revoke,
    Fault::Replace,
    Fault::Speeds,
    Fault::Accumulate,
    Fault::GlitchSeveral,
    Fault::Pause,
    Fault::PauseAll,
    Fault::Hang,
    Fault::SilentLink,
    Fault::HalfOpen,
];

/// One history, but for the dice thrown on the way.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Seed of the whole scenario.
    pub(crate) seed: u64,
    /// Virtual nodes of the job.
    pub(crate) virtual_nodes: u32,
    /// Workers wanted at the start.
    pub(crate) wanted: u32,
    /// Most workers.
    pub(crate) max_workers: u32,
    /// Scheduled changes.
    pub(crate) schedule: Vec<(u64, u32)>,
    /// Length and rhythm of the job.
    pub(crate) rules: Rules,
    /// Whether held-out results decide whether the run goes on, where that is decided.
    pub(crate) by_results: bool,
    /// Whether the coordinator starts workers; otherwise an operator does.
    pub(crate) spawns: bool,
    /// No fault happens after this time.
    pub(crate) faults_until_s: f64,
    /// Mean interval of each kind of fault that happens at all.
    pub(crate) intervals: BTreeMap<Fault, f64>,
    /// Probability that something happens to a worker whenever it begins a rare task.
    pub(crate) sniper: f64,
    /// Probability that a started worker does not come up.
    pub(crate) boot_failure: f64,
    /// Probability that a checkpoint cannot be written.
    pub(crate) disk_full: f64,
    /// The loss of this step is not finite.
    pub(crate) poison: Option<u64>,
    /// What is checked for silent corruption, and who computes it wrong.
    pub(crate) corruption: Option<Corruption>,
    /// When someone asks the run to stop; it is resumed later.
    pub(crate) stop_at_s: Option<f64>,
    /// Longest delay of a message.
    pub(crate) delay_s: f64,
    /// Seconds for which a worker waits for a coordinator.
    pub(crate) orphan_s: f64,
    /// Crashes in a row after which the run may fail.
    pub(crate) max_barren_crashes: u32,
    /// Probability that a computation takes many times as long.
    pub(crate) straggler: f64,
    /// Whether shadows report too.
    pub(crate) shadows_report: bool,
    /// Rounds between two reports.
    pub(crate) report_every: u32,
    /// Longest time that background connections take.
    pub(crate) prepare_s: f64,
    /// Longest additional time that a shadow takes to receive a result.
    pub(crate) shadow_lag_s: f64,
    /// Whether a worker's main thread hears of things between two tasks only.
    pub(crate) safe_points: bool,
    /// The number of workers is set at these times even without faults.
    pub(crate) scales: Vec<(f64, u32)>,
    /// Most steps that an update may cover.
    pub(crate) max_accumulation: u32,
    /// Steps that an update is to cover, from these times on, even without faults.
    pub(crate) batches: Vec<(f64, u32)>,
}

impl Scenario {
    /// The history of this seed. One in five is free of faults.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5EED);
        let faulty = !seed.is_multiple_of(5);
        let virtual_nodes = 1 + random.below(8) as u32;
        let wanted = 1 + random.below(u64::from(virtual_nodes.min(5))) as u32;
        let long = random.chance(0.4);
        let total_steps = if long { 200 + random.below(150) } else { 12 + random.below(80) };
        let every = |random: &mut Random| if random.chance(0.4) { 0 } else { 1 + random.below(12) };
        let rules = Rules {
            total_steps,
            evaluate_every: every(&mut random),
            checkpoint_every: every(&mut random),
            ..Rules::default()
        };
        let spawns = random.chance(0.75);
        let mut scenario = Scenario {
            seed,
            virtual_nodes,
            wanted,
            max_workers: if random.chance(0.5) { wanted } else { virtual_nodes },
            schedule: Vec::new(),
            rules,
            by_results: false,
            spawns,
            faults_until_s: 0.0,
            intervals: BTreeMap::new(),
            sniper: 0.0,
            boot_failure: 0.0,
            disk_full: 0.0,
            poison: None,
            corruption: Corruption::draw(seed),
            stop_at_s: None,
            delay_s: random.pick(&[0.0005, 0.002, 0.03, 0.15]).expect("not empty"),
            orphan_s: random.pick(&[1.0, 30.0, 30.0]).expect("not empty"),
            max_barren_crashes: 1_000_000,
            straggler: 0.0,
            shadows_report: random.chance(0.5),
            report_every: random.pick(&[1, 1, 4, 12]).expect("not empty"),
            prepare_s: random.pick(&[0.02, 0.15, 0.8]).expect("not empty"),
            shadow_lag_s: 0.0,
            safe_points: random.chance(0.5),
            scales: Vec::new(),
            max_accumulation: 1,
            batches: Vec::new(),
        };
        if random.chance(0.4) && spawns {
            scenario.draw_schedule(&mut random);
        }
        if faulty {
            scenario.draw_faults(&mut random);
        } else {
            scenario.delay_s = scenario.delay_s.min(0.002);
            if random.chance(0.6) {
                for _ in 0..1 + random.below(3) {
                    let workers = 1 + random.below(u64::from(virtual_nodes)) as u32;
                    scenario.scales.push((random.between(1.0, 8.0), workers));
                }
            }
        }
        if random.chance(0.1) {
            scenario.stop_at_s = Some(random.between(0.3, 8.0));
        }
        if random.chance(0.04) {
            scenario.poison = Some(random.below(total_steps));
        }
        scenario.draw_mode(&mut random);
        scenario
    }

    /// What is special about the job: a batch that may move, boundaries at which a verdict is waited for, or
    /// checkpoints of which each member writes a slice.
    fn draw_mode(&mut self, random: &mut Random) {
        if random.chance(0.5) {
            self.draw_batches(random);
        } else if random.chance(0.5) {
            self.rules.verdict_every = 4 + random.below(30);
            self.by_results = random.chance(0.5);
            if self.by_results {
                self.rules.evaluate_every = self.rules.verdict_every;
            }
        } else {
            self.rules.slices = self.seed % 2 == 1;
        }
    }

    /// The batch may move: as a user wants while the run goes on, or by the job's own schedule.
    fn draw_batches(&mut self, random: &mut Random) {
        self.max_accumulation = 2 + random.below(6) as u32;
        let any = |random: &mut Random, most: u32| 1 + random.below(u64::from(most)) as u32;
        if random.chance(0.3) {
            let mut schedule = vec![(random.below(20), any(random, self.max_accumulation))];
            for _ in 0..random.below(3) {
                let last = schedule.last().map_or(0, |(step, _)| *step);
                schedule.push((last + 1 + random.below(40), any(random, self.max_accumulation)));
            }
            let max_batch = u64::from(self.max_accumulation);
            self.rules.batches = Some(Goodput { max_batch, rule: None, schedule });
            return;
        }
        for _ in 0..random.below(4) {
            self.batches.push((random.between(0.1, 6.0), any(random, self.max_accumulation)));
        }
    }

    fn draw_schedule(&mut self, random: &mut Random) {
        let mut step = 0;
        for _ in 0..1 + random.below(3) {
            step += 1 + random.below(self.rules.total_steps / 3 + 1);
            if step < self.rules.total_steps {
                self.schedule.push((step, 1 + random.below(u64::from(self.virtual_nodes)) as u32));
            }
        }
    }

    fn draw_faults(&mut self, random: &mut Random) {
        self.faults_until_s = random.between(1.5, 9.0);
        self.shadow_lag_s = random.pick(&[0.0, 0.0, 0.1, 0.4]).expect("not empty");
        for fault in FAULTS {
            let weight = if matches!(fault, Fault::KillAll) { 0.5 } else { 1.0 };
            if random.chance(0.25 * weight) {
                self.intervals.insert(fault, random.between(1.5, 5.0));
            } else if random.chance(0.15 * weight) {
                self.intervals.insert(fault, random.between(0.15, 0.8));
            }
        }
        if random.chance(0.5) {
            self.sniper = random.pick(&[0.02, 0.1, 0.3]).expect("not empty");
        }
        if random.chance(0.2) {
            self.boot_failure = random.pick(&[0.1, 0.6]).expect("not empty");
        }
        if random.chance(0.3) {
            self.disk_full = random.pick(&[0.2, 1.0]).expect("not empty");
        }
        if random.chance(0.3) {
            self.straggler = random.pick(&[0.02, 0.2]).expect("not empty");
        }
        if random.chance(0.1) {
            self.max_barren_crashes = 3 + random.below(5) as u32;
        }
    }

    /// Whether nothing at all goes wrong.
    pub(crate) fn calm(&self) -> bool {
        self.faults_until_s == 0.0
    }

    /// Whether the history has this kind of fault.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.intervals.contains_key(&fault)
    }
}
