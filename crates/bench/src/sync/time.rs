//! Time of a switched run beside what its formula says, and how long a switch stalls.

use bellwether_core::record::{Event, Line};

use super::super::report::{Report, Row};
use super::super::statistics::{largest, median};
use super::super::trial::Outcome;
use super::{SyncArguments, WORKERS, session, set};
use crate::failure::Failure;
use crate::printer::Printer;

/// Relative error of a predicted time that is good enough.
const BOUND: f64 = 0.05;

/// Milliseconds that a virtual node takes, in the middle.
const STEP_MS: u64 = 20;

/// Standard deviation of the logarithm of that time: all wait for the slowest, which makes synchronous steps longer.
const SPREAD: f64 = 0.3;

/// Shares of synchronous steps at the beginning that are predicted.
const SHARES: [f64; 4] = [0.0625, 0.125, 0.25, 0.5];

/// The job, with this spread of the time of a virtual node.
pub(super) fn job(steps: u64, spread: f64, seed: u64) -> String {
    format!(
        "name = \"bench\"\nseed = {seed}\nsteps = {steps}\n\
         [model]\nkind = \"synthetic\"\nstep_time = \"{STEP_MS}ms\"\nspread = {spread}\nparameters = \"64KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 1000000\n\
         [batch]\nsize = {WORKERS}\nvirtual_nodes = {WORKERS}\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.001\n"
    )
}

pub(super) fn measure(
    arguments: &SyncArguments,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), Failure> {
    let steps = arguments.steps;
    let run = |policy: &str, seed: u64| session(&job(steps, SPREAD, seed), &set("policy", policy));
    let (mut bsp, mut asp, mut back) = (Vec::new(), Vec::new(), Vec::new());
    let mut mixed: Vec<Vec<Outcome>> = SHARES.iter().map(|_| Vec::new()).collect();
    for round in 1..=arguments.rounds {
        printer.note(format_args!("time: round {round} of {}", arguments.rounds));
        bsp.push(run("\"bsp\"", round)?);
        for (share, outcomes) in SHARES.iter().zip(&mut mixed) {
            outcomes.push(run(&format!("{{ switch_at = {share} }}"), round)?);
        }
        asp.push(run("\"asp\"", round)?);
        back.push(run("{ phases = [[0.0, \"asp\"], [0.5, \"bsp\"]] }", round)?);
    }
    let pace = |outcomes: &[Outcome]| median(&spans(outcomes, steps)) / steps as f64;
    let (bsp_s, asp_s) = (pace(&bsp), pace(&asp));
    let times = Times { steps, bsp_s, asp_s };
    report.row(times.row("time: bsp", 1.0, &bsp));
    report.row(times.row("time: asp", 0.0, &asp));
    for (share, outcomes) in SHARES.iter().zip(&mixed) {
        let case = format!("time: bsp {} %, asp", 100.0 * share);
        report.row(times.row(&case, *share, outcomes));
        report.at_most(format!("{case}: error"), "ratio", times.error(*share, outcomes).abs(), BOUND);
    }
    report.row(times.row("time: asp 50 %, bsp", 0.5, &back));
    let there: Vec<f64> = mixed.iter().flatten().flat_map(stalls).collect();
    let back: Vec<f64> = back.iter().flat_map(stalls).collect();
    for (name, stalls) in [("bsp to asp", there), ("asp to bsp", back)] {
        report.row(
            Row::new(format!("stall: {name}"))
                .with("switches", stalls.len())
                .spread("stall", "s", &stalls)
                .with("bsp_step_s", bsp_s)
                .samples("stall_samples_s", &stalls),
        );
        report.at_most(
            format!("stall: {name}: worst, in synchronous steps"),
            "steps",
            largest(&stalls) / bsp_s,
            1.0,
        );
    }
    report.note(
        "Predicted is f·S/r_bsp + (1 − f)·S/r_asp with the rates of the pure runs of the same rounds, and no time for the switch. \
         Measured is the journal's time from the first membership to the commit of the last step. A stall is the time in which no worker trained for the sake of the switch, as the coordinator saw it.",
    );
    Ok(())
}

/// What a step takes by either protocol.
struct Times {
    steps: u64,
    bsp_s: f64,
    asp_s: f64,
}

impl Times {
    /// Seconds of a run with this share of synchronous steps.
    fn predicted_s(&self, share: f64) -> f64 {
        let synchronous = (share * self.steps as f64).round();
        synchronous * self.bsp_s + (self.steps as f64 - synchronous) * self.asp_s
    }

    fn error(&self, share: f64, outcomes: &[Outcome]) -> f64 {
        self.predicted_s(share) / median(&spans(outcomes, self.steps)) - 1.0
    }

    fn row(&self, case: &str, share: f64, outcomes: &[Outcome]) -> Row {
        let spans = spans(outcomes, self.steps);
        Row::new(case)
            .with("rounds", outcomes.len())
            .with("predicted_s", self.predicted_s(share))
            .with("measured_median_s", median(&spans))
            .with("error", self.error(share, outcomes))
            .samples("measured_samples_s", &spans)
    }
}

fn spans(outcomes: &[Outcome], steps: u64) -> Vec<f64> {
    outcomes.iter().map(|outcome| span_s(&outcome.lines, steps)).collect()
}

/// Seconds from the first membership until this many steps were done; NaN where they never were.
pub(super) fn span_s(lines: &[Line], steps: u64) -> f64 {
    let began = lines.iter().find(|line| matches!(line.event, Event::Membership { .. }));
    began.zip(done_s(lines, steps)).map_or(f64::NAN, |(began, done_s)| done_s - began.time_s)
}

/// When this many steps were done.
fn done_s(lines: &[Line], steps: u64) -> Option<f64> {
    lines.iter().find_map(|line| match line.event {
        Event::Committed { last, .. } if last + 1 >= steps => Some(line.time_s),
        _ => None,
    })
}

/// Seconds that each switch stalled; the start of a run does not count as a switch.
fn stalls(outcome: &Outcome) -> impl Iterator<Item = f64> {
    outcome.lines.iter().filter_map(|line| match line.event {
        Event::Protocol { step, stall_s, .. } if step > 0 => Some(stall_s),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_a_job() {
        let job = bellwether_core::parse::job(&job(200, SPREAD, 2), "bench", &[]).unwrap();
        assert_eq!((job.batch.virtual_nodes, job.steps), (WORKERS, Some(200)));
    }

    #[test]
    fn a_mixed_run_takes_its_share_of_both_paces() {
        let times = Times { steps: 200, bsp_s: 0.03, asp_s: 0.02 };
        assert!((times.predicted_s(0.25) - (50.0 * 0.03 + 150.0 * 0.02)).abs() < 1e-12);
        let line = |time_s, event| Line { time_s, event };
        let commit = |time_s, first, last| line(time_s, Event::Committed { first, last, accumulation: 1 });
        let began = Event::Membership {
            epoch: 1,
            step: 0,
            workers: vec![1],
            bounds: Vec::new(),
            shadows: Vec::new(),
            accumulation: 1,
            reason: String::new(),
        };
        let lines = [line(1.0, began), commit(1.5, 0, 9), commit(2.0, 10, 14), commit(2.5, 15, 19)];
        assert!((span_s(&lines, 20) - 1.5).abs() < 1e-12);
        assert!(span_s(&lines, 21).is_nan());
    }
}
