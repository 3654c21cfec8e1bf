//! What a replication counts, and what several of them say together.

use bellwether_des::statistics::{Interval, Tally};

use super::{Simulator, control, run_once};

/// Confidence of all intervals.
const LEVEL: f64 = 0.95;

/// What one replication counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Replication {
    /// Seconds that were measured.
    pub measured_s: f64,
    /// Arrivals and departures that were simulated, warm-up included.
    pub events: u64,
    /// Servers that each member owns.
    pub servers: Vec<u64>,
    /// What each member counted, in the order of [`Simulator::members`].
    pub sites: Vec<Counts>,
    /// What arrived beyond the mean, of those demands whose mean is known.
    pub surplus: Offered,
}

/// What arrives at all members together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Offered {
    /// Jobs.
    pub jobs: f64,
    /// Seconds times servers that they need where they are fastest.
    pub device_s: f64,
}

/// What one member counted. Jobs are counted where they arrived, servers where they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// By class.
    pub classes: Vec<ClassCounts>,
    /// Its jobs in the system when the measured part began.
    pub in_system_before: u64,
    /// Its jobs in the system now; at the end, once a replication has returned.
    pub in_system: u64,
    /// Its jobs that were finished, wherever they were served.
    pub finished: u64,
    /// Its jobs that started.
    pub started: u64,
    /// Seconds that those had waited.
    pub wait_s: f64,
    /// How many of those had waited for longer than its longest wait.
    pub late: u64,
    /// Seconds times servers that all of its servers worked, for whomever.
    pub busy_device_s: f64,
    /// Seconds times servers that its servers worked for others.
    pub lent_device_s: f64,
    /// Seconds times servers that servers of others worked for it.
    pub borrowed_device_s: f64,
}

/// What became of the jobs of one class that arrived at one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Jobs that arrived.
    pub arrivals: u64,
    /// Jobs that its home took.
    pub home: u64,
    /// Jobs that the pool took.
    pub pool: u64,
    /// Jobs that went to a public cloud.
    pub forwarded: u64,
}

impl Counts {
    pub(super) fn new(classes: usize) -> Counts {
        Counts {
            classes: vec![ClassCounts::default(); classes],
            in_system_before: 0,
            in_system: 0,
            finished: 0,
            started: 0,
            wait_s: 0.0,
            late: 0,
            busy_device_s: 0.0,
            lent_device_s: 0.0,
            borrowed_device_s: 0.0,
        }
    }

    /// Begins the measured part. Work of servers is clipped to it from the start, and so stays.
    pub(super) fn restart(&mut self) {
        let classes = self.classes.len();
        *self = Counts {
            in_system_before: self.in_system,
            in_system: self.in_system,
            busy_device_s: self.busy_device_s,
            lent_device_s: self.lent_device_s,
            borrowed_device_s: self.borrowed_device_s,
            ..Counts::new(classes)
        };
    }

    pub(super) fn add_wait(&mut self, wait_s: f64, longest_s: f64) {
        self.started += 1;
        self.wait_s += wait_s;
        self.late += u64::from(wait_s > longest_s);
    }

    /// All classes together.
    pub fn total(&self) -> ClassCounts {
        self.classes.iter().fold(ClassCounts::default(), |sum, class| ClassCounts {
            arrivals: sum.arrivals + class.arrivals,
            home: sum.home + class.home,
            pool: sum.pool + class.pool,
            forwarded: sum.forwarded + class.forwarded,
        })
    }
}

/// What replications say together: means of their figures, with 95 % Student intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How many there were.
    pub replications: u64,
    /// Seconds that each measured.
    pub measured_s: f64,
    /// Events of all of them.
    pub events: u64,
    /// Jobs per second of all members that went to a public cloud.
    pub forwarded_per_s: Interval,
    /// Each member, in the order of [`Simulator::members`].
    pub sites: Vec<SiteSummary>,
}

/// What replications say about one member.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteSummary {
    /// Its jobs per second.
    pub arrivals_per_s: Interval,
    /// Those that its home took.
    pub home_per_s: Interval,
    /// Those that the pool took.
    pub pool_per_s: Interval,
    /// Those that went to a public cloud.
    pub forwarded_per_s: Interval,
    /// And as a share of its jobs; 0 without any.
    pub forwarded_share: Interval,
    /// Those that went to a public cloud, by class.
    pub class_forwarded_per_s: Vec<Interval>,
    /// Servers that it lends, in the mean over time.
    pub lent: Interval,
    /// Servers of others that it uses, in the mean over time.
    pub borrowed: Interval,
    /// Share of its servers that work, for whomever; 0 when it has none.
    pub utilisation: Interval,
    /// Seconds that its jobs wait that are not forwarded; 0 without any.
    pub wait_s: Interval,
    /// Share of those that wait for longer than its longest wait.
    pub late_share: Interval,
}

