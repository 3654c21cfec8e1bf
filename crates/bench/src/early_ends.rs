//! `early-ends`: what it brings a daemon's policies to know how jobs of each kind end early. The same short jobs come
//! twice, once to a daemon that tells the declared work (`nominal`) and once to one that learns (`expected`).
//!
//! Jobs are of two kinds. Most of one kind do all of their work; most of the other, which declare more, end within the
//! first part of it, as trials of a search do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bellwether_core::job::CheckedJob;
use bellwether_des::statistics::Tally;
use bellwether_serve::snapshot::{JobState, Phase};
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::{Report, Row};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::serve::stage::{Stage, synthetic_of};
use crate::statistics::{Dice, mean};

const SLOTS: u32 = 4;

/// Milliseconds of a virtual node; a step of one worker has eight of them.
const NODE_MS: f64 = 5.0;

/// Time between two looks at the jobs.
const LOOK: Duration = Duration::from_millis(100);

/// Of the jobs of each kind: their share of all, how many steps they declare at least and at most, the chance that one
/// ends early, and within which parts of its steps.
const KINDS: [(f64, [u64; 2], f64, [f64; 2]); 2] =
    [(0.65, [40, 160], 0.05, [0.1, 0.9]), (0.35, [150, 300], 0.8, [0.05, 0.25])];

#[derive(Debug, Args)]
pub(super) struct EarlyEndsArguments {
    /// Policies
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "srtf,hell,equi")]
    policies: Vec<String>,
    /// Jobs that come in each run
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(4..=1000))]
    jobs: u64,
    /// Runs of each policy with each knowledge, with other jobs each time
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=100))]
    seeds: u64,
    /// Slot-seconds that come, per slot-second
    #[arg(long, value_name = "FACTOR", default_value_t = 0.9)]
    load: f64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &EarlyEndsArguments, printer: &Printer) -> Result<Report, Failure> {
    let EarlyEndsArguments { policies, jobs, seeds, load, .. } = arguments;
    let settings =
        json!({ "policies": policies, "jobs": jobs, "seeds": seeds, "load": load, "slots": SLOTS });
    let mut report = Report::begin("early-ends", settings, &[]);
    for policy in policies {
        let (mut differences, mut means) = (Vec::new(), BTreeMap::<&str, Vec<f64>>::new());
        let mut early = 0;
        for seed in 0..*seeds {
            let coming = coming(*jobs, *load, seed)?;
            early += coming.iter().filter(|job| job.ends_at < job.steps).count();
            // Which comes first changes from run to run: what the machine does meanwhile favours neither.
            let mut order = ["nominal", "expected"];
            order.rotate_left((seed % 2) as usize);
            let mut pair = BTreeMap::new();
            for knowledge in order {
                let mean_s = live(policy, knowledge, &coming)?;
                printer.note(format_args!("{policy}, {knowledge}, seed {seed}: {mean_s:.2} s"));
                means.entry(knowledge).or_default().push(mean_s);
                pair.insert(knowledge, mean_s);
            }
            differences.push(100.0 * (pair["expected"] / pair["nominal"] - 1.0));
        }
        let interval = differences.iter().copied().collect::<Tally>().interval(0.95);
        report.row(
            Row::new(policy)
                .with("jobs", jobs * seeds)
                .with("ended_early", early)
                .with("nominal_mean_s", mean(&means["nominal"]))
                .with("expected_mean_s", mean(&means["expected"]))
                .with("change_percent", interval.mean)
                .with("low_percent", interval.low())
                .with("high_percent", interval.high())
                .samples("changes_percent", &differences),
        );
    }
    report.note("change: mean completion time with the learnt law beside the one without, paired by the jobs that came");
    Ok(report)
}

/// A job that comes.
struct Coming {
    at: Duration,
    job: CheckedJob,
    steps: u64,
    /// The step after which it ends.
    ends_at: u64,
}

fn coming(count: u64, load: f64, seed: u64) -> Result<Vec<Coming>, Failure> {
    let mut dice = Dice::seeded(seed);
    let mut all = Vec::new();
    for number in 0..count {
        let first = dice.uniform() < KINDS[0].0;
        let kind = usize::from(!first);
        let (_, [least, most], chance, [from, to]) = KINDS[kind];
        let steps = least + dice.below(most - least);
        let is_early = dice.uniform() < chance;
        let part = from + (to - from) * dice.uniform();
        let ends_at = if is_early { ((part * steps as f64) as u64).max(1) } else { steps };
        // Jobs of the two kinds differ in the size of their model.
        let job = synthetic_of([64, 96][kind], number, steps, NODE_MS)?;
        all.push(Coming { at: Duration::ZERO, job, steps, ends_at });
    }
    let work_s = all.iter().map(|job| job.ends_at as f64 * 8.0 * NODE_MS / 1000.0).sum::<f64>();
    let between_s = work_s / count as f64 / (load * f64::from(SLOTS));
    let mut at_s = 0.0;
    for job in &mut all {
        job.at = Duration::from_secs_f64(at_s);
        at_s += dice.exponential(between_s);
    }
    Ok(all)
}

/// Lets the jobs come to a daemon; the mean of their completion times, in seconds.
fn live(policy: &str, knowledge: &str, coming: &[Coming]) -> Result<f64, Failure> {
    let stage =
        Stage::start_as(&["--policy", policy, "--slots", &SLOTS.to_string(), "--remaining", knowledge])?;
    let (begun, mut next) = (Instant::now(), coming.iter().enumerate().peekable());
    loop {
        while let Some((number, job)) = next.next_if(|(_, job)| begun.elapsed() >= job.at) {
            stage.submit(&format!("bench-{number}"), &job.job, "1..4")?;
        }
        let jobs = stage.jobs()?;
        if next.peek().is_none() && jobs.iter().all(|job| job.state.has_ended()) {
            let times: Option<Vec<f64>> = jobs.iter().map(completion_s).collect();
            let times = times.ok_or_else(|| Failure::at("a job", "ended without a time"))?;
            return Ok(mean(&times));
        }
        for (number, job) in coming.iter().enumerate().filter(|(_, job)| job.ends_at < job.steps) {
            let name = format!("bench-{number}");
            let is_due = |seen: &&JobState| seen.name == name && seen.step >= job.ends_at;
            if jobs.iter().find(is_due).is_some_and(|seen| seen.state == Phase::Running) {
                // One that has come to its end meanwhile refuses it.
                let has_ended = |seen: &JobState| seen.name == name && seen.state.has_ended();
                if let Err(refused) = stage.cancel(&name)
                    && !stage.jobs()?.iter().any(has_ended)
                {
                    return Err(refused);
                }
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn completion_s(job: &JobState) -> Option<f64> {
    Some(job.ended_s? - job.submitted_s)
}
