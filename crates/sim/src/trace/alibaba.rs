//! Alibaba's PAI of 2020: a job is several tasks, each a row of `pai_task_table`.

use super::RowError;
use super::job_builder::{Gathered, JobBuilder};

/// A task of a job: a number of instances, each with a percentage of a device.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) draft: JobBuilder,
    pub(super) instances: f64,
    pub(super) percent: f64,
    /// Why its row cannot be read; then the whole job cannot be had.
    pub(super) fault: Option<RowError>,
}

/// Puts the tasks of each job together: it starts with its first task and ends with its last, and holds the devices of
/// all of them. The table does not say when a job was submitted, so it arrives when its first task starts.
pub(super) fn join(mut tasks: Vec<Task>, found: &mut Gathered) {
    tasks.sort_by(|a, b| a.draft.name.cmp(&b.draft.name).then(a.draft.row.cmp(&b.draft.row)));
    let mut tasks = tasks.into_iter().peekable();
    let mut jobs = Vec::new();
    while let Some(Task { draft: mut job, instances, percent, mut fault }) = tasks.next() {
        let mut devices = instances * percent / 100.0;
        let mut ended = job.ended_s.is_some();
        while let Some(task) = tasks.next_if(|task| task.draft.name == job.name) {
            fault = fault.or(task.fault);
            devices += task.instances * task.percent / 100.0;
            ended &= task.draft.ended_s.is_some();
            job.started_s = chosen(job.started_s, task.draft.started_s, f64::min);
            job.ended_s = chosen(job.ended_s, task.draft.ended_s, f64::max);
        }
        if let Some(why) = fault {
            found.refuse(job.row, &job.name, why);
            continue;
        }
        job.ended_s = job.ended_s.filter(|_| ended);
        job.arrival_s = job.started_s;
        job.share = Some(devices);
        jobs.push(job);
    }
    // Back in the order of rows.
    jobs.sort_unstable_by_key(|job| job.row);
    jobs.into_iter().for_each(|job| found.take(job));
}

/// Of two times that may be absent the one that `choose` takes.
fn chosen(one: Option<f64>, other: Option<f64>, choose: impl Fn(f64, f64) -> f64) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(choose(one, other)),
        _ => one.or(other),
    }
}
