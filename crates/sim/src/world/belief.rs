//! What a policy is told of the work that remains.

use bellwether_core::cluster::{Job, JobId, JobView};
use bellwether_core::knowledge::Knowledge;
use bellwether_des::Streams;

use super::Scenario;

/// What is said of a job that has just arrived.
pub(super) fn of_new(
    scenario: &Scenario,
    job: &Job,
    (work, nominal): (f64, f64),
    streams: &Streams,
    id: JobId,
) -> Option<f64> {
    match scenario.knowledge {
        Knowledge::Exact => Some(work),
        Knowledge::Nominal => Some(nominal),
        Knowledge::Expected => Some(nominal * mean_rest(scenario, job, 0.0).unwrap_or(1.0)),
        Knowledge::Estimated(deviation) => {
            let mut stream = streams.stream("estimate of work", u64::from(id.0));
            Some(work * libm::exp(stream.normal(0.0, deviation)))
        }
        Knowledge::Unknown => None,
    }
}

/// Updates what remains where that is known better after some progress.
pub(super) fn renew(seen: &mut JobView, (work, nominal): (f64, f64), scenario: &Scenario) {
    match scenario.knowledge {
        // Free of the rounding that subtraction piles up.
        Knowledge::Exact => seen.remaining = Some((work - seen.done).max(0.0)),
        Knowledge::Expected => {
            let rest = mean_rest(scenario, &seen.job, seen.done / nominal.max(f64::MIN_POSITIVE));
            seen.remaining = rest.map(|rest| nominal * rest).or(seen.remaining);
        }
        _ => {}
    }
}

/// The mean part that remains of a job that has done the part `done`; `None` where no law says that it may end early.
fn mean_rest(scenario: &Scenario, job: &Job, done: f64) -> Option<f64> {
    let law = || scenario.early_termination.map(|law| law.mean_rest(done));
    match scenario.early_ends.get(&job.description.model) {
        Some(ends) if job.deadline_s.is_none() => Some(ends.mean_rest(done)),
        _ => law(),
    }
}
