//! The number of workers that a run begins with, where the job leaves a range: measured, predicted and chosen
//! before it begins.

use bellwether_core::job::{CheckedJob, Job, Model, WorkerRange};
use bellwether_core::prediction::Link;
use bellwether_core::record::{Decision, Event, Planned};
use bellwether_core::units::DollarsPerHour;
use bellwether_model::predict::ProfileModel;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_sched::plan::local;

use crate::error::RunError;
use crate::profile::{How, synchronous};
use crate::{Observe, Spawn, WorkloadBuilder};

/// Steps that are measured with one worker and with two: enough to choose by, and soon done.
const STEPS: u64 = 10;

/// Chooses how many of `workers` shall begin; a price of each is reported.
///
/// # Errors
///
/// Returns an error if the job cannot be measured, or if no number of workers can be predicted.
pub(crate) fn choose(
    job: &CheckedJob,
    (description, workload): (&WorkloadDescription, &WorkloadBuilder),
    spawn: &Spawn,
    workers: WorkerRange,
    price: Option<DollarsPerHour>,
    observe: &mut Observe<'_>,
) -> Result<Planned, RunError> {
    let how = How::new(STEPS, spawn.plain());
    let profile = synchronous::measure(job, (description, workload), &how, observe)?;
    let model = ProfileModel::new(profile)?;
    // Workers of one machine talk over its memory, whose rate was measured where there are two.
    let link = model.profile().network.map(Link::from);
    let link = link.unwrap_or(Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 });
    let sensible = sensible(job, workers);
    let chosen = local(&model, &model.job(), |count| model.configuration(count, link), sensible, price)?;
    let mut reason = chosen.to_string();
    if sensible != workers {
        reason.push_str("; more workers would only share this machine's processors");
    }
    let prediction = &chosen.prediction;
    Ok(Planned {
        workers: chosen.workers,
        examples_per_s: prediction.examples_per_s,
        low: prediction.low,
        high: prediction.high,
        reason,
    })
}

/// The part of the range that has a processor for each worker. Devices that sleep need none.
fn sensible(job: &Job, workers: WorkerRange) -> WorkerRange {
    if matches!(job.model, Model::Synthetic { .. }) {
        return workers;
    }
    let processors = std::thread::available_parallelism().map_or(u32::MAX, |count| count.get() as u32);
    WorkerRange { min: workers.min, max: workers.max.min(processors.max(workers.min)) }
}

/// Writes the choice to the journal when the run begins.
pub(crate) struct InitialSize(Option<Planned>);

impl InitialSize {
    /// The writer of this choice.
    pub(crate) fn director(planned: &Planned) -> Box<dyn Director> {
        Box::new(InitialSize(Some(planned.clone())))
    }
}

impl Director for InitialSize {
    fn direct(&mut self, _: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let Some(Planned { workers, reason, .. }) = self.0.take() else { return Vec::new() };
        let (by, step) = ("plan".to_string(), now.step);
        vec![DirectorCommand::Note(Event::Decided(Decision {
            by,
            step,
            workers: 0,
            target: workers,
            reason,
        }))]
    }
}
