//! `bellwether simulate --sweep`: a whole sweep on known learning curves, under every trial scheduler.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use bellwether_core::sweep::{self, Ladder, Resources, Sweep, TrialScheduler, Unit};
use bellwether_core::{InputError, parse};
use bellwether_render::duration::written;
use bellwether_render::table::aligned;
use bellwether_sched::search::Plan;
use bellwether_sched::search::rehearsal::{self, Curve, Rehearsed, Stage};
use bellwether_serve::sweep::{State, ledger};
use serde::Serialize;

use super::SimulateArguments;
use crate::failure::Failure;
use crate::options::TableFormat;
use crate::printer::Printer;

/// Most workers that can be asked about.
const WORKERS_MAX: u32 = 10_000;

/// What is known of trials.
struct Known {
    curves: Vec<Curve>,
    /// Trials whose curve does not reach the end of a whole trial.
    left_out: usize,
    /// Seconds of a unit of length with one worker, where the source tells.
    unit_s: Option<f64>,
}

/// A trial scheduler with a number of workers, and what it would come to.
#[derive(Debug, Serialize)]
struct Row {
    scheduler: &'static str,
    workers: u32,
    #[serde(flatten)]
    result: Rehearsed,
}

pub(super) fn simulate(
    path: &Path,
    arguments: &SimulateArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::at(&place, error))?;
    let sweep = sweep::read(&text, &place)?;
    let Some(source) = &arguments.curves else {
        let error = InputError::new("--curves", "nothing tells how trials learn");
        return Err(error
            .hint("name a CSV file with trial,length,value, or the sweep.jsonl of a sweep that has ended")
            .into());
    };
    let known = curves(source)?;
    if known.left_out > 0 {
        printer.note(format_args!(
            "note: {} trials that ended early tell no whole curve and are left out; those that are left are better \
             than chance",
            known.left_out
        ));
    }
    let unit_s = arguments.unit_time.map(|time| time.get()).or(known.unit_s).unwrap_or(1.0);
    let workers = match &arguments.workers[..] {
        [] => vec![sweep.file.workers.unwrap_or(1)],
        named => named.to_vec(),
    };
    if let Some(wrong) = workers.iter().find(|workers| !(1..=WORKERS_MAX).contains(*workers)) {
        let error = InputError::new("--workers", format!("{wrong} workers"));
        return Err(error.hint(format!("write 1 to {WORKERS_MAX}")).into());
    }
    let mut rows = Vec::new();
    let units = units(&sweep, path);
    for scheduler in schedulers(&sweep, &known.curves, units) {
        for workers in &workers {
            let plan = plan(&sweep, scheduler, &known.curves, *workers);
            let result = rehearse(&sweep, plan, &known.curves, *workers, unit_s, arguments)?;
            rows.push(Row { scheduler: scheduler.name(), workers: *workers, result });
        }
    }
    match arguments.format {
        TableFormat::Json => printer.out(bellwether_render::json(&rows)),
        TableFormat::Table => printer.out(table(&rows, sweep.file.objective.metric.name())),
        TableFormat::Csv => printer.out(csv(&rows)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The longest curve: a whole trial.
fn whole(curves: &[Curve]) -> u64 {
    curves.iter().filter_map(|curve| curve.last_key_value()).map(|(last, _)| *last).max().unwrap_or(1)
}

/// The length of a whole trial in the unit of the sweep file, where it or the job file says that.
fn units(sweep: &Sweep, path: &Path) -> Option<u64> {
    let resources = sweep.file.scheduler.resources()?;
    let of_job = || {
        let job = path.parent().unwrap_or(Path::new("")).join(&sweep.file.job);
        let job = parse::job(&std::fs::read_to_string(job).ok()?, "job", &[]).ok()?;
        match resources.unit {
            Unit::Epochs => job.epochs,
            Unit::Steps => job.steps,
        }
    };
    resources.maximum.or_else(of_job)
}

/// The sweep's own lengths, or a first rung of a 27th, under all trial schedulers. Curves may count in another unit
/// than the sweep: a whole trial is a whole trial in both.
fn schedulers(sweep: &Sweep, curves: &[Curve], units: Option<u64>) -> [TrialScheduler; 4] {
    let first = curves.iter().filter_map(|curve| curve.first_key_value()).map(|(first, _)| *first).min();
    let minimum = (whole(curves) / 27).max(first.unwrap_or(1)).max(1);
    let usual = Resources { reduction: 3, minimum, maximum: None, unit: Unit::default() };
    let resources = sweep.file.scheduler.resources().map_or(usual, |own| {
        let scaled = units.map(|units| own.minimum.saturating_mul(whole(curves)) / units.max(1));
        Resources { minimum: scaled.unwrap_or(own.minimum).max(1), ..*own }
    });
    [
        TrialScheduler::None,
        TrialScheduler::Asha(resources),
        TrialScheduler::Hyperband(resources),
        TrialScheduler::Median(resources),
    ]
}

fn plan(sweep: &Sweep, scheduler: TrialScheduler, curves: &[Curve], workers: u32) -> Plan {
    let ladder = scheduler.resources().map(|resources| Ladder {
        minimum: resources.minimum.min(whole(curves)),
        maximum: whole(curves),
        reduction: resources.reduction,
    });
    Plan {
        space: sweep.space.clone(),
        sampler: sweep.file.sampler,
        scheduler,
        ladder,
        metric: sweep.file.objective.metric,
        trials: sweep.file.budget.trials.or(Some(curves.len() as u64)),
        concurrent: sweep.file.concurrent.unwrap_or(workers),
    }
}

fn rehearse(
    sweep: &Sweep,
    plan: Plan,
    curves: &[Curve],
    workers: u32,
    unit_s: f64,
    arguments: &SimulateArguments,
) -> Result<Rehearsed, Failure> {
    // Every curve has a figure at each rung: that of the last evaluation before it.
    let rungs = plan.ladder.map_or_else(Vec::new, |ladder| ladder.rungs(0));
    let curves: Vec<Curve> = curves
        .iter()
        .map(|curve| {
            let mut curve = curve.clone();
            for rung in &rungs {
                let before = curve.range(..=rung).next_back().or_else(|| curve.iter().next());
                if let Some(figure) = before.map(|(_, figure)| *figure) {
                    curve.entry(*rung).or_insert(figure);
                }
            }
            curve
        })
        .collect();
    let budget = &sweep.file.budget;
    let money_s = budget.money.zip(budget.price).map(|(money, price)| 3600.0 * money.get() / price.get());
    let hours_s = budget.worker_hours.map(|hours| 3600.0 * hours);
    let stage = Stage {
        curves: &curves,
        workers,
        most_workers: workers,
        unit_s: &|workers| unit_s / f64::from(workers),
        change_s: arguments.restart.map_or(0.0, |restart| restart.get()),
        limits: (
            [money_s, hours_s].into_iter().flatten().min_by(f64::total_cmp),
            budget.time.map(|time| time.get()),
        ),
    };
    rehearsal::rehearse(plan, &stage).map_err(Failure::Broken)
}

/// Curves from a CSV file, or from the ledger of a sweep.
fn curves(path: &Path) -> Result<Known, Failure> {
    let place = path.display().to_string();
    let of_sweep = path.extension().is_some_and(|extension| extension == "jsonl");
    let known = if of_sweep { of_ledger(path, &place)? } else { of_csv(path, &place)? };
    if known.curves.is_empty() {
        let error = InputError::new(place, "no trial in it was trained to its end");
        return Err(error.hint("use the curves of a sweep with the scheduler `none`").into());
    }
    Ok(known)
}

fn of_ledger(path: &Path, place: &str) -> Result<Known, Failure> {
    let lines = ledger::read(path).map_err(|error| Failure::at(place, error))?;
    let lines = lines.ok_or_else(|| Failure::at(place, "there is no ledger of a sweep"))?;
    let state = State::fold(&lines).map_err(|why| Failure::at(place, why))?;
    let reported: Vec<Curve> = state.search.trials.iter().map(|trial| trial.reports.clone()).collect();
    let worker_s: f64 = state.jobs.values().filter_map(|job| job.end.as_ref()).map(|end| end.worker_s).sum();
    let units = state.units();
    let unit_s = (units > 0).then(|| worker_s / units as f64);
    Ok(complete(reported, unit_s))
}

fn of_csv(path: &Path, place: &str) -> Result<Known, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::at(place, error))?;
    let mut curves: BTreeMap<u64, Curve> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let row = match cells[..] {
            [trial, length, value] => {
                trial.parse::<u64>().ok().zip(length.parse::<u64>().ok()).zip(value.parse::<f64>().ok())
            }
            _ => None,
        };
        match row {
            Some(((trial, length), value)) if length > 0 => {
                curves.entry(trial).or_default().insert(length, value);
            }
            // The first line may name the columns.
            _ if number == 0 || line.trim().is_empty() => {}
            _ => {
                let error = InputError::new(
                    format!("{place}, line {}", number + 1),
                    format!("{line:?} is not a row"),
                );
                return Err(error.hint("write trial,length,value: two whole numbers and a figure").into());
            }
        }
    }
    Ok(complete(curves.into_values().collect(), None))
}

