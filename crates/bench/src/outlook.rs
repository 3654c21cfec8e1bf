//! `outlook`: whether jobs of a daemon start when it was foreseen. Jobs come at random and some are cancelled; of each
//! job that waits the first outlook is kept, and all later ones, and compared with its start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bellwether_core::outlook::Coverage;
use bellwether_serve::snapshot::{JobState, Phase, Times};
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::{Report, Row};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::serve::stage::{Stage, synthetic};
use crate::statistics::{Dice, median};

const SLOTS: u32 = 4;

/// Milliseconds of a virtual node; a step of one worker has eight of them.
const NODE_MS: f64 = 5.0;
const STEP_S: f64 = 8.0 * NODE_MS / 1000.0;

/// Mean seconds that a job takes on one worker.
const MEAN_S: f64 = 25.0;

/// One job of this many is cancelled while it trains.
const CANCELLED: u64 = 6;

/// Time between two looks at the jobs.
const LOOK: Duration = Duration::from_secs(2);

/// An interval is said to hold nine starts of ten; over a finite number of them it is not exactly so.
const LEAST: f64 = 0.85;
const MOST: f64 = 0.95;

#[derive(Debug, Args)]
pub(super) struct OutlookArguments {
    /// Policies
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "fifo,srtf,fair")]
    policies: Vec<String>,
    /// Minutes in which jobs come, under each policy
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// Slot-seconds that come, per slot-second
    #[arg(long, value_name = "FACTOR", default_value_t = 0.95)]
    load: f64,
    /// Decides when jobs come and how long they are
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &OutlookArguments, printer: &Printer) -> Result<Report, Failure> {
    let OutlookArguments { policies, minutes, load, seed, .. } = arguments;
    let settings =
        json!({ "policies": policies, "minutes": minutes, "load": load, "seed": seed, "slots": SLOTS });
    let mut report = Report::begin("outlook", settings, &[]);
    let mut all = Tally::default();
    for policy in policies {
        printer.note(format_args!("{policy}: {minutes} minutes on {SLOTS} slots"));
        let tally = live(policy, Duration::from_secs(60 * minutes), *load, Dice::seeded(*seed))?;
        report.row(tally.row(policy));
        all.add(tally);
    }
    let share = all.first.share();
    report.row(all.row("all"));
    report.bar(
        "starts within the first interval that was shown",
        share,
        LEAST,
        (LEAST..=MOST).contains(&share),
    );
    report.note(format!("met where the share lies between {LEAST} and {MOST}"));
    Ok(report)
}

#[derive(Default)]
struct Tally {
    jobs: u64,
    first: Coverage,
    later: Coverage,
    /// Of the first outlooks, how far the median was off, in seconds, and how wide the interval was.
    errors_s: Vec<f64>,
    widths_s: Vec<f64>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.jobs += other.jobs;
        self.first.add(other.first);
        self.later.add(other.later);
        self.errors_s.extend(other.errors_s);
        self.widths_s.extend(other.widths_s);
    }

    fn row(&self, case: &str) -> Row {
        Row::new(case)
            .with("jobs", self.jobs)
            .with("foreseen", self.first.all)
            .with("within", self.first.share())
            .with("too_early", self.first.early)
            .with("median_error_s", median(&self.errors_s))
            .with("median_width_s", median(&self.widths_s))
            .with("all_outlooks", self.later.all)
            .with("all_within", self.later.share())
    }
}

/// Jobs come for a while; when all have ended, what was said of their starts is compared with them.
fn live(policy: &str, lasts: Duration, load: f64, mut dice: Dice) -> Result<Tally, Failure> {
    let stage = Stage::start_with(policy, SLOTS)?;
    let between_s = MEAN_S / (load * f64::from(SLOTS));
    let (begun, mut next, mut number) = (Instant::now(), Duration::ZERO, 0);
    let mut shown: BTreeMap<String, Vec<Times>> = BTreeMap::new();
    let (mut doomed, mut looked) = (BTreeMap::new(), Duration::ZERO);
    loop {
        let now = begun.elapsed();
        if now >= next && now < lasts {
            let steps = (dice.exponential(MEAN_S) / STEP_S).ceil().clamp(5.0, 10_000.0) as u64;
            let name = format!("bench-{number}");
            // A policy that deals out fixed numbers gets jobs of two sizes.
            let workers = match policy {
                "fair" => "1..4",
                _ if dice.below(3) == 0 => "2",
                _ => "1",
            };
            stage.submit(&name, &synthetic(number, steps, NODE_MS)?, workers)?;
            if dice.below(CANCELLED) == 0 {
                doomed.insert(name, 1 + dice.below(steps));
            }
            number += 1;
            next = now + Duration::from_secs_f64(dice.exponential(between_s));
        }
        if now >= looked + LOOK {
            looked = now;
            let jobs = stage.jobs()?;
            if now >= lasts && jobs.iter().all(|job| job.state.has_ended()) {
                return Ok(tally(&jobs, &shown));
            }
            look(&stage, &jobs, &mut shown, &mut doomed)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Remembers what is said of those that wait, and cancels those whose time has come.
fn look(
    stage: &Stage,
    jobs: &[JobState],
    shown: &mut BTreeMap<String, Vec<Times>>,
    doomed: &mut BTreeMap<String, u64>,
) -> Result<(), Failure> {
    let mut over = BTreeSet::new();
    for job in jobs {
        let outlook = job.outlook.as_ref().filter(|_| job.state == Phase::Queued && job.started_s.is_none());
        if let Some(start) = outlook.and_then(|outlook| outlook.start) {
            shown.entry(job.name.clone()).or_default().push(start);
        }
        if job.state == Phase::Running && doomed.get(&job.name).is_some_and(|step| job.step >= *step) {
            stage.cancel(&job.name)?;
            over.insert(job.name.clone());
        }
    }
    doomed.retain(|name, _| !over.contains(name));
    Ok(())
}

fn tally(jobs: &[JobState], shown: &BTreeMap<String, Vec<Times>>) -> Tally {
    let mut tally = Tally { jobs: jobs.len() as u64, ..Tally::default() };
    for job in jobs {
        let (Some(start_s), Some(shown)) = (job.started_s, shown.get(&job.name)) else { continue };
        for (place, times) in shown.iter().enumerate() {
            let interval = (times.low_s, times.high_s.unwrap_or(f64::INFINITY));
            tally.later.count(interval, start_s);
            if place == 0 {
                tally.first.count(interval, start_s);
                tally.errors_s.extend(times.middle_s.map(|middle_s| (middle_s - start_s).abs()));
                tally.widths_s.extend(times.high_s.map(|high_s| high_s - times.low_s));
            }
        }
    }
    tally
}
