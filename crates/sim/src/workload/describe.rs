//! What a trace is like: sizes, durations, load over time, and its law of arrival.

use std::collections::BTreeMap;

use bellwether_des::statistics::{Tally, percentile};
use serde::Serialize;

use super::fit::{self, ArrivalFit};
use super::{Arrivals, Class, Workload, classes};
use crate::trace::{Entry, Trace};

const HOUR_S: f64 = 3600.0;

/// No more windows than this, however long the trace.
const WINDOWS_MAX: f64 = 1000.0;

/// A trace in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    /// Jobs.
    pub jobs: usize,
    /// Seconds from the first arrival to the last.
    pub span_s: f64,
    /// Whether work is in seconds on the asked devices; otherwise it is in steps or samples, and there is no load.
    pub says_durations: bool,
    /// Durations, or work.
    pub work: Summary,
    /// Jobs by the devices that they ask for, in ascending order.
    pub sizes: Vec<Group>,
    /// Jobs by the types of device that they name; empty where none does.
    pub device_types: Vec<Group>,
    /// Device-hours of all jobs together.
    pub gpu_hours: Option<f64>,
    /// Devices that would be busy on average if nothing waited: device-seconds that arrive per second.
    pub offered_gpus: Option<f64>,
    /// `offered_gpus` as a share of the cluster's devices, where these are known.
    pub offered_load: Option<f64>,
    /// What would run at the same time if nothing waited.
    pub concurrency: Option<Concurrency>,
    /// The load over time: days, or hours of a short trace.
    pub windows: Vec<Window>,
    /// The law of arrival; `None` where there are too few jobs to tell.
    pub arrivals: Option<ArrivalFit>,
    /// Kinds of jobs, as a generator draws them.
    #[serde(skip)]
    classes: Vec<Class>,
}

/// Figures of many numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Their mean.
    pub mean: f64,
    /// Half of them are below it.
    pub median: f64,
    /// 95 % of them are below it.
    pub p95: f64,
    /// 99 % of them are below it.
    pub p99: f64,
    /// The largest.
    pub largest: f64,
    /// Standard deviation over mean: 1 for an exponential law.
    pub variation: f64,
}

/// Jobs that have something in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// What.
    pub name: String,
    /// How many.
    pub jobs: usize,
    /// Their durations, or work.
    pub work: Summary,
    /// Their device-hours.
    pub gpu_hours: Option<f64>,
}

/// What would run at the same time if nothing waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Concurrency {
    /// Jobs on average, from the first arrival to the last end.
    pub mean_jobs: f64,
    /// Most jobs.
    pub most_jobs: u64,
    /// Devices on average.
    pub mean_gpus: f64,
    /// Most devices.
    pub most_gpus: u64,
}

/// A phase of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    /// Where it begins, in seconds of the trace's clock.
    pub begin_s: f64,
    /// How long it is, in seconds.
    pub length_s: f64,
    /// Jobs that arrive in it.
    pub jobs: usize,
    /// Device-seconds that arrive in it per second.
    pub offered_gpus: f64,
    /// The same as a share of the cluster's devices.
    pub offered_load: Option<f64>,
}

/// Describes a trace; `gpus` are the devices of the cluster that its load is a share of.
pub fn describe(trace: &Trace, gpus: Option<u32>) -> Description {
    let entries = &trace.entries;
    let timed = trace.format.says_durations() && entries.iter().all(|entry| entry.work.is_finite());
    let arrivals_s: Vec<f64> = entries.iter().map(|entry| entry.job.arrival_s).collect();
    let span_s = arrivals_s.last().zip(arrivals_s.first()).map_or(0.0, |(last_s, first_s)| last_s - first_s);
    let device_s: f64 = entries.iter().map(device_seconds).sum();
    let offered_gpus = (timed && span_s > 0.0).then(|| device_s / span_s);
    let share = |offered: f64| gpus.filter(|gpus| *gpus > 0).map(|gpus| offered / f64::from(gpus));
    let sizes = groups(entries, timed, |entry| Some(entry.job.asked()));
    let types = groups(entries, timed, |entry| {
        let name = |at: &u16| trace.device_types.get(usize::from(*at)).map_or("", String::as_str);
        let names: Vec<&str> = entry.job.device_types.iter().map(name).collect();
        Some(if names.is_empty() { "any".to_owned() } else { names.join("|") })
    });
    let any_type = entries.iter().any(|entry| !entry.job.device_types.is_empty());
    let (classes, which) = classes::of(trace, timed);
    Description {
        jobs: entries.len(),
        span_s,
        says_durations: timed,
        work: summary(entries.iter().map(|entry| entry.work).collect()),
        sizes,
        device_types: if any_type { types } else { Vec::new() },
        gpu_hours: timed.then_some(device_s / HOUR_S),
        offered_gpus,
        offered_load: offered_gpus.and_then(share),
        concurrency: timed.then(|| concurrency(entries)),
        windows: if timed { windows(entries, span_s, share) } else { Vec::new() },
        arrivals: fit::fit(&arrivals_s, &which),
        classes,
    }
}