/// The curves that reach the end of a whole trial.
fn complete(curves: Vec<Curve>, unit_s: Option<f64>) -> Known {
    let (all, end) = (curves.len(), whole(&curves));
    let curves: Vec<Curve> = curves.into_iter().filter(|curve| curve.contains_key(&end)).collect();
    Known { left_out: all - curves.len(), curves, unit_s }
}

fn table(rows: &[Row], metric: &str) -> String {
    let best = format!("best {metric}");
    let head = ["scheduler", "workers", "trials", "finished", "time", "worker time", &best, "after"];
    let mut all = vec![head.map(str::to_owned).to_vec()];
    all.extend(rows.iter().map(|Row { scheduler, workers, result }| {
        vec![
            (*scheduler).to_owned(),
            workers.to_string(),
            result.trials.to_string(),
            result.finished.to_string(),
            written(result.seconds),
            written(result.worker_s),
            result.best.map_or("–".into(), |best| format!("{best:.4}")),
            result.best_at_s.map_or("–".into(), written),
        ]
    }));
    aligned(&all)
}

fn csv(rows: &[Row]) -> String {
    use bellwether_render::csv::{Csv, cell};
    let head = ["scheduler", "workers", "trials", "finished", "seconds", "worker_s", "best", "best_at_s"];
    let mut csv = Csv::new(head);
    for Row { scheduler, workers, result } in rows {
        let Rehearsed { trials, finished, seconds, worker_s, best, best_at_s, .. } = result;
        csv.row(&[scheduler, workers, trials, finished, seconds, worker_s, &cell(*best), &cell(*best_at_s)]);
    }
    csv.text()
}
