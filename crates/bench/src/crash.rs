//! `crash`: SIGKILL a random worker at a random moment of a step, and wait for the next committed step.

use bellwether_core::record::Event;
use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::statistics::{Dice, median, now_s};
use super::trial::Trial;
use super::{OutputArguments, published};
use crate::failure::Failure;
use crate::printer::Printer;

mod coordinator;

#[derive(Debug, Args)]
pub(super) struct CrashArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4")]
    workers: Vec<u32>,
    /// Workers to kill per case
    #[arg(long, value_name = "N", default_value_t = 20)]
    kills: u32,
    /// Coordinators to kill per number of workers
    #[arg(long, value_name = "N", default_value_t = 10)]
    coordinator_kills: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Median time from the kill to the next committed step that is good enough.
const BOUND_S: f64 = 0.25;

/// Steps between a kill and the membership before it.
const CALM_STEPS: u64 = 8;

/// What a kill cost, in seconds.
struct Kill {
    /// To the coordinator's evidence.
    noticed_s: f64,
    /// From there until the survivors go on.
    formed_s: f64,
    /// To the commit of the first step that was begun afterwards.
    total_s: f64,
}

pub(super) fn measure(arguments: &CrashArguments, printer: &Printer) -> Result<Report, Failure> {
    let (kills, coordinator_kills) = (arguments.kills, arguments.coordinator_kills);
    let settings = json!({
        "workers": arguments.workers, "kills": kills, "coordinator_kills": coordinator_kills, "options": "default",
    });
    let mut report = Report::begin("crash", settings, published::RECOVERY);
    let mut dice = Dice::new();
    for workers in &arguments.workers {
        let modest = Synthetic {
            step_ms: 20,
            parameters: Bytes(1 << 20),
            virtual_nodes: *workers,
            steps: ENDLESS,
            adam: false,
        };
        let heavy = Synthetic { step_ms: 2, parameters: Bytes(16 << 20), ..modest.clone() };
        for (name, job) in [("20 ms steps", modest), ("mostly all-reduce", heavy)] {
            let case = format!("worker of {workers}, {name}");
            printer.note(format_args!("{case}: {kills} kills"));
            workers_killed(&mut report, &case, &job, *workers, kills, &mut dice)?;
        }
    }
    for workers in &arguments.workers {
        let case = format!("coordinator of {workers}, 20 ms steps");
        printer.note(format_args!("{case}: {coordinator_kills} kills"));
        coordinator::measure(&mut report, &case, *workers, coordinator_kills, &mut dice)?;
    }
    report.note(
        "A recovery ends with the commit of the first step that was begun after it; with fewer workers left, that \
         step takes longer than one before. The clock is the journal's. `not gradients` is the share of an \
         undisturbed step outside the gradients: how likely a kill lands in the all-reduce or the update.",
    );
    Ok(report)
}

fn workers_killed(
    report: &mut Report,
    case: &str,
    job: &Synthetic,
    workers: u32,
    kills: u32,
    dice: &mut Dice,
) -> Result<(), Failure> {
    let mut trial = Trial::start(&job.text(), workers)?;
    let kills = (0..kills).map(|_| kill(&mut trial, workers, dice)).collect::<Result<Vec<_>, _>>()?;
    let steps: Vec<_> = trial.steps().into_iter().filter(|s| s.workers == workers).collect();
    let step_s = median(&steps.iter().map(|s| s.duration_s).collect::<Vec<_>>());
    let rest: Vec<f64> = steps.iter().map(|s| 1.0 - s.compute_s / s.duration_s).collect();
    let column = |value: fn(&Kill) -> f64| kills.iter().map(value).collect::<Vec<f64>>();
    let total_s = column(|k| k.total_s);
    report.row(
        Row::new(case)
            .with("kills", kills.len())
            .with("step_s", step_s)
            .with("not_gradients", median(&rest))
            .with("noticed_median_s", median(&column(|k| k.noticed_s)))
            .with("formed_median_s", median(&column(|k| k.formed_s)))
            .spread("recovery", "s", &total_s)
            .samples("recovery_samples_s", &total_s),
    );
    report.at_most(format!("{case}: median recovery"), "s", median(&total_s), BOUND_S);
    Ok(())
}

fn kill(trial: &mut Trial, workers: u32, dice: &mut Dice) -> Result<Kill, Failure> {
    trial.settle(workers as usize, CALM_STEPS)?;
    std::thread::sleep(dice.time(0.2));
    let mark = trial.mark()?;
    let victim = dice.pick(&trial.members().active).unwrap_or_default();
    let killed_s = now_s();
    trial.kill(victim);
    let noticed_s = trial.wait("the evidence of a crash", |trial| {
        trial.since(mark).iter().find(|l| matches!(l.event, Event::Crashed { .. })).map(|l| l.time_s)
    })?;
    let (formed_s, committed_s) = recovered(trial, mark)?;
    Ok(Kill {
        noticed_s: noticed_s - killed_s,
        formed_s: formed_s - noticed_s,
        total_s: committed_s - killed_s,
    })
}

/// Waits for the first membership after a mark and for the commit of a step that was begun in it: their times.
fn recovered(trial: &mut Trial, mark: usize) -> Result<(f64, f64), Failure> {
    trial.wait("a step after the recovery", |trial| {
        let mut begun: Option<(f64, u64)> = None;
        for line in trial.since(mark) {
            match (&line.event, begun) {
                (Event::Membership { step, .. }, None) => begun = Some((line.time_s, *step)),
                (Event::Committed { last, .. }, Some((formed_s, step))) if *last >= step => {
                    return Some((formed_s, line.time_s));
                }
                _ => {}
            }
        }
        None
    })
}
