//! The report of a simulated policy: the figures that schedulers are compared by.
//!
//! | figure                | meaning                                                                                   |
//! |-----------------------|-------------------------------------------------------------------------------------------|
//! | completion time       | from a job's arrival to its end (JCT), of jobs that ended                                  |
//! | slowdown              | completion time over the time alone on the devices asked for                             |
//! | queueing              | completion time without the time for which it held devices                               |
//! | makespan              | from the first arrival to the last end                                                   |
//! | utilisation           | device-seconds held over device-seconds that nodes offered, from the first arrival to the last end |
//! | rho                   | completion time over the time alone on its share of the cluster (Themis): the work at its asked devices, times the share that these exceed, `max(1, asked m / devices)`, with m the mean number of jobs while it was there |
//!
//! The median is element ⌊(n−1)/2⌋ of the ascending list, counted from 0; the p-th percentile is element ⌊n p/100⌋,
//! counted from 1.

use serde::Serialize;

use bellwether_core::cluster::JobId;

use crate::trace::Entry;
use crate::world::{JobRecord, Recording, SoFar};

/// An end that was planned to fall on a deadline may be late by the rounding of its times.
const ROUNDING_S: f64 = 1e-5;
/// A job that takes less alone has no work: slowdown and rho are not defined for it.
const SHORTEST_S: f64 = 1e-9;

/// The figures of one policy on one trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Jobs of the trace that a policy was given.
    pub jobs: f64,
    /// Jobs that ended.
    pub finished: f64,
    /// Jobs that never ended.
    pub unfinished: f64,
    /// Jobs that could never run, or that the policy refused.
    pub refused: f64,
    /// Mean completion time, in seconds.
    pub avg_jct_s: f64,
    /// Median completion time, in seconds.
    pub median_jct_s: f64,
    /// 95th percentile of completion time, in seconds.
    pub p95_jct_s: f64,
    /// 99th percentile of completion time, in seconds.
    pub p99_jct_s: f64,
    /// Mean of completion time over the time alone on the devices that were asked for.
    pub avg_slowdown: f64,
    /// From the first arrival to the last end, in seconds.
    pub makespan_s: f64,
    /// Mean time without devices, in seconds.
    pub avg_queueing_s: f64,
    /// Part of the offered device-seconds that jobs held.
    pub utilisation: f64,
    /// Device-hours that jobs held.
    pub device_hours: f64,
    /// Times that a job lost all its devices before its end.
    pub preemptions: f64,
    /// Times that a job went on after a stop or with other devices.
    pub restarts: f64,
    /// Those per job that was not refused.
    pub restarts_per_job: f64,
    /// Largest rho.
    pub max_rho: f64,
    /// 95th percentile of rho.
    pub p95_rho: f64,
    /// Part of the jobs with a rho above 1.
    pub unfair: f64,
    /// Jobs with a deadline.
    pub deadlines: f64,
    /// Jobs that ended by their deadline.
    pub deadlines_met: f64,
}

/// The element at the p-th percentile of an ascending list; 0 of none.
///
/// ```
/// let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
/// assert_eq!(bellwether_sim::report::percentile(&sorted, 99.0), 198.0);
/// assert_eq!(bellwether_sim::report::percentile(&[3.0], 99.0), 3.0);
/// ```
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let place = (sorted.len() as f64 * p / 100.0).floor() as usize;
    sorted.get(place.max(1) - 1).copied().unwrap_or(0.0)
}

/// The times of one job: all of them where it has ended, else what they have come to so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobTimes {
    /// Since its arrival, in seconds.
    pub completion_s: f64,
    /// Those of them in which it held no devices.
    pub wait_s: f64,
    /// What its work takes alone on the devices that it asked for, in seconds; 0 where it has not come.
    pub alone_s: f64,
    /// Whether it has ended.
    pub has_ended: bool,
    /// Whether it never runs.
    pub is_refused: bool,
}

impl JobTimes {
    /// Completion time over the time alone on the devices that were asked for; `None` of a job without work.
    pub fn slowdown(&self) -> Option<f64> {
        (self.alone_s > SHORTEST_S).then(|| self.completion_s / self.alone_s)
    }

    /// Whether it is later than a deadline: it ended after it, or has not ended and the deadline is over.
    pub fn misses(&self, arrival_s: f64, deadline_s: f64) -> bool {
        arrival_s + self.completion_s > deadline_s + ROUNDING_S
    }
}

