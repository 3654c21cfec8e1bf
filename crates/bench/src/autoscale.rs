//! `autoscale`: from too few workers and from too many, to the size beyond which a device gains nothing.

use bellwether_core::job::WorkerRange;
use bellwether_core::record::{Event, Line};
use bellwether_core::units::Bytes;
use bellwether_sched::autoscale::{CATALOGUE, Use, named};
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::statistics::{largest, median, now_s};
use super::trial::Trial;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct AutoscaleArguments {
    /// Heuristics to try [default: all]
    #[arg(long, value_name = "HEURISTIC,…", value_delimiter = ',')]
    heuristics: Vec<String>,
    /// Runs of each heuristic, from one worker and again from the most
    #[arg(long, value_name = "N", default_value_t = 3)]
    trials: u32,
    /// Virtual nodes; one worker fewer is the most, and half of an even number is as quick
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=64))]
    virtual_nodes: u32,
    /// Milliseconds that a virtual node takes
    #[arg(long, value_name = "MS", default_value_t = 20)]
    step_ms: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Steps without a change after which a size counts as settled: more than any heuristic measures before it decides.
const CALM_STEPS: u64 = 150;

/// A heuristic that still moves after this time does not settle.
const PATIENCE_S: f64 = 60.0;

/// What a worker costs, and what time is worth: as much as three workers. Were it worth one, 2 workers for 8
/// virtual nodes would cost exactly as much as 3, and only noise could tell them apart.
const ECONOMY: [&str; 4] = ["--price", "$1/h", "--utility", "linear:$30,10h"];

/// What became of a run.
struct Outcome {
    /// Where it settled, if it did.
    workers: Option<u32>,
    /// Seconds from the first step to the last change.
    settle_s: f64,
    /// Worker-seconds beyond those of the same steps at the right size; absent where the run never was there.
    exploration_worker_s: Option<f64>,
    resizes: usize,
}

pub(super) fn measure(arguments: &AutoscaleArguments, printer: &Printer) -> Result<Report, Failure> {
    let virtual_nodes = arguments.virtual_nodes;
    let range = WorkerRange { min: 1, max: virtual_nodes - 1 };
    let right = saturates_at(virtual_nodes, range.max);
    let heuristics: Vec<String> = match arguments.heuristics.as_slice() {
        [] => CATALOGUE.iter().map(|entry| entry.name.to_owned()).collect(),
        some => some.to_vec(),
    };
    let settings = json!({
        "virtual_nodes": virtual_nodes, "virtual_node_time_s": arguments.step_ms as f64 * 1e-3, "workers": range.to_string(),
        "saturates_at": right, "trials": arguments.trials, "economy": ECONOMY, "calm_steps": CALM_STEPS,
    });
    let mut report = Report::begin("autoscale", settings, &[]);
    let job = Synthetic {
        step_ms: arguments.step_ms,
        parameters: Bytes(64 << 10),
        virtual_nodes,
        steps: ENDLESS,
        adam: false,
    };
    for heuristic in &heuristics {
        for start in [range.min, range.max] {
            for money in uses(heuristic)? {
                let case = format!("{heuristic}{}, from {start}", if *money { " with money" } else { "" });
                printer.note(format_args!("{case}: {} trials", arguments.trials));
                let trials =
                    (0..arguments.trials).map(|_| trial(&job, range, heuristic, start, *money, right));
                row(&mut report, &case, right, &trials.collect::<Result<Vec<_>, _>>()?);
            }
        }
    }
    report.note(
        "A step takes as long as the worker with the most virtual nodes, so more workers than `saturates_at` gain \
         nothing. A run has settled when nothing changed for `calm_steps` steps. Exploration is what the workers, those \
         that boot included, took beyond the same steps at the right size. With money the time of the job is worth as \
         much as three workers cost, and the best size is the same.",
    );
    Ok(report)
}

/// Whether the heuristic is to be tried without and with utility and price.
fn uses(heuristic: &str) -> Result<&'static [bool], Failure> {
    named(heuristic)?;
    Ok(match bellwether_sched::autoscale::entry(heuristic)?.economy {
        Use::Needed => &[true],
        Use::Weighed => &[false, true],
        Use::Ignored => &[false],
    })
}

/// The fewest workers whose step is as short as that of any number up to `most`.
fn saturates_at(virtual_nodes: u32, most: u32) -> u32 {
    virtual_nodes.div_ceil(virtual_nodes.div_ceil(most))
}

fn row(report: &mut Report, case: &str, right: u32, outcomes: &[Outcome]) {
    let settled = outcomes.iter().filter(|outcome| outcome.workers == Some(right)).count();
    let sizes: Vec<String> =
        outcomes.iter().map(|outcome| outcome.workers.map_or("none".into(), |k| k.to_string())).collect();
    let settle_s: Vec<f64> = outcomes.iter().map(|outcome| outcome.settle_s).collect();
    let exploration: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.exploration_worker_s).collect();
    let resizes: Vec<f64> = outcomes.iter().map(|outcome| outcome.resizes as f64).collect();
    report.row(
        Row::new(case)
            .with("settled_at", sizes.join(" "))
            .with("right_size", right)
            .with("resizes_median", median(&resizes))
            .with("settle_median_s", median(&settle_s))
            .with("settle_worst_s", largest(&settle_s))
            .with("exploration_median_worker_s", median(&exploration))
            .samples("settle_samples_s", &settle_s)
            .samples("exploration_samples_worker_s", &exploration),
    );
    let share = settled as f64 / outcomes.len().max(1) as f64;
    report.bar(format!("{case}: trials that settle at {right}"), share, 1.0, settled == outcomes.len());
}

