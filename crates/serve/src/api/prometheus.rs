//! Numbers for Prometheus, in its text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::call::Call;
use super::failure::Failure;
use crate::snapshot::{JobState, Phase, Snapshot};

/// Upper ends of the histogram's buckets, in seconds.
const BUCKETS_S: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Counts answers.
#[derive(Default)]
pub(super) struct Tally {
    routes: Mutex<BTreeMap<(String, &'static str), Counts>>,
}

/// Answers of one method on one route.
#[derive(Default)]
struct Counts {
    by_status: BTreeMap<u16, u64>,
    /// Answers that took at most as long as each bucket, but longer than the one before it.
    by_bucket: [u64; BUCKETS_S.len()],
    answers: u64,
    seconds: f64,
}

impl Tally {
    /// Counts an answer; `route` is empty where there is none.
    pub(super) fn count(&self, method: &Method, route: &'static str, status: StatusCode, took: Duration) {
        // Methods that no route has are not told apart: clients could invent any number of them.
        let method = if route.is_empty() { "" } else { method.as_str() };
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = routes.entry((method.to_owned(), route)).or_default();
        *counts.by_status.entry(status.as_u16()).or_default() += 1;
        counts.answers += 1;
        counts.seconds += took.as_secs_f64();
        if let Some(bucket) = BUCKETS_S.iter().position(|end_s| took.as_secs_f64() <= *end_s) {
            counts.by_bucket[bucket] += 1;
        }
    }

    fn write(&self, page: &mut Page) {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        page.family("bellwether_http_requests_total", "counter", "Answers of the HTTP API.");
        for ((method, route), counts) in &*routes {
            for (status, count) in &counts.by_status {
                let status = status.to_string();
                let labels = [("method", method.as_str()), ("route", route), ("status", &status)];
                page.sample("", &labels, *count as f64);
            }
        }
        let help = "Seconds until the head of an answer was ready.";
        page.family("bellwether_http_request_duration_seconds", "histogram", help);
        for ((method, route), counts) in &*routes {
            let labels = [("method", method.as_str()), ("route", route)];
            let mut below = 0;
            for (end_s, count) in BUCKETS_S.iter().zip(counts.by_bucket) {
                below += count;
                page.sample("_bucket", &[labels[0], labels[1], ("le", &end_s.to_string())], below as f64);
            }
            page.sample("_bucket", &[labels[0], labels[1], ("le", "+Inf")], counts.answers as f64);
            page.sample("_sum", &labels, counts.seconds);
            page.sample("_count", &labels, counts.answers as f64);
        }
    }
}

/// The text as it is written.
#[derive(Default)]
struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        for (place, (name, value)) in labels.iter().enumerate() {
            let open = if place == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{open}{name}=\"{value}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// A family with one sample and no labels.
    fn single(&mut self, name: &'static str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }
}

fn cluster(page: &mut Page, now: &Snapshot) {
    let cluster = &now.cluster;
    page.family("bellwether_info", "gauge", "Version of the program and the policy that decides; always 1.");
    page.sample("", &[("version", &cluster.version), ("policy", &cluster.policy)], 1.0);
    page.family("bellwether_jobs", "gauge", "Jobs in each state.");
    for phase in Phase::ALL {
        let state = phase.name();
        page.sample("", &[("state", state)], cluster.jobs.get(&phase).copied().unwrap_or(0) as f64);
    }
    page.single("bellwether_slots", "gauge", "Slots of all nodes.", f64::from(cluster.slots));
    let held = cluster.slots.saturating_sub(cluster.free);
    page.single("bellwether_slots_held", "gauge", "Slots that jobs hold.", f64::from(held));
    let help = "Slot-seconds held over slot-seconds offered since the ledger began.";
    page.single("bellwether_slot_utilization_ratio", "gauge", help, cluster.utilization);
    let decisions = now.decisions.last().map_or(0, |decision| decision.number);
    page.single("bellwether_decisions_total", "counter", "Decisions of policies.", decisions as f64);
}

fn jobs(page: &mut Page, now: &Snapshot) {
    type Read = fn(&JobState) -> Option<f64>;
    let families: [(&'static str, &str, Read); 4] = [
        ("bellwether_job_step", "Committed steps.", |job| Some(job.step as f64)),
        ("bellwether_job_workers", "Workers that train.", |job| Some(f64::from(job.workers))),
        ("bellwether_job_examples_per_second", "Measured samples per second.", |job| job.examples_per_s),
        ("bellwether_job_predicted_examples_per_second", "Predicted samples per second.", |job| {
            job.predicted_examples_per_s
        }),
    ];
    let running: Vec<_> = now.jobs.values().filter(|job| job.workers > 0 && !job.state.has_ended()).collect();
    for (name, help, read) in families {
        page.family(name, "gauge", help);
        for job in &running {
            if let Some(value) = read(job) {
                page.sample("", &[("job", &job.name)], value);
            }
        }
    }
}

pub(super) async fn metrics(call: Call) -> Result<Response, Failure> {
    let now = call.api.engine.now();
    let mut page = Page::default();
    cluster(&mut page, &now);
    jobs(&mut page, &now);
    call.api.tally.write(&mut page);
    Ok(([(header::CONTENT_TYPE, MEDIA)], page.text).into_response())
}

/// The media type of the format.
pub(super) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";
