//! A slow worker in synchronous steps: what each policy against it costs and saves.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event;

use super::super::report::{Report, Row};
use super::super::statistics::{median, smallest};
use super::super::trial::Outcome;
use super::accuracy::{Results, chosen};
use super::time::{job, span_s};
use super::{SyncArguments, WORKERS, session, set};
use crate::failure::Failure;
use crate::printer::Printer;

/// What is left of the slow worker's speed.
const SPEED: f64 = 0.25;

/// When it turns slow, counted from its first gradient.
const SLOW_AFTER_S: f64 = 0.5;

/// Share of the steps that are synchronous.
const SYNCHRONOUS: f64 = 0.5;

/// How much faster than to ignore a straggler the elastic policy is to be.
const BOUND: f64 = 1.2;

const POLICIES: [&str; 3] = ["ignore", "greedy", "elastic"];

pub(super) fn accuracy(
    arguments: &SyncArguments,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), Failure> {
    for task in chosen(arguments) {
        // None of them is announced.
        let pace = arguments.pace;
        let mut paces = vec![format!("{pace}@0s"); WORKERS as usize];
        paces[1] = format!("{}@0s", SPEED * pace);
        let mut results: [Results; 3] = Default::default();
        let rate = task.rates[0];
        let case = format!("straggler, {}, rate {rate}", task.name);
        for seed in 1..=arguments.seeds {
            printer.note(format_args!("{case}: seed {seed} of {}", arguments.seeds));
            for (policy, results) in POLICIES.iter().zip(&mut results) {
                results.add(task, &session(&task.text(rate, seed), &options(policy, &paces.join(",")))?);
            }
        }
        for (policy, result) in POLICIES.iter().zip(&results) {
            report.row(result.row(format!("{case}: {policy}"), &results[0]));
        }
    }
    Ok(())
}

fn options(policy: &str, paces: &str) -> Vec<String> {
    let policies = [
        set("policy", &format!("{{ switch_at = {SYNCHRONOUS} }}")),
        set("stragglers", &format!("\"{policy}\"")),
    ];
    let mut options = policies.concat();
    options.push(format!("--worker-speed={paces}"));
    options
}

pub(super) fn times(
    arguments: &SyncArguments,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), Failure> {
    let steps = 2 * arguments.steps;
    let mut outcomes: [Vec<Outcome>; 3] = Default::default();
    for round in 1..=arguments.rounds {
        printer.note(format_args!("stragglers: round {round} of {}", arguments.rounds));
        for (policy, outcomes) in POLICIES.iter().zip(&mut outcomes) {
            let paces = format!("1,{SPEED}@{SLOW_AFTER_S}s");
            outcomes.push(session(&job(steps, 0.0, round), &options(policy, &paces))?);
        }
    }
    let half = (SYNCHRONOUS * steps as f64).round() as u64;
    let spans = |outcomes: &[Outcome], steps: u64| {
        outcomes.iter().map(|outcome| span_s(&outcome.lines, steps)).collect::<Vec<f64>>()
    };
    for (policy, outcomes) in POLICIES.iter().zip(&outcomes) {
        let (halves, wholes) = (spans(outcomes, half), spans(outcomes, steps));
        report.row(
            Row::new(format!("straggler, synthetic: {policy}"))
                .with("rounds", outcomes.len())
                .with("first_half_median_s", median(&halves))
                .with("whole_median_s", median(&wholes))
                .with(
                    "synchronous_steps_least",
                    smallest(&outcomes.iter().map(synchronous).collect::<Vec<_>>()),
                )
                .with("benched", outcomes.iter().map(benched).sum::<usize>())
                .samples("first_half_samples_s", &halves)
                .samples("whole_samples_s", &wholes),
        );
    }
    for (part, steps) in [("first half", half), ("whole run", steps)] {
        let faster = median(&spans(&outcomes[0], steps)) / median(&spans(&outcomes[2], steps));
        report.bar(
            format!("straggler, synthetic: {part}, elastic faster than ignore"),
            faster,
            BOUND,
            faster >= BOUND,
        );
    }
    report.note(
        "One of the workers turns slow, without notice. The first half of the steps is to be synchronous, the second \
         asynchronous.",
    );
    Ok(())
}

/// Steps that were synchronous.
fn synchronous(outcome: &Outcome) -> f64 {
    let phases = outcome.summary.phases.iter();
    phases.filter(|phase| phase.protocol == Protocol::Bsp).map(|phase| phase.steps as f64).sum()
}

/// How often a worker was told to pause.
fn benched(outcome: &Outcome) -> usize {
    outcome.lines.iter().filter(|line| matches!(line.event, Event::Paused { .. })).count()
}
