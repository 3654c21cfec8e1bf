//! The sad half of `resize`: a newcomer is killed half-way, while others train.

use bellwether_core::record::Event;
use bellwether_core::units::Bytes;

use super::{CALM_STEPS, SLACK_S, durations, longest_gap_s, scale};
use crate::failure::Failure;
use crate::jobs::{ENDLESS, Synthetic};
use crate::printer::Printer;
use crate::report::{Report, Row};
use crate::statistics::{Dice, largest, median, now_s};
use crate::trial::Trial;

/// Workers before and after the newcomer.
const WORKERS: u32 = 2;

/// Large enough for the stream of state to take a while.
const PARAMETERS: Bytes = Bytes(64 << 20);

/// When the newcomer dies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    Never,
    Booting,
    Receiving,
}

/// What an attempt to join cost the others.
struct Attempt {
    step_s: f64,
    longest_s: f64,
    calm_wait_s: f64,
    commit_step_s: f64,
    longest_commit_gap_s: f64,
    /// Seconds from the request until the newcomer, or the one after it, is active.
    joined_s: f64,
    /// Recoveries that the others went through: none, unless the newcomer had become a member.
    recoveries: usize,
}

pub(super) fn measure(report: &mut Report, kills: u32, printer: &Printer) -> Result<(), Failure> {
    if kills == 0 {
        return Ok(());
    }
    let job =
        Synthetic { step_ms: 20, parameters: PARAMETERS, virtual_nodes: 4, steps: ENDLESS, adam: false };
    let mut trial = Trial::start(&job.text(), WORKERS)?;
    let mut dice = Dice::new();
    for (name, moment) in [
        ("lives", Moment::Never),
        ("is killed while booting", Moment::Booting),
        ("is killed while receiving state", Moment::Receiving),
    ] {
        let case = format!("third worker, {PARAMETERS}, {name}");
        printer.note(format_args!("{case}: {kills} times"));
        let attempts =
            (0..kills).map(|_| attempt(&mut trial, moment, &mut dice)).collect::<Result<Vec<_>, _>>()?;
        let column = |value: fn(&Attempt) -> f64| attempts.iter().map(value).collect::<Vec<f64>>();
        let wait_s = column(|a| a.longest_s - a.step_s);
        let commit_wait_s = column(|a| a.longest_commit_gap_s - a.commit_step_s);
        report.row(
            Row::new(&case)
                .with("repetitions", attempts.len())
                .with("step_s", median(&column(|a| a.step_s)))
                .spread("wait", "s", &wait_s)
                .with("undisturbed_wait_worst_s", largest(&column(|a| a.calm_wait_s)))
                .with("commit_wait_median_s", median(&commit_wait_s))
                .with("commit_wait_worst_s", largest(&commit_wait_s))
                .with("joined_median_s", median(&column(|a| a.joined_s)))
                .with("recoveries", attempts.iter().map(|a| a.recoveries).sum::<usize>())
                .samples("wait_samples_s", &wait_s)
                .samples("commit_wait_samples_s", &commit_wait_s),
        );
        let worst_s = largest(&wait_s).max(largest(&commit_wait_s));
        report.at_most(format!("{case}: worst wait beyond one step"), "s", worst_s, SLACK_S);
    }
    Ok(())
}

fn attempt(trial: &mut Trial, moment: Moment, dice: &mut Dice) -> Result<Attempt, Failure> {
    trial.settle(WORKERS as usize, CALM_STEPS)?;
    let calm_mark = trial.mark()?;
    let first = trial.committed();
    trial.wait("undisturbed steps", |trial| (trial.committed() >= first + CALM_STEPS).then_some(()))?;
    let (mark, begun) = (trial.mark()?, trial.committed());
    let commits_s: Vec<f64> = trial.since(calm_mark).iter().filter_map(commit_time_s).collect();
    let gaps_s: Vec<f64> = commits_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let requested_s = now_s();
    scale(trial, WORKERS + 1)?;
    let attached = trial.wait("the newcomer", |trial| {
        trial.since(mark).iter().find_map(|line| match &line.event {
            Event::WorkerAttached { worker, .. } => Some(*worker),
            _ => None,
        })
    })?;
    if moment == Moment::Receiving {
        trial
            .wait("the stream of state", |trial| trial.members().shadows.contains(&attached).then_some(()))?;
        std::thread::sleep(dice.time(0.05));
    }
    if moment != Moment::Never {
        trial.kill(attached);
    }
    trial.settle(WORKERS as usize + 1, 3)?;
    let joined = trial.members().step;
    let last = joined + 3;
    let mut recoveries = 0;
    let mut joined_s = f64::NAN;
    for line in trial.since(mark) {
        if let Event::Membership { step, reason, .. } = &line.event {
            recoveries += usize::from(reason.contains("lost") || reason.contains("broke"));
            joined_s = if *step == joined { line.time_s - requested_s } else { joined_s };
        }
    }
    let steps = trial.steps();
    let calm = durations(&steps, first, begun);
    let result = Attempt {
        step_s: median(&calm),
        calm_wait_s: largest(&calm) - median(&calm),
        longest_s: largest(&durations(&steps, begun, last)),
        commit_step_s: median(&gaps_s),
        longest_commit_gap_s: longest_gap_s(trial.since(mark), last),
        joined_s,
        recoveries,
    };
    scale(trial, WORKERS)?;
    Ok(result)
}

fn commit_time_s(line: &bellwether_core::record::Line) -> Option<f64> {
    matches!(line.event, Event::Committed { .. }).then_some(line.time_s)
}
