//! A sweep for people: what happens, and what was found.

use std::fmt::Write;
use std::path::Path;

use bellwether_core::sweep::Sample;
use bellwether_core::units::Dollars;
use bellwether_render::duration::written;
use bellwether_render::figure::difference;
use bellwether_render::table::{aligned, facts};
use bellwether_sched::search::Decision;
use bellwether_serve::sweep::ledger::Outcome;
use bellwether_serve::sweep::{Summary, Told, TrialSummary};

use crate::printer::Printer;

/// Rows of the table; JSON has all.
const ROWS: usize = 40;

fn values(sample: &Sample) -> String {
    sample.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

/// Tells what happens.
pub(super) fn progress(told: &Told<'_>, printer: &Printer) {
    match told {
        Told::Full(why) => {
            printer.note(format_args!("warning: the sweep waits, its ledger cannot be written: {why}"));
        }
        Told::Goes => printer.note("the sweep goes on: its ledger can be written again"),
        Told::Halting(why) => printer.note(format_args!("all trials are being paused: {why}")),
        Told::Ended(trial, Outcome::Failed, why) => {
            printer.note(format_args!("trial {trial} failed: {}", why.replace('\n', " ")));
        }
        _ if printer.quiet => {}
        Told::Decided(Decision::Begin { trial, sample, .. }) => {
            printer.note(format_args!("trial {trial} begins: {}", values(sample)));
        }
        Told::Decided(Decision::Continue { trial, to, reason }) => {
            printer.note(format_args!("trial {trial} goes on to {to}: {reason}"));
        }
        Told::Decided(Decision::Pause { trial, reason }) => {
            printer.note(format_args!("trial {trial} waits: {reason}"));
        }
        Told::Decided(Decision::Stop { trial, reason }) => {
            printer.note(format_args!("trial {trial} ends: {reason}"));
        }
        Told::Reported(trial, at, figure) => {
            let figure = figure.map_or("no number".into(), |figure| format!("{figure:.4}"));
            printer.note(format_args!("trial {trial} at {at}: {figure}"));
        }
        Told::Ended(trial, outcome, _) => {
            let how = if *outcome == Outcome::Finished { "finished" } else { "has ended" };
            printer.note(format_args!("trial {trial} {how}"));
        }
    }
}

/// The trials, the best first, and what they cost.
pub(super) fn table(summary: &Summary, winner: &Path) -> String {
    let mut trials: Vec<&TrialSummary> = summary.trials.iter().collect();
    let sign = if summary.metric == "loss" { 1.0 } else { -1.0 };
    let cost = |trial: &TrialSummary| trial.figure.map_or(f64::INFINITY, |figure| sign * figure);
    trials.sort_by(|a, b| {
        let first = |trial: &TrialSummary| Some(trial.trial) != summary.winner;
        first(a).cmp(&first(b)).then(cost(a).total_cmp(&cost(b))).then(a.trial.cmp(&b.trial))
    });
    let head = ["trial", summary.metric, "at", "state", "worker time", "values"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(trials.iter().take(ROWS).map(|trial| {
        let last = trial.reports.last();
        vec![
            trial.trial.to_string(),
            last.map_or("–".into(), |(_, figure)| format!("{figure:.4}")),
            last.map_or("–".into(), |(at, _)| at.to_string()),
            trial.state.to_owned(),
            written(trial.worker_s),
            values(&trial.sample),
        ]
    }));
    let mut text = aligned(&rows);
    if trials.len() > ROWS {
        let _ = write!(text, "\n… and {} more; --format json has all", trials.len() - ROWS);
    }
    let mut rows = Vec::new();
    if let Some(best) = summary.winner.and_then(|number| summary.trials.get(number as usize)) {
        let figure = best.figure.map_or(String::new(), |figure| format!(", {} {figure:.4}", summary.metric));
        rows.push(("best", format!("trial {}{figure}: {}", best.trial, winner.display())));
    }
    rows.push(("time", against(summary.seconds, summary.predicted.map(|known| known.seconds))));
    rows.push(("worker time", against(summary.worker_s, summary.predicted.map(|known| known.worker_s))));
    if let Some(dollars) = summary.cost_dollars {
        rows.push(("cost", Dollars::new(dollars).to_string()));
    }
    let _ = write!(text, "\n\n{}", facts(&rows));
    text
}

/// What was measured, beside what was predicted.
fn against(measured_s: f64, predicted_s: Option<f64>) -> String {
    match predicted_s.filter(|predicted| *predicted > 0.0) {
        Some(predicted_s) => format!(
            "{}, predicted {} ({})",
            written(measured_s),
            written(predicted_s),
            difference(predicted_s / measured_s.max(1e-9) - 1.0)
        ),
        None => written(measured_s),
    }
}
