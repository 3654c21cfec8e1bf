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
        self.classes.iter().copied().fold(ClassCounts::default(), ClassCounts::plus)
    }
}

impl ClassCounts {
    fn plus(self, other: ClassCounts) -> ClassCounts {
        ClassCounts {
            arrivals: self.arrivals + other.arrivals,
            home: self.home + other.home,
            pool: self.pool + other.pool,
            forwarded: self.forwarded + other.forwarded,
        }
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

impl Target {
    fn is_met(&self, forwarded: &Interval) -> bool {
        forwarded.half_width <= (self.relative * forwarded.mean).max(self.absolute_per_s)
    }
}

impl Summary {
    /// Whether the interval of the jobs forwarded is as narrow as that, and not merely at its most replications.
    pub fn reached(&self, target: &Target) -> bool {
        self.replications >= target.least && target.is_met(&self.forwarded_per_s)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Turns what replications counted into intervals.
struct Reader<'a> {
    replications: &'a [Replication],
    measured_s: f64,
    controls: [Vec<f64>; 2],
}

impl<'a> Reader<'a> {
    fn new(replications: &'a [Replication]) -> Reader<'a> {
        let measured_s = replications.first().expect("at least one replication is summarised").measured_s;
        let surplus = |of: fn(&Offered) -> f64| replications.iter().map(|run| of(&run.surplus)).collect();
        let controls = [surplus(|surplus| surplus.jobs), surplus(|surplus| surplus.device_s)];
        Reader { replications, measured_s, controls }
    }

    /// Of a figure that is never negative.
    fn interval(&self, figure: &dyn Fn(&Replication) -> f64) -> Interval {
        let samples: Vec<f64> = self.replications.iter().map(figure).collect();
        let found = control::interval(&samples, &self.controls, LEVEL);
        Interval { mean: found.mean.max(0.0), ..found }
    }

    /// Jobs per second that are forwarded, of as many jobs. That none was seen does not prove that there are none: up
    /// to three in all that was measured, at 95 %.
    fn forwarded(&self, count: &dyn Fn(&Replication) -> ClassCounts) -> Interval {
        if self.replications.iter().all(|run| count(run).forwarded == 0) {
            let any = self.replications.iter().any(|run| count(run).arrivals > 0);
            let all_s = self.measured_s * self.replications.len() as f64;
            return Interval { mean: 0.0, half_width: if any { 3.0 / all_s } else { 0.0 } };
        }
        self.interval(&|run| count(run).forwarded as f64 / self.measured_s)
    }

    fn all_forwarded(&self) -> Interval {
        self.forwarded(&|run| {
            run.sites.iter().map(Counts::total).fold(ClassCounts::default(), ClassCounts::plus)
        })
    }

    fn site(&self, number: usize) -> SiteSummary {
        let first = &self.replications[0];
        let measured_s = self.measured_s;
        let of = |figure: &dyn Fn(&Counts) -> f64| self.interval(&|run| figure(&run.sites[number]));
        let classes = 0..first.sites[number].classes.len();
        let servers = first.servers[number] as f64;
        let arrivals =
            self.replications.iter().map(|run| run.sites[number].total().arrivals as f64 / measured_s);
        // Not by what is known of them: that would not be a finding.
        let arrivals_per_s = arrivals.collect::<Tally>().interval(LEVEL);
        let forwarded_per_s = self.forwarded(&|run| run.sites[number].total());
        let forwarded_share = if forwarded_per_s.mean > 0.0 {
            of(&|counts| share(counts.total().forwarded as f64, counts.total().arrivals as f64))
        } else {
            Interval { mean: 0.0, half_width: share(forwarded_per_s.half_width, arrivals_per_s.mean) }
        };
        SiteSummary {
            arrivals_per_s,
            home_per_s: of(&|counts| counts.total().home as f64 / measured_s),
            pool_per_s: of(&|counts| counts.total().pool as f64 / measured_s),
            forwarded_per_s,
            forwarded_share,
            class_forwarded_per_s: classes
                .map(|class| self.forwarded(&|run| run.sites[number].classes[class]))
                .collect(),
            lent: of(&|counts| counts.lent_device_s / measured_s),
            borrowed: of(&|counts| counts.borrowed_device_s / measured_s),
            utilisation: of(&|counts| share(counts.busy_device_s, servers * measured_s)),
            wait_s: of(&|counts| share(counts.wait_s, counts.started as f64)),
            late_share: of(&|counts| share(counts.late as f64, counts.started as f64)),
        }
    }
}

/// What replications of one simulator say together.
///
/// From ten on, intervals use that the mean of what arrives is known, which makes them narrower.
///
/// # Panics
///
/// When there are none.
pub fn summarise(replications: &[Replication]) -> Summary {
    let reader = Reader::new(replications);
    Summary {
        replications: replications.len() as u64,
        measured_s: reader.measured_s,
        events: replications.iter().map(|run| run.events).sum(),
        forwarded_per_s: reader.all_forwarded(),
        sites: (0..replications[0].sites.len()).map(|number| reader.site(number)).collect(),
    }
}

/// Jobs per second that a coalition forwards less than its members did alone: replication by replication, where luck
/// is the same, and so known better than either.
///
/// # Panics
///
/// When there are no replications, not equally many of all, or when they measured different times.
pub fn saving(alone: &[&[Replication]], together: &[Replication]) -> Interval {
    let reader = Reader::new(together);
    let equal = |run: &Replication| run.measured_s == reader.measured_s;
    let all = alone.iter().all(|runs| runs.len() == together.len() && runs.iter().all(equal));
    assert!(
        all && together.iter().all(equal),
        "a saving compares replications of the same length, one by one"
    );
    let forwarded =
        |run: &Replication| run.sites.iter().map(|site| site.total().forwarded as f64).sum::<f64>();
    let saved = (0..together.len()).map(|number| {
        let before: f64 = alone.iter().map(|runs| forwarded(&runs[number])).sum();
        (before - forwarded(&together[number])) / reader.measured_s
    });
    control::interval(&saved.collect::<Vec<f64>>(), &reader.controls, LEVEL)
}

/// Whether this many replications are enough for a target.
pub fn enough(replications: &[Replication], target: &Target) -> bool {
    let count = replications.len() as u64;
    count >= target.most.max(1)
        || (count >= target.least.max(1) && target.is_met(&Reader::new(replications).all_forwarded()))
}

/// Adds replications, numbered from 0, until the target is [reached](Summary::reached) or there are as many as it
/// allows.
///
/// That they stop when the interval happens to be narrow makes it cover a little less often than it says; with
/// ten at least, hardly.
pub fn replicate(simulator: &Simulator, seed: u64, target: &Target) -> Summary {
    let mut runs = Vec::new();
    while !enough(&runs, target) {
        runs.push(run_once(simulator, seed, runs.len() as u64));
    }
    summarise(&runs)
}
