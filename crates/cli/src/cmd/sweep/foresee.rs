//! What a sweep would come to, before it begins.

use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::sweep::{Sweep, Unit};
use bellwether_core::units::Dollars;
use bellwether_render::duration::{precise, written};
use bellwether_render::table::facts;
use bellwether_sched::search::Plan;
use bellwether_sched::search::rehearsal::{self, Rehearsed, Stage};
use bellwether_serve::sweep::{Embedded, Laid, Measured, Predicted, Room, measure};

use crate::failure::Failure;
use crate::files;
use crate::options::Format;
use crate::printer::Printer;
use crate::session::program;

/// The prediction in the folder of a sweep.
const PREDICTED: &str = "predicted.json";

/// Searches that are rehearsed, each with other learning curves.
const REHEARSALS: u64 = 20;

/// What was predicted for the sweep in this folder, if it was.
pub(super) fn before(folder: &Path) -> Option<Predicted> {
    serde_json::from_slice(&fs::read(folder.join(PREDICTED)).ok()?).ok()
}

/// Measures one trial on each slot, and says what the sweep would come to.
pub(super) fn dry_run(
    sweep: &Sweep,
    plan: &Plan,
    laid: &Laid,
    (slots, folder): (u32, &Path),
    format: Format,
    printer: &Printer,
) -> Result<Predicted, Failure> {
    let at = |error: std::io::Error| Failure::at(folder.display().to_string(), error);
    fs::create_dir_all(folder).map_err(at)?;
    let scratch = folder.join(format!("measured-{}", std::process::id()));
    let copies =
        slots.min(plan.concurrent).min(plan.trials.map_or(u32::MAX, |most| most.min(1 << 20) as u32)).max(1);
    printer.note(format_args!("measuring {copies} trials at once, with one worker each"));
    let measured = {
        fs::create_dir_all(&scratch).map_err(at)?;
        let room = Room { folder: scratch.clone(), slots, program: program()?, tell: Box::new(|_| {}) };
        let mut engine = Embedded::open(room)?;
        measure(&mut engine, laid, copies)
    };
    let _ = fs::remove_dir_all(&scratch);
    let measured = measured?;
    let rehearsed = rehearse(sweep, plan, laid, slots, measured)?;
    let mean = |of: fn(&Rehearsed) -> f64| rehearsed.iter().map(of).sum::<f64>() / rehearsed.len() as f64;
    let predicted = Predicted { seconds: mean(|one| one.seconds), worker_s: mean(|one| one.worker_s) };
    let text = bellwether_render::json(&predicted);
    files::write_whole(&folder.join(PREDICTED), text.as_bytes())?;
    let trials = mean(|one| one.trials as f64);
    let dollars = sweep.file.budget.price.map(|price| price.get() * predicted.worker_s / 3600.0);
    match format {
        Format::Json => printer.out(serde_json::json!({
            "trials": trials, "seconds": predicted.seconds, "worker_s": predicted.worker_s,
            "cost_dollars": dollars, "step_s": measured.step_s, "change_s": measured.change_s,
        })),
        Format::Table => {
            let mut rows = vec![
                ("trials", format!("{trials:.0}, {copies} at a time on {slots} slots")),
                ("a step", precise(measured.step_s)),
                ("start and stop", written(measured.change_s)),
                ("time", written(predicted.seconds)),
                ("worker time", written(predicted.worker_s)),
            ];
            rows.extend(dollars.map(|dollars| ("cost", Dollars::new(dollars).to_string())));
            printer.out(facts(&rows));
            printer.note("what the trials will be worth is not known: they are taken to differ by chance");
        }
    }
    Ok(predicted)
}

/// The search on learning curves that differ by chance.
fn rehearse(
    sweep: &Sweep,
    plan: &Plan,
    laid: &Laid,
    slots: u32,
    measured: Measured,
) -> Result<Vec<Rehearsed>, Failure> {
    let epoch = laid.task.training_samples.div_ceil(laid.job.batch.size.max(1)).max(1);
    let total = laid.job.total_steps(laid.task.training_samples).max(1);
    let unit = sweep.file.scheduler.resources().map_or(Unit::Steps, |resources| resources.unit);
    let steps = if unit == Unit::Epochs { epoch } else { 1 };
    let lengths: Vec<u64> = match plan.ladder {
        Some(ladder) => ladder.rungs(0),
        None => vec![total],
    };
    let budget = &sweep.file.budget;
    let money_s = budget.money.zip(budget.price).map(|(money, price)| 3600.0 * money.get() / price.get());
    let hours_s = budget.worker_hours.map(|hours| 3600.0 * hours);
    let worker_s = [money_s, hours_s].into_iter().flatten().min_by(f64::total_cmp);
    let unit_s = |workers: u32| measured.step_s * steps as f64 / f64::from(workers);
    let rehearse = |number: u64| {
        let curves = rehearsal::by_chance(number, 257, &lengths);
        let stage = Stage {
            curves: &curves,
            workers: slots,
            most_workers: laid.job.workers.max.min(laid.job.batch.virtual_nodes).max(1),
            unit_s: &unit_s,
            change_s: measured.change_s,
            limits: (worker_s, budget.time.map(|time| time.get())),
        };
        rehearsal::rehearse(plan.clone(), &stage).map_err(Failure::Broken)
    };
    if plan.trials.is_none() && worker_s.is_none() && budget.time.is_none() && measured.step_s <= 0.0 {
        return Err(InputError::new("sweep", "a step takes no time that could be measured").into());
    }
    (0..REHEARSALS).map(rehearse).collect()
}