fn trial(
    job: &Synthetic,
    range: WorkerRange,
    heuristic: &str,
    start: u32,
    money: bool,
    right: u32,
) -> Result<Outcome, Failure> {
    let economy: &[&str] = if money { &ECONOMY } else { &[] };
    let mut trial = Trial::launch_at(Folder::new("bench")?, &job.text(), range, |mut command| {
        // A slow moment of this machine does not make a straggler.
        command.args(["--autoscale", heuristic, "--start-workers", &start.to_string()]);
        command.args(economy).arg("--replace-stragglers=0");
        command
    })?;
    trial.settle(start as usize, 1)?;
    let until_s = now_s() + PATIENCE_S;
    let workers = trial.wait("a settled size", |trial| {
        let calm = trial.committed() >= last_change(trial.since(0)) + CALM_STEPS;
        let members = trial.members();
        match () {
            () if calm && members.shadows.is_empty() => Some(Some(members.active.len() as u32)),
            () if now_s() > until_s => Some(None),
            () => None,
        }
    })?;
    let lines = trial.since(0);
    let sizes = sizes(lines);
    let (began, end) = (sizes[0], *sizes.last().unwrap_or(&sizes[0]));
    let step_s = |workers: u32| {
        let steps = trial.steps().into_iter().filter(|step| step.workers == workers && step.shadows == 0);
        median(&steps.map(|step| step.duration_s).collect::<Vec<_>>())
    };
    let at_right_worker_s = f64::from(right) * step_s(right) * end.step as f64;
    let exploration_worker_s = worker_s(lines, end.time_s) - at_right_worker_s;
    Ok(Outcome {
        workers,
        settle_s: end.time_s - began.time_s,
        exploration_worker_s: Some(exploration_worker_s).filter(|cost| cost.is_finite()),
        resizes: sizes.len() - 1,
    })
}

/// The step of the last change, or of the last decision to change something.
fn last_change(lines: &[Line]) -> u64 {
    let decided = lines.iter().rev().find_map(|line| match &line.event {
        Event::Decided(decision) if decision.target != decision.workers => Some(decision.step),
        _ => None,
    });
    let size = sizes(lines).last().map_or(0, |size| size.step);
    decided.unwrap_or(0).max(size)
}

/// A number of active workers that began.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    time_s: f64,
    step: u64,
    workers: usize,
}

/// The numbers of active workers, each as it began.
fn sizes(lines: &[Line]) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    for line in lines {
        if let Event::Membership { step, workers, .. } = &line.event
            && sizes.last().is_none_or(|size| size.workers != workers.len())
        {
            sizes.push(Size { time_s: line.time_s, step: *step, workers: workers.len() });
        }
    }
    sizes
}

/// Worker-seconds from the first membership to a time: of members, and of those that boot to become some.
fn worker_s(lines: &[Line], until_s: f64) -> f64 {
    let mut members: Vec<u64> = Vec::new();
    let mut booting: Vec<u64> = Vec::new();
    let (mut sum, mut since_s) = (0.0, None);
    for line in lines.iter().filter(|line| line.time_s <= until_s) {
        if let Some(since_s) = since_s.as_mut() {
            sum += (line.time_s - *since_s) * (members.len() + booting.len()) as f64;
            *since_s = line.time_s;
        }
        match &line.event {
            Event::WorkerStarted { worker } => booting.push(*worker),
            Event::Membership { workers, .. } => {
                since_s = since_s.or(Some(line.time_s));
                members.clone_from(workers);
                booting.retain(|worker| !workers.contains(worker));
            }
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_size_is_the_fewest_workers_with_the_shortest_step() {
        for virtual_nodes in 3..40_u32 {
            for most in 1..=virtual_nodes {
                let step = |workers: u32| virtual_nodes.div_ceil(workers);
                let right = (1..=most).find(|workers| step(*workers) == step(most));
                assert_eq!(Some(saturates_at(virtual_nodes, most)), right, "{virtual_nodes} on {most}");
            }
        }
    }

    #[test]
    fn the_right_size_is_also_the_cheapest_and_each_on_the_way_cheaper_than_the_one_before() {
        for virtual_nodes in [6, 8_u32] {
            let cost = |workers: u32| (3 + workers) * virtual_nodes.div_ceil(workers);
            let right = saturates_at(virtual_nodes, virtual_nodes - 1);
            assert!((1..right).all(|workers| cost(workers) > cost(workers + 1)));
            assert!((right..virtual_nodes - 1).all(|workers| cost(workers) < cost(workers + 1)));
        }
    }

    #[test]
    fn workers_that_boot_are_paid() {
        let line = |time_s, event| Line { time_s, event };
        let began = |step, workers: &[u64]| Event::Membership {
            epoch: 1,
            step,
            workers: workers.to_vec(),
            bounds: Vec::new(),
            shadows: Vec::new(),
            accumulation: 1,
            reason: String::new(),
        };
        let lines = [
            line(0.0, Event::WorkerStarted { worker: 1 }),
            line(1.0, began(0, &[1])),
            line(3.0, Event::WorkerStarted { worker: 2 }),
            line(4.0, began(30, &[1, 2])),
            line(6.0, began(70, &[2])),
            line(9.0, Event::Committed { first: 0, last: 99, accumulation: 1 }),
        ];
        // One worker for 2 s, with a booting one for 1 s, two for 2 s.
        assert!((worker_s(&lines, 6.0) - (2.0 + 2.0 + 4.0)).abs() < 1e-12);
        assert_eq!(
            sizes(&lines).iter().map(|size| (size.step, size.workers)).collect::<Vec<_>>(),
            [(0, 1), (30, 2), (70, 1)]
        );
        assert_eq!(last_change(&lines), 70);
    }
}