impl SoFar<'_> {
    /// The times of all jobs, in the order of the trace.
    pub fn times(&self) -> Vec<JobTimes> {
        let of = |(number, (entry, record)): (usize, (&Entry, &JobRecord))| {
            let begun = JobTimes { alone_s: record.alone_s, ..JobTimes::default() };
            let since_s = |end_s: f64| end_s - entry.job.arrival_s;
            match (record.end_s, self.jobs.get(&JobId(number as u32))) {
                _ if record.refused.is_some() => JobTimes { is_refused: true, ..begun },
                (Some(end_s), _) => {
                    let completion_s = since_s(end_s);
                    let wait_s = (completion_s - record.executed_s).max(0.0);
                    JobTimes { completion_s, wait_s, has_ended: true, ..begun }
                }
                (None, Some(seen)) => {
                    let completion_s = since_s(self.now_s);
                    let wait_s = (completion_s - seen.executed_s(self.now_s)).max(0.0);
                    JobTimes { completion_s, wait_s, ..begun }
                }
                (None, None) => begun,
            }
        };
        self.entries.iter().zip(&self.recording.jobs).enumerate().map(of).collect()
    }
}

/// The figures of a recording of `entries` on `devices` devices.
pub fn report(entries: &[Entry], recording: &Recording, devices: u32) -> Report {
    let jobs = &recording.jobs;
    let ended: Vec<(&Entry, &JobRecord, f64)> = entries
        .iter()
        .zip(jobs)
        .filter_map(|(entry, record)| Some((entry, record, record.end_s? - entry.job.arrival_s)))
        .collect();
    let sorted = |of: &dyn Fn(&(&Entry, &JobRecord, f64)) -> f64| {
        let mut values: Vec<f64> = ended.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let times = sorted(&|(_, _, jct_s)| *jct_s);
    // A job without work needs no time alone, and nothing can be compared with that.
    let relative = |of: &dyn Fn(&(&Entry, &JobRecord, f64)) -> f64| {
        let mut values: Vec<f64> =
            ended.iter().filter(|(_, record, _)| record.alone_s > SHORTEST_S).map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let rhos = relative(&|(entry, record, jct_s)| {
        let share = f64::from(entry.job.asked()) * record.contention / f64::from(devices.max(1));
        jct_s / (record.alone_s * share.max(1.0))
    });
    let count = |is: &dyn Fn(&JobRecord) -> bool| jobs.iter().filter(|record| is(record)).count() as f64;
    let sum = |of: &dyn Fn(&JobRecord) -> f64| jobs.iter().map(of).sum::<f64>();
    let first_s = entries.first().map_or(0.0, |entry| entry.job.arrival_s);
    let refused = count(&|record| record.refused.is_some());
    let device_s = sum(&|record| record.device_s);
    let offered_s = recording.offered_device_s;
    let restarts = sum(&|record| f64::from(record.restarts));
    // The sum of nothing is -0.
    let mean = |values: &[f64]| (values.iter().sum::<f64>() + 0.0) / values.len().max(1) as f64;
    let due = |record: &JobRecord| record.job.as_ref().and_then(|job| job.deadline_s);
    Report {
        jobs: jobs.len() as f64,
        finished: ended.len() as f64,
        unfinished: jobs.len() as f64 - ended.len() as f64 - refused,
        refused,
        avg_jct_s: mean(&times),
        median_jct_s: times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0.0),
        p95_jct_s: percentile(&times, 95.0),
        p99_jct_s: percentile(&times, 99.0),
        avg_slowdown: mean(&relative(&|(_, record, jct_s)| jct_s / record.alone_s)),
        makespan_s: (recording.end_s - first_s).max(0.0),
        avg_queueing_s: mean(&sorted(&|(_, record, jct_s)| (jct_s - record.executed_s).max(0.0))),
        utilisation: if offered_s > 0.0 { device_s / offered_s } else { 0.0 },
        device_hours: device_s / 3600.0,
        preemptions: sum(&|record| f64::from(record.preemptions)),
        restarts,
        restarts_per_job: restarts / (jobs.len() as f64 - refused).max(1.0),
        max_rho: rhos.last().copied().unwrap_or(0.0),
        p95_rho: percentile(&rhos, 95.0),
        unfair: rhos.iter().filter(|&&rho| rho > 1.0).count() as f64 / rhos.len().max(1) as f64,
        deadlines: count(&|record| due(record).is_some()),
        deadlines_met: count(
            &|record| matches!((due(record), record.end_s), (Some(due), Some(end)) if end <= due + ROUNDING_S),
        ),
    }
}