/// How narrow the interval of the jobs forwarded per second must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Half-width over mean.
    pub relative: f64,
    /// Or half-width in jobs per second, for what is nearly 0.
    pub absolute_per_s: f64,
    /// Replications at least; with fewer than ten the interval is a guess.
    pub least: u64,
    /// Replications at most.
    pub most: u64,
}

impl Summary {
    /// Whether the interval of the jobs forwarded is as narrow as that.
    pub fn reached(&self, target: &Target) -> bool {
        let forwarded = &self.forwarded_per_s;
        let wanted = (target.relative * forwarded.mean).max(target.absolute_per_s);
        self.replications >= target.least && forwarded.half_width <= wanted
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// What replications of one simulator say together.
///
/// From ten on, intervals use that the mean of what arrives is known, which makes them narrower.
///
/// # Panics
///
/// When there are none.
pub fn summarise(replications: &[Replication]) -> Summary {
    let first = replications.first().expect("at least one replication is summarised");
    let measured_s = first.measured_s;
    let surplus = |of: fn(&Offered) -> f64| replications.iter().map(|run| of(&run.surplus)).collect();
    let controls: [Vec<f64>; 2] = [surplus(|surplus| surplus.jobs), surplus(|surplus| surplus.device_s)];
    let interval = |figure: &dyn Fn(&Replication) -> f64| {
        let samples: Vec<f64> = replications.iter().map(figure).collect();
        control::interval(&samples, &controls, LEVEL)
    };
    let site = |number: usize| {
        let of = |figure: &dyn Fn(&Counts) -> f64| interval(&|run| figure(&run.sites[number]));
        let classes = 0..first.sites[number].classes.len();
        let servers = first.servers[number] as f64;
        SiteSummary {
            // Not by what is known of them: that would be no finding.
            arrivals_per_s: replications
                .iter()
                .map(|run| run.sites[number].total().arrivals as f64 / measured_s)
                .collect::<Tally>()
                .interval(LEVEL),
            home_per_s: of(&|counts| counts.total().home as f64 / measured_s),
            pool_per_s: of(&|counts| counts.total().pool as f64 / measured_s),
            forwarded_per_s: of(&|counts| counts.total().forwarded as f64 / measured_s),
            forwarded_share: of(&|counts| {
                share(counts.total().forwarded as f64, counts.total().arrivals as f64)
            }),
            class_forwarded_per_s: classes
                .map(|class| of(&|counts| counts.classes[class].forwarded as f64 / measured_s))
                .collect(),
            lent: of(&|counts| counts.lent_device_s / measured_s),
            borrowed: of(&|counts| counts.borrowed_device_s / measured_s),
            utilisation: of(&|counts| share(counts.busy_device_s, servers * measured_s)),
            wait_s: of(&|counts| share(counts.wait_s, counts.started as f64)),
            late_share: of(&|counts| share(counts.late as f64, counts.started as f64)),
        }
    };
    let forwarded =
        |run: &Replication| run.sites.iter().map(|site| site.total().forwarded).sum::<u64>() as f64;
    Summary {
        replications: replications.len() as u64,
        measured_s,
        events: replications.iter().map(|run| run.events).sum(),
        forwarded_per_s: interval(&|run| forwarded(run) / measured_s),
        sites: (0..first.sites.len()).map(site).collect(),
    }
}

/// Adds replications, numbered from 0, until the target is [reached](Summary::reached) or there are as many as it
/// allows.
///
/// That they stop when the interval happens to be narrow makes it cover a little less often than it says; with
/// ten at least, hardly.
pub fn replicate(simulator: &Simulator, seed: u64, target: &Target) -> Summary {
    let mut runs = vec![run_once(simulator, seed, 0)];
    loop {
        let summary = summarise(&runs);
        if summary.reached(target) || summary.replications >= target.most {
            return summary;
        }
        runs.push(run_once(simulator, seed, summary.replications));
    }
}
