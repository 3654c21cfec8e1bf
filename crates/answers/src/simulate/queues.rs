//! What a simulation says of each queue.

use std::collections::BTreeMap;

use bellwether_core::queue::DEFAULT_QUEUE;
use bellwether_sched::queues::{Account, WithQueues};
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{JobRecord, Recording};
use serde::Serialize;

/// The figures of one queue under one policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct QueueReport {
    /// Its name.
    pub queue: String,
    /// Jobs that were in it.
    pub jobs: f64,
    /// Jobs that ended.
    pub finished: f64,
    /// Jobs that could never run, or that the policy refused.
    pub refused: f64,
    /// Mean completion time of those that ended, in seconds; `None` if none did.
    pub avg_jct_s: Option<f64>,
    /// Mean time without devices of those that ended, in seconds; `None` if none did.
    pub avg_queueing_s: Option<f64>,
    /// Device-hours that its jobs held.
    pub device_hours: f64,
    /// The part that it had of the device-hours that it was guaranteed and could use; `None` if there were none.
    pub guarantee_received: Option<f64>,
    /// Device-hours that it held beyond its guarantee.
    pub borrowed_device_hours: f64,
    /// Times that a job lost all its devices before its end.
    pub preemptions: f64,
}

/// The figures of all queues where jobs are, of the default one only if it has jobs. Without a policy in queues they
/// are those of the jobs that name the same queue, which guarantees them nothing.
pub(super) fn reports(
    policy: Option<&WithQueues>,
    entries: &[Entry],
    recording: &Recording,
) -> Vec<QueueReport> {
    let mut jobs: BTreeMap<&str, Vec<(&Entry, &JobRecord)>> = BTreeMap::new();
    for (entry, record) in entries.iter().zip(&recording.jobs) {
        let queue = entry.job.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
        jobs.entry(queue).or_default().push((entry, record));
    }
    let accounts: Vec<(&str, Account)> = match policy {
        Some(policy) => policy.accounts().collect(),
        None if entries.iter().all(|entry| entry.job.queue.is_none()) => return Vec::new(),
        None => jobs.keys().map(|queue| (*queue, Account::default())).collect(),
    };
    let mut reports = Vec::new();
    for (name, account) in accounts {
        let own = jobs.get(name).map_or(&[][..], Vec::as_slice);
        if own.is_empty() && name == DEFAULT_QUEUE {
            continue;
        }
        let ended: Vec<(f64, f64)> = own
            .iter()
            .filter_map(|(entry, record)| {
                let jct_s = record.end_s? - entry.job.arrival_s;
                Some((jct_s, (jct_s - record.executed_s).max(0.0)))
            })
            .collect();
        let mean = |of: fn(&(f64, f64)) -> f64| {
            (!ended.is_empty()).then(|| ended.iter().map(of).sum::<f64>() / ended.len() as f64)
        };
        let due = account.due_device_s;
        reports.push(QueueReport {
            queue: name.to_owned(),
            jobs: own.len() as f64,
            finished: ended.len() as f64,
            refused: own.iter().filter(|(_, record)| record.refused.is_some()).count() as f64,
            avg_jct_s: mean(|(jct_s, _)| *jct_s),
            avg_queueing_s: mean(|(_, queueing_s)| *queueing_s),
            device_hours: own.iter().map(|(_, record)| record.device_s).sum::<f64>() / 3600.0,
            guarantee_received: (due > 0.0).then(|| account.received_device_s / due),
            borrowed_device_hours: account.borrowed_device_s / 3600.0,
            preemptions: own.iter().map(|(_, record)| f64::from(record.preemptions)).sum(),
        });
    }
    reports
}

impl QueueReport {
    /// The means of reports of the same queues, one list for each seed.
    pub(super) fn means<'a>(seeds: impl Iterator<Item = &'a [QueueReport]>) -> Vec<QueueReport> {
        let mut of_queue: BTreeMap<&str, Vec<&QueueReport>> = BTreeMap::new();
        let mut order = Vec::new();
        for report in seeds.flatten() {
            let known = of_queue.entry(&report.queue).or_default();
            if known.is_empty() {
                order.push(report.queue.as_str());
            }
            known.push(report);
        }
        order.into_iter().map(|queue| QueueReport::mean(&of_queue[queue])).collect()
    }

    fn mean(reports: &[&QueueReport]) -> QueueReport {
        let mean = |of: fn(&QueueReport) -> f64| {
            reports.iter().map(|report| of(report)).sum::<f64>() / reports.len() as f64
        };
        let mean_of_known = |of: fn(&QueueReport) -> Option<f64>| {
            let known: Vec<f64> = reports.iter().filter_map(|report| of(report)).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        QueueReport {
            queue: reports[0].queue.clone(),
            jobs: mean(|report| report.jobs),
            finished: mean(|report| report.finished),
            refused: mean(|report| report.refused),
            avg_jct_s: mean_of_known(|report| report.avg_jct_s),
            avg_queueing_s: mean_of_known(|report| report.avg_queueing_s),
            device_hours: mean(|report| report.device_hours),
            guarantee_received: mean_of_known(|report| report.guarantee_received),
            borrowed_device_hours: mean(|report| report.borrowed_device_hours),
            preemptions: mean(|report| report.preemptions),
        }
    }
}