impl Description {
    /// A generator that draws such traces: the best law of arrival, and kinds of jobs with the work that was seen.
    pub fn workload(&self) -> Workload {
        let mean_per_hour = self.jobs as f64 / self.span_s.max(1.0) * HOUR_S;
        let best = self.arrivals.as_ref().and_then(ArrivalFit::best);
        let arrivals = best.cloned().unwrap_or(Arrivals::Poisson { per_hour: Some(mean_per_hour) });
        Workload {
            jobs: Some(u32::try_from(self.jobs).unwrap_or(u32::MAX)),
            horizon: None,
            load: None,
            gpus: None,
            arrivals,
            classes: self.classes.clone(),
        }
    }
}

fn device_seconds(entry: &Entry) -> f64 {
    entry.work * f64::from(entry.job.asked())
}

/// Figures of numbers in any order.
pub(super) fn summary(mut values: Vec<f64>) -> Summary {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| percentile(&values, share).unwrap_or(0.0);
    let tally: Tally = values.iter().copied().collect();
    let variation = if tally.mean() > 0.0 { tally.variance().sqrt() / tally.mean() } else { 0.0 };
    Summary { mean: tally.mean(), median: at(0.5), p95: at(0.95), p99: at(0.99), largest: at(1.0), variation }
}

fn groups<K: Ord + ToString>(
    entries: &[Entry],
    timed: bool,
    key: impl Fn(&Entry) -> Option<K>,
) -> Vec<Group> {
    let mut found: BTreeMap<K, (Vec<f64>, f64)> = BTreeMap::new();
    for entry in entries {
        if let Some(key) = key(entry) {
            let (work, device_s) = found.entry(key).or_default();
            work.push(entry.work);
            *device_s += device_seconds(entry);
        }
    }
    let group = |(key, (work, device_s)): (K, (Vec<f64>, f64))| Group {
        name: key.to_string(),
        jobs: work.len(),
        work: summary(work),
        gpu_hours: timed.then_some(device_s / HOUR_S),
    };
    found.into_iter().map(group).collect()
}

fn concurrency(entries: &[Entry]) -> Concurrency {
    // Ends come before arrivals of the same instant.
    let mut events: Vec<(f64, i64, i64)> = Vec::with_capacity(2 * entries.len());
    for entry in entries.iter().filter(|entry| entry.work > 0.0) {
        let (begin_s, gpus) = (entry.job.arrival_s, i64::from(entry.job.asked()));
        events.push((begin_s, 1, gpus));
        events.push((begin_s + entry.work, -1, -gpus));
    }
    events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Concurrency::default() };
    let length_s = (last.0 - first.0).max(f64::MIN_POSITIVE);
    let (mut jobs, mut gpus, mut since_s) = (0_i64, 0_i64, first.0);
    let mut result = Concurrency::default();
    for (now_s, job, devices) in events {
        result.mean_jobs += jobs as f64 * (now_s - since_s) / length_s;
        result.mean_gpus += gpus as f64 * (now_s - since_s) / length_s;
        (jobs, gpus, since_s) = (jobs + job, gpus + devices, now_s);
        result.most_jobs = result.most_jobs.max(jobs.unsigned_abs());
        result.most_gpus = result.most_gpus.max(gpus.unsigned_abs());
    }
    result
}

fn windows(entries: &[Entry], span_s: f64, share: impl Fn(f64) -> Option<f64>) -> Vec<Window> {
    let unit_s = if span_s >= 72.0 * HOUR_S { 24.0 * HOUR_S } else { HOUR_S };
    let length_s = unit_s * (span_s / unit_s / WINDOWS_MAX).ceil().max(1.0);
    let window = |entry: &Entry| (entry.job.arrival_s / length_s).floor();
    let Some(first) = entries.first().map(window) else { return Vec::new() };
    let count = entries.last().map_or(0.0, window) - first + 1.0;
    let mut windows: Vec<Window> = (0..count as usize)
        .map(|at| {
            let begin_s = (first + at as f64) * length_s;
            Window { begin_s, length_s, jobs: 0, offered_gpus: 0.0, offered_load: None }
        })
        .collect();
    let last = windows.len() - 1;
    for entry in entries {
        let window = &mut windows[((window(entry) - first) as usize).min(last)];
        window.jobs += 1;
        window.offered_gpus += device_seconds(entry) / length_s;
    }
    for window in &mut windows {
        window.offered_load = share(window.offered_gpus);
    }
    windows
}
