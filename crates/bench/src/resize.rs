//! `resize`: grow and shrink again and again, and see how long those who stay are kept waiting.

use bellwether_core::record::{Event, Line, StepRecord};
use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::statistics::{largest, median};
use super::trial::Trial;
use super::{OutputArguments, published};
use crate::failure::Failure;
use crate::printer::Printer;

mod joiner;

#[derive(Debug, Args)]
pub(super) struct ResizeArguments {
    /// Numbers of workers to double and to come back to
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4")]
    workers: Vec<u32>,
    /// How often each change is made
    #[arg(long, value_name = "N", default_value_t = 10)]
    repetitions: u32,
    /// Newcomers to kill in each stage of joining
    #[arg(long, value_name = "N", default_value_t = 5)]
    kills: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// What a survivor may wait beyond one step.
const SLACK_S: f64 = 0.05;

/// Virtual nodes: the most workers that are tried.
const VIRTUAL_NODES: u32 = 8;

/// Undisturbed steps before each change, to compare with.
const CALM_STEPS: u64 = 12;

/// Steps after a switch that may still suffer from it.
const AFTER_STEPS: u64 = 3;

/// One change of the number of workers.
struct Change {
    /// Median of the undisturbed steps: the longer of before and after.
    step_s: f64,
    /// Longest step from the request to some steps after the switch.
    longest_s: f64,
    /// Longest wait beyond the median among the undisturbed steps: what the machine itself does.
    calm_wait_s: f64,
    /// Longest time between two commits in the journal.
    longest_commit_gap_s: f64,
    /// Time at the boundary, as the workers saw it.
    stall_s: f64,
    /// From the decision to the switch, behind training.
    hidden_s: f64,
    /// Steps from the request to the switch.
    steps: u64,
    /// Memberships that began on the way.
    memberships: usize,
}

pub(super) fn measure(arguments: &ResizeArguments, printer: &Printer) -> Result<Report, Failure> {
    if let Some(most) = arguments.workers.iter().find(|w| **w == 0 || **w * 2 > VIRTUAL_NODES) {
        return Err(Failure::at("--workers", format!("{most}: choose from 1 to {}", VIRTUAL_NODES / 2)));
    }
    let settings = json!({
        "workers": arguments.workers, "virtual_nodes": VIRTUAL_NODES, "repetitions": arguments.repetitions,
        "virtual_node_time_s": 0.02, "parameters_bytes": 1 << 20, "joiner_kills": arguments.kills,
    });
    let mut report = Report::begin("resize", settings, published::RESIZE);
    let parameters = Bytes(1 << 20);
    let job =
        Synthetic { step_ms: 20, parameters, virtual_nodes: VIRTUAL_NODES, steps: ENDLESS, adam: false };
    for few in &arguments.workers {
        let many = 2 * few;
        printer.note(format_args!("{few} to {many} workers and back, {} times", arguments.repetitions));
        let mut trial = Trial::start(&job.text(), *few)?;
        let (mut grown, mut shrunk) = (Vec::new(), Vec::new());
        for _ in 0..arguments.repetitions {
            grown.push(change(&mut trial, *few, many)?);
            shrunk.push(change(&mut trial, many, *few)?);
        }
        row(&mut report, &format!("grow {few} to {many}"), &grown);
        row(&mut report, &format!("shrink {many} to {few}"), &shrunk);
    }
    joiner::measure(&mut report, arguments.kills, printer)?;
    report.note(
        "A step's time counts from boundary to boundary on a survivor, the switch included. `step` is the median of \
         undisturbed steps, before or after the change, whichever is longer: with fewer workers each computes more \
         virtual nodes. The wait is the longest step around a change less `step`; the undisturbed wait is the same for \
         about as many steps during which nothing changed: what the machine does to steps by itself.",
    );
    Ok(report)
}

fn row(report: &mut Report, case: &str, changes: &[Change]) {
    let column = |value: fn(&Change) -> f64| changes.iter().map(value).collect::<Vec<f64>>();
    let wait_s = column(|c| c.longest_s - c.step_s);
    report.row(
        Row::new(case)
            .with("repetitions", changes.len())
            .with("step_s", median(&column(|c| c.step_s)))
            .spread("wait", "s", &wait_s)
            .with("undisturbed_wait_worst_s", largest(&column(|c| c.calm_wait_s)))
            .with("commit_gap_worst_s", largest(&column(|c| c.longest_commit_gap_s)))
            .with("stall_median_s", median(&column(|c| c.stall_s)))
            .with("stall_worst_s", largest(&column(|c| c.stall_s)))
            .with("hidden_median_s", median(&column(|c| c.hidden_s)))
            .with("steps_to_switch", median(&column(|c| c.steps as f64)))
            .samples("wait_samples_s", &wait_s),
    );
    report.at_most(format!("{case}: worst wait beyond one step"), "s", largest(&wait_s), SLACK_S);
    if case.starts_with("shrink") {
        let memberships = column(|c| c.memberships as f64);
        report.at_most(
            format!("{case}: boundaries at which the membership changes"),
            "",
            largest(&memberships),
            1.0,
        );
    }
}

fn change(trial: &mut Trial, from: u32, to: u32) -> Result<Change, Failure> {
    trial.settle(from as usize, CALM_STEPS + AFTER_STEPS)?;
    let mark = trial.mark()?;
    let first = trial.committed();
    scale(trial, to)?;
    let (switch, stall_s, hidden_s) = trial.wait("the resize", |trial| {
        trial.since(mark).iter().find_map(|line| match &line.event {
            Event::Resized { step, to: reached, stall_s, hidden_s, .. } if *reached == to => {
                Some((*step, *stall_s, *hidden_s))
            }
            _ => None,
        })
    })?;
    trial.settle(to as usize, CALM_STEPS + AFTER_STEPS)?;
    let steps = trial.steps();
    let last = switch + AFTER_STEPS;
    let before = durations(&steps, first.saturating_sub(CALM_STEPS), first);
    let after = durations(&steps, last, last + CALM_STEPS);
    let around = durations(&steps, first, last);
    let beyond = |calm: &[f64]| largest(calm) - median(calm);
    let began = trial.since(mark).iter().filter(|line| matches!(line.event, Event::Membership { .. }));
    let memberships = began.count();
    Ok(Change {
        step_s: median(&before).max(median(&after)),
        longest_s: largest(&around),
        calm_wait_s: beyond(&before).max(beyond(&after)),
        memberships,
        longest_commit_gap_s: longest_gap_s(trial.since(mark), last),
        stall_s,
        hidden_s,
        steps: switch.saturating_sub(first),
    })
}

fn scale(trial: &Trial, workers: u32) -> Result<(), Failure> {
    let reply = trial.control()?.scale(workers).map_err(|e| Failure::at("resize", e))?;
    if reply.accepted { Ok(()) } else { Err(Failure::at("resize", reply.message)) }
}

/// Times of the steps `first..last`.
fn durations(steps: &[StepRecord], first: u64, last: u64) -> Vec<f64> {
    steps.iter().filter(|s| (first..last).contains(&s.step)).map(|s| s.duration_s).collect()
}

/// Longest time between two commits, up to the commit of step `last`.
fn longest_gap_s(lines: &[Line], last: u64) -> f64 {
    let mut times_s = Vec::new();
    for line in lines {
        if let Event::Committed { last: step, .. } = line.event {
            times_s.push(line.time_s);
            if step >= last {
                break;
            }
        }
    }
    times_s.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_ends_with_the_last_step() {
        let line =
            |time_s, last| Line { time_s, event: Event::Committed { first: last, last, accumulation: 1 } };
        let lines = [line(1.0, 0), line(1.5, 1), line(1.6, 2), line(9.0, 3)];
        assert!((longest_gap_s(&lines, 2) - 0.5).abs() < 1e-12);
        assert!((longest_gap_s(&lines, 3) - 7.4).abs() < 1e-12);
    }
}
