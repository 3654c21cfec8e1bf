//! The job of a run: its file, with what the command line and a plan say beside it.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Feature, Mode};
use bellwether_core::plan::Plan;
use bellwether_session::apply_plan;

use super::args::RunArguments;
use crate::failure::Failure;
use crate::job::{self, Opened, Purpose};

/// Opens the job, with the values that the command line gives instead of the file's.
pub(super) fn read(arguments: &RunArguments, plan: Option<&Plan>) -> Result<Opened, Failure> {
    let mut overrides = arguments.set.clone();
    if let Some(range) = arguments.workers {
        overrides.push(("workers".into(), format!("\"{range}\"")));
    }
    let purpose = if arguments.dry_run { Purpose::Declare } else { Purpose::Lead(arguments.output()) };
    let opened = match (&arguments.job, arguments.led_by) {
        (_, Some(pipes)) => job::led_by(pipes, &overrides),
        (Some(path), None) => job::open(path, &arguments.script, &overrides, purpose),
        (None, None) => Err(Failure::at("run", "no job file is named")),
    };
    let Opened { mut job, trained, lead } = opened.map_err(|failure| match (arguments.workers, failure) {
        (Some(_), Failure::Input(error)) if error.place.ends_with(": workers") => {
            InputError { place: "--workers".into(), ..error }.into()
        }
        (_, failure) => failure,
    })?;
    if !arguments.batch_schedule.is_empty() {
        job = fix_batch(job, &arguments.batch_schedule)?;
    }
    if let Some(plan) = plan {
        job = apply_plan(plan, job, arguments.workers)?;
    }
    if let Some(steps) = arguments.steps {
        let longer = job.edit(|job| (job.steps, job.epochs) = (Some(steps), None));
        job = longer.map_err(|error| InputError { place: format!("--{}", error.place), ..error })?;
    }
    Ok(Opened { job, trained, lead })
}

/// Fixes the batch from given steps on.
///
/// # Errors
///
/// A job whose batch may not move, or not so.
fn fix_batch(job: CheckedJob, schedule: &[(u64, u32)]) -> Result<CheckedJob, InputError> {
    Feature::MovingBatch.check(&job).map_err(|e| InputError { place: "--batch-schedule".into(), ..e })?;
    let fixed = job.edit(|job| {
        if let Mode::Goodput(goodput) = &mut job.mode {
            goodput.schedule = schedule.to_vec();
        }
    });
    fixed.map_err(|error| InputError { place: format!("--batch-schedule: {}", error.place), ..error })
}
