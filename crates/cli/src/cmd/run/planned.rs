//! A run as a plan says: so many workers, kept together in this way.

use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::plan::{Plan, Synchronisation, TransmissionOrder};
use bellwether_runtime::membership::TraineeDescription;

use crate::failure::Failure;

/// Reads a plan.
pub(super) fn read(path: &Path) -> Result<Plan, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the plan cannot be read: {e}"))
            .hint("`bellwether plan PROFILE.json --catalog PRICES.toml --format json` makes one")
    })?;
    Ok(Plan::read(&text, &place)?)
}

/// Lets the job be trained as the plan says; what its own file says of that is overruled, but for a number of workers that
/// was asked for.
pub(super) fn apply(plan: &Plan, job: &mut Job, asked: Option<WorkerRange>) -> Result<(), Failure> {
    let Some(chosen) = plan.chosen() else {
        let what = "nothing fits the wishes of this plan, so it chose no machines";
        return Err(InputError::new("--plan", what).hint("make another with other wishes").into());
    };
    if asked.is_none() {
        job.workers = WorkerRange { min: chosen.workers, max: chosen.workers };
    }
    if let Some(way) = &chosen.way {
        job.sync.policy = way.policy.clone();
        job.sync.servers = way.servers.max(1);
    }
    job.check().map_err(|error| InputError { place: format!("--plan: {}", error.place), ..error })?;
    Ok(())
}

/// The order in which parts travel as the plan worked it out, for a job of its layout.
pub(super) fn order(
    plan: &Plan,
    trainee: &TraineeDescription,
    synchronisation: &mut Synchronisation,
) -> Result<(), InputError> {
    let Some(Synchronisation { order, .. }) = &plan.synchronisation else { return Ok(()) };
    let (tensors, states) = (trainee.layout.parameters.len(), trainee.layout.state.len());
    if let TransmissionOrder::Priority(levels) = order
        && levels.len() != tensors
        && levels.len() != tensors + states
    {
        let what = format!("the plan orders {} parts, and the job has {tensors} tensors", levels.len());
        return Err(InputError::new("--plan", what).hint("make the plan from a profile of this job"));
    }
    synchronisation.order = order.clone();
    Ok(())
}
