//! `straggler`: a worker turns slow, and another takes its place.

use bellwether_core::record::{Event, Line, StepRecord};
use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::statistics::{largest, median, smallest};
use super::trial::Trial;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct StragglerArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "3,4")]
    workers: Vec<u32>,
    /// What is left of the straggler's speed
    #[arg(long, value_name = "SPEED", default_value_t = 0.5)]
    speed: f64,
    /// Stragglers of each number of workers
    #[arg(long, value_name = "N", default_value_t = 10)]
    trials: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Time from the moment at which a worker turns slow to the step without it that is good enough.
const BOUND_S: f64 = 2.0;

/// Milliseconds that a step takes: each worker has one virtual node.
const STEP_MS: u64 = 20;

/// When the worker turns slow, counted from its first gradient.
const SLOW_AFTER_S: f64 = 1.0;

/// One straggler; times from the moment at which it turned slow.
struct Replaced {
    /// Until it was found.
    found_s: f64,
    /// Until training went on without it.
    replaced_s: f64,
    /// Fewest active workers at any time.
    fewest: f64,
}

pub(super) fn measure(arguments: &StragglerArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "workers": arguments.workers, "speed": arguments.speed, "step_s": STEP_MS as f64 * 1e-3,
        "slow_after_s": SLOW_AFTER_S, "trials": arguments.trials,
    });
    let mut report = Report::begin("straggler", settings, &[]);
    for workers in &arguments.workers {
        let case = format!("1 of {workers} at speed {}", arguments.speed);
        printer.note(format_args!("{case}: {} trials", arguments.trials));
        let trials = (0..arguments.trials).map(|_| trial(*workers, arguments.speed));
        row(&mut report, &case, *workers, &trials.collect::<Result<Vec<_>, _>>()?);
    }
    report.note(
        "A worker turns slow while it trains, without notice. Times count from the commit of the last step before \
         that; the last is that of the membership in which another has taken its place. The clock is the journal's.",
    );
    Ok(report)
}

fn row(report: &mut Report, case: &str, workers: u32, trials: &[Replaced]) {
    let column = |value: fn(&Replaced) -> f64| trials.iter().map(value).collect::<Vec<f64>>();
    let replaced_s = column(|trial| trial.replaced_s);
    let fewest = smallest(&column(|trial| trial.fewest));
    report.row(
        Row::new(case)
            .with("trials", trials.len())
            .with("found_median_s", median(&column(|trial| trial.found_s)))
            .with("found_worst_s", largest(&column(|trial| trial.found_s)))
            .spread("replaced", "s", &replaced_s)
            .with("fewest_active", fewest as u64)
            .samples("replaced_samples_s", &replaced_s),
    );
    report.at_most(format!("{case}: worst time until it is replaced"), "s", largest(&replaced_s), BOUND_S);
    let size = f64::from(workers);
    report.bar(
        format!("{case}: fewest active workers over the job's size"),
        fewest / size,
        1.0,
        fewest >= size,
    );
}

fn trial(workers: u32, speed: f64) -> Result<Replaced, Failure> {
    let parameters = Bytes(1 << 20);
    let job = Synthetic { step_ms: STEP_MS, parameters, virtual_nodes: workers, steps: ENDLESS, adam: false };
    let mut trial = Trial::launch_at(Folder::new("bench")?, &job.text(), workers, |mut command| {
        let speeds = format!("1,{speed}@{SLOW_AFTER_S}s");
        command.args(["--worker-speed", &speeds, "--replace-stragglers"]);
        command
    })?;
    trial.settle(workers as usize, 3)?;
    let found = trial.wait("a straggler", |trial| {
        trial.since(0).iter().find_map(|line| match line.event {
            Event::Straggler { worker, .. } => Some((worker, line.time_s)),
            _ => None,
        })
    })?;
    let replaced_s = trial.wait("its replacement", |trial| without(trial.since(0), found.0, found.1))?;
    let lines = trial.since(0);
    let slow = onset(&trial.steps(), 1.5e-3 * STEP_MS as f64);
    let began_s = committed_s(lines, slow).ok_or_else(|| Failure::at("straggler", "no step was slow"))?;
    Ok(Replaced {
        found_s: found.1 - began_s,
        replaced_s: replaced_s - began_s,
        fewest: fewest(lines, workers),
    })
}

/// When the first membership without a worker began, after a time.
fn without(lines: &[Line], worker: u64, after_s: f64) -> Option<f64> {
    lines.iter().find_map(|line| match &line.event {
        Event::Membership { workers, .. } if line.time_s > after_s && !workers.contains(&worker) => {
            Some(line.time_s)
        }
        _ => None,
    })
}

/// The first of three steps in a row that compute longer than `limit_s`.
fn onset(steps: &[StepRecord], limit_s: f64) -> u64 {
    let slow = |steps: &[StepRecord]| steps.iter().all(|step| step.compute_s > limit_s);
    steps.windows(3).find(|window| slow(window)).map_or(0, |window| window[0].step)
}

/// When the step before `step` was committed.
fn committed_s(lines: &[Line], step: u64) -> Option<f64> {
    lines.iter().find_map(|line| match line.event {
        Event::Committed { last, .. } if last + 1 >= step && step > 0 => Some(line.time_s),
        _ => None,
    })
}

/// Fewest active workers once the job had its size.
fn fewest(lines: &[Line], workers: u32) -> f64 {
    let sizes = lines.iter().filter_map(|line| match &line.event {
        Event::Membership { workers, .. } => Some(workers.len() as f64),
        _ => None,
    });
    smallest(&sizes.skip_while(|size| *size < f64::from(workers)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dip_is_seen() {
        let began = |time_s, workers: &[u64]| Line {
            time_s,
            event: Event::Membership {
                epoch: 1,
                step: 0,
                workers: workers.to_vec(),
                bounds: Vec::new(),
                shadows: Vec::new(),
                accumulation: 1,
                reason: String::new(),
            },
        };
        let kept = [began(0.0, &[1]), began(1.0, &[1, 2, 3]), began(2.0, &[1, 3, 4])];
        let dipped = [began(0.0, &[1]), began(1.0, &[1, 2, 3]), began(2.0, &[1, 3]), began(3.0, &[1, 3, 4])];
        assert_eq!((fewest(&kept, 3), fewest(&dipped, 3)), (3.0, 2.0));
        assert_eq!((without(&kept, 2, 0.5), without(&dipped, 2, 0.5)), (Some(2.0), Some(2.0)));
        let commit =
            |time_s, first, last| Line { time_s, event: Event::Committed { first, last, accumulation: 1 } };
        let lines = [commit(0.1, 0, 3), commit(0.2, 4, 7), commit(0.3, 8, 9)];
        assert_eq!(
            (committed_s(&lines, 4), committed_s(&lines, 6), committed_s(&lines, 0)),
            (Some(0.1), Some(0.2), None)
        );
    }
}
