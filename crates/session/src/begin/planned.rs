//! A run as a plan says: its number of workers and its sync strategy.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_core::plan::{Plan, Synchronisation, TransmissionOrder};
use bellwether_runtime::membership::WorkloadDescription;

use crate::error::RunError;
use crate::kind;

/// Lets the job be trained as the plan says; what its own file says of that is overruled, but for a number of
/// workers that was asked for.
///
/// # Errors
///
/// Returns an error for a plan that chose nothing, or for another job.
pub fn apply(plan: &Plan, job: CheckedJob, asked: Option<WorkerRange>) -> Result<CheckedJob, RunError> {
    let Some(chosen) = plan.chosen() else {
        let what = "nothing fits the wishes of this plan, so it chose no machines";
        return Err(RunError::Option(InputError::new("plan", what).hint("make another with other wishes")));
    };
    if let Some(computation) = &plan.computation {
        kind::check_plan(computation, &plan.job, &job).map_err(RunError::Option)?;
    }
    let planned = job.edit(|job| {
        if asked.is_none() {
            job.workers = WorkerRange { min: chosen.workers, max: chosen.workers };
        }
        if let Some(way) = &chosen.way {
            job.sync.policy = way.policy.clone();
            job.sync.servers = way.servers.max(1);
        }
    });
    let place = |error: InputError| InputError { place: format!("plan: {}", error.place), ..error };
    planned.map_err(|error| RunError::Option(place(error)))
}

/// The order in which parts travel as the plan worked it out, for a job of its layout.
pub(crate) fn order(
    plan: &Plan,
    description: &WorkloadDescription,
    synchronisation: &mut Synchronisation,
) -> Result<(), RunError> {
    let Some(Synchronisation { order, .. }) = &plan.synchronisation else { return Ok(()) };
    let (tensors, states) = (description.layout.parameters.len(), description.layout.state.len());
    if let TransmissionOrder::Priority(levels) = order
        && levels.len() != tensors
        && levels.len() != tensors + states
    {
        let what = format!("the plan orders {} parts, and the job has {tensors} tensors", levels.len());
        let error = InputError::new("plan", what).hint("make the plan from a profile of this job");
        return Err(RunError::Option(error));
    }
    synchronisation.order = order.clone();
    Ok(())
}
