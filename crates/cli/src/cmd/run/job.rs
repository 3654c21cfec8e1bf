//! The job of a run: its file, with what the command line and a plan say beside it.

use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Job, Mode};
use bellwether_core::plan::Plan;
use bellwether_session::apply_plan;

use super::args::RunArguments;
use crate::failure::Failure;
use crate::job;

/// Reads the job, and sets anew what was asked for.
pub(super) fn read(path: &Path, arguments: &RunArguments, plan: Option<&Plan>) -> Result<Job, Failure> {
    let mut overrides = arguments.set.clone();
    if let Some(range) = arguments.workers {
        overrides.push(("workers".into(), format!("\"{range}\"")));
    }
    let mut job = job::read(path, &overrides).map_err(|failure| match (arguments.workers, failure) {
        (Some(_), Failure::Input(error)) if error.place.ends_with(": workers") => {
            InputError { place: "--workers".into(), ..error }.into()
        }
        (_, failure) => failure,
    })?;
    fix_batch(&mut job, &arguments.batch_schedule)?;
    plan.map_or(Ok(()), |plan| apply_plan(plan, &mut job, arguments.workers))?;
    if let Some(steps) = arguments.steps {
        (job.steps, job.epochs) = (Some(steps), None);
        job.check().map_err(|error| InputError { place: format!("--{}", error.place), ..error })?;
    }
    Ok(job)
}

/// Fixes the batch from given steps on; empty leaves the job as it is.
///
/// # Errors
///
/// A job whose batch may not move, or not so.
fn fix_batch(job: &mut Job, schedule: &[(u64, u32)]) -> Result<(), InputError> {
    if schedule.is_empty() {
        return Ok(());
    }
    let Mode::Goodput(goodput) = &mut job.mode else {
        let hint = "a batch may only move in mode `goodput`: write max_batch under [mode.goodput] in the job file, or \
                    --set mode.goodput.max_batch=N";
        return Err(InputError::new(
            "--batch-schedule",
            "the job's mode is `exact`: its batch never changes",
        )
        .hint(hint));
    };
    goodput.schedule = schedule.to_vec();
    job.check().map_err(|error| InputError { place: format!("--batch-schedule: {}", error.place), ..error })
}

/// Reads a plan.
pub(super) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the plan cannot be read: {e}"))
            .hint("`bellwether plan PROFILE.json --catalog PRICES.toml --format json` makes one")
    })?;
    Ok(Plan::read(&text, &place)?)
}
