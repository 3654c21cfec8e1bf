//! The recorded jobs on the simulated machine.

use std::sync::Arc;

use bellwether_core::cluster::{Job, JobId};
use bellwether_core::policy::{Decision, Policy, PolicyInput};
use bellwether_sched::registry::Registry;
use bellwether_serve::ledger::Outcome;
use bellwether_serve::replay::{Given, Recorded, given};
use bellwether_serve::state::Record;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::Scenario;

use super::ReplayError;
use crate::simulate::simulate;

/// What the simulator makes of the recorded jobs.
pub struct Simulated {
    /// Seconds without progress at a job's first start, as measured in the mean.
    pub start_s: f64,
    /// The same when it goes on after a stop or a change.
    pub restart_s: f64,
    /// The jobs that did work.
    pub jobs: Vec<JobTimes>,
    /// Numbers of devices, in the order in which they were decided.
    pub given: Vec<Given>,
}

/// A job's completion times, on the daemon's clock.
pub struct JobTimes {
    /// The job.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub submitted_s: f64,
    /// How it ended, if it did.
    pub outcome: Option<Outcome>,
    /// From submission to end, if all its work was done.
    pub measured_s: Option<f64>,
    /// The same in the simulation.
    pub simulated_s: Option<f64>,
}

impl JobTimes {
    /// Simulated over measured, less 1.
    pub fn gap(&self) -> Option<f64> {
        Some(self.simulated_s? / self.measured_s? - 1.0)
    }
}

pub(super) fn run(
    recorded: &Recorded,
    registry: &Registry,
    name: &str,
    restart_s: Option<f64>,
) -> Result<Simulated, ReplayError> {
    let state = &recorded.state;
    let (_, mut policy) = registry.parse(name).map_err(ReplayError::Policy)?;
    let restarts_s = recorded.restarts_s();
    let restart_s = restart_s.unwrap_or_else(|| mean(&restarts_s).unwrap_or(state.machine.restart_s));
    let start_s = mean(&recorded.starts_s).unwrap_or(0.0);
    let mut scenario = Scenario::new(state.machine.view());
    scenario.cluster.restart_s = restart_s;
    scenario.start_s = start_s;
    let known = recorded.arrivals.iter().filter_map(|(id, time_s, job)| {
        let record = state.jobs.get(id)?;
        Some((*id, entry(record, *time_s, job)?))
    });
    let (ids, entries): (Vec<JobId>, Vec<Entry>) = known.unzip();
    let mut diary = Diary { policy: policy.as_mut(), ids: &ids, given: Vec::new() };
    let (truth, belief) = (&state.belief, &state.belief);
    let recording = simulate(&mut diary, &entries, truth, belief, &scenario)
        .map_err(|fault| ReplayError::Simulation { policy: name.to_owned(), fault })?;
    let given = diary.given;
    let times = |(id, end_s): (&JobId, Option<f64>)| {
        let record = state.jobs.get(id)?;
        let end = record.end.as_ref();
        let finished = end.filter(|end| end.outcome == Outcome::Finished);
        Some(JobTimes {
            job: *id,
            name: record.submitted.name.clone(),
            submitted_s: record.submitted_s,
            outcome: end.map(|end| end.outcome),
            measured_s: finished.map(|end| end.time_s - record.submitted_s),
            simulated_s: end_s.map(|end_s| end_s - record.submitted_s),
        })
    };
    let ends_s = recording.jobs.iter().map(|job| job.end_s);
    let jobs = ids.iter().zip(ends_s).filter_map(times).collect();
    Ok(Simulated { start_s, restart_s, jobs, given })
}

/// A job that ended before its work was done had as much work as it did; `None` where that is nothing.
fn entry(record: &Record, time_s: f64, job: &Arc<Job>) -> Option<Entry> {
    let batch = record.submitted.job.batch.size as f64;
    let work = match &record.end {
        Some(end) if matches!(end.outcome, Outcome::Cancelled | Outcome::Failed) => end.step as f64 * batch,
        _ => record.work(),
    };
    let mut job = job.clone();
    Arc::make_mut(&mut job).arrival_s = time_s;
    (work > 0.0).then_some(Entry { job, work, is_duration: false, row: record.submitted.id.0 as usize + 1 })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Writes down who is given how many devices.
struct Diary<'a> {
    policy: &'a mut dyn Policy,
    ids: &'a [JobId],
    given: Vec<Given>,
}

impl Policy for Diary<'_> {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, .. } = *input;
        let decision = self.policy.decide(input);
        for (job, allocation) in given(&decision, view) {
            let (devices, before) = (allocation.devices(), view.jobs.get(&job));
            if before.is_none_or(|seen| seen.allocation.devices() != devices) {
                self.given.push(Given { job: self.ids[job.0 as usize], devices });
            }
        }
        decision
    }
}
