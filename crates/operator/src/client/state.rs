//! An `ElasticJob` as the daemon tells of a job. What neither its specification nor its status says stays absent, or 0.

use std::path::PathBuf;

use bellwether_core::job::WorkerRange;
use bellwether_serve::snapshot::{JobOutlook, JobState, Phase, Times};
use serde_json::Value;

use crate::crd::{self, Condition, ElasticJob, ElasticJobStatus, Interval, Outlook, Training};
use crate::observe::seconds;

/// What is known of a job.
pub(super) fn state(job: &ElasticJob) -> JobState {
    let status = job.status.clone().unwrap_or_default();
    let training = status.training.clone().unwrap_or_default();
    let state = phase(job, &status);
    let outlook = status.outlook.as_ref().filter(|_| !state.has_ended()).map(outlook);
    let (limits, submitted_s) = (limits(job), submitted_s(job));
    let waits_for = outlook.as_ref().map(|outlook| outlook.waits_for.clone()).unwrap_or_default();
    let restarts = status.restarts.clone().unwrap_or_default();
    let now = |count: u32| if state.has_ended() { 0 } else { count };
    JobState {
        name: job.metadata.name.clone().unwrap_or_default(),
        state,
        // What it waits for is said beside it.
        why: Some(why(job, &status, state)).filter(|why| *why != waits_for).unwrap_or_default(),
        queue: job.spec.queue.clone(),
        user: None,
        provider: None,
        submitted_s,
        started_s: None,
        ended_s: ended_s(&status, state),
        expected_end_s: time_s(training.expected_end.as_ref()).filter(|_| !state.has_ended()),
        outlook,
        deadline_s: job.spec.deadline_seconds.map(|within_s| submitted_s + within_s as f64),
        weight: job.spec.weight,
        min_workers: limits.min,
        max_workers: limits.max,
        workers: now(status.ready_replicas.saturating_mul(job.spec.slots_per_pod())),
        target_workers: now(target(&status)),
        servers: now(status.allocation.as_ref().map_or(0, |allocation| allocation.servers)),
        fits: Vec::new(),
        ways: Vec::new(),
        step: training.step,
        total_steps: total_steps(job, &training),
        loss: number(training.loss.as_ref()),
        examples_per_s: number(training.samples_per_second.as_ref()),
        predicted_examples_per_s: number(training.predicted_samples_per_second.as_ref()),
        predicted_low: None,
        predicted_high: None,
        predicted_beyond: None,
        preemptions: restarts.preempt,
        failures: restarts.crash,
        worker_s: 0.0,
        digest: training.digest,
        run_dir: PathBuf::new(),
    }
}

/// When the object was created.
pub(super) fn submitted_s(job: &ElasticJob) -> f64 {
    job.metadata.creation_timestamp.as_ref().map_or(0.0, |time| seconds(&time.0))
}

/// What it is doing: its status may be behind what was asked of it last.
fn phase(job: &ElasticJob, status: &ElasticJobStatus) -> Phase {
    let seen = match status.phase {
        Some(crd::Phase::Succeeded) => return Phase::Finished,
        Some(crd::Phase::Failed) => {
            let is_cancelled = holds(status, "Failed").is_some_and(|failed| failed.reason == "Cancelled");
            return if is_cancelled { Phase::Cancelled } else { Phase::Failed };
        }
        Some(crd::Phase::Queued) | None => Phase::Queued,
        Some(crd::Phase::Starting) => Phase::Starting,
        Some(crd::Phase::Suspended) => Phase::Suspended,
        Some(crd::Phase::Resizing) if target(status) == 0 => Phase::Stopping,
        Some(crd::Phase::Running | crd::Phase::Resizing) => Phase::Running,
    };
    match seen {
        _ if job.metadata.deletion_timestamp.is_some() => Phase::Stopping,
        Phase::Queued if job.spec.suspend => Phase::Suspended,
        Phase::Starting | Phase::Running if job.spec.suspend => Phase::Stopping,
        Phase::Suspended if !job.spec.suspend => Phase::Queued,
        seen => seen,
    }
}

/// Why it is in this state, where that needs to be said.
fn why(job: &ElasticJob, status: &ElasticJobStatus, state: Phase) -> String {
    let said = |condition: Option<&Condition>| condition.map(|seen| seen.message.clone()).unwrap_or_default();
    let refused =
        said(status.conditions.iter().find(|seen| seen.kind == "Accepted" && seen.status == "False"));
    if job.metadata.deletion_timestamp.is_some() {
        return "it is being deleted".into();
    }
    if !job.spec.is_managed_here() {
        return format!("`{}` looks after it, not bellwether-operator", job.spec.managed_by);
    }
    match state {
        Phase::Failed | Phase::Cancelled => {
            let ended = said(holds(status, "Failed"));
            if ended.is_empty() { refused } else { ended }
        }
        Phase::Queued if status.phase.is_none() => "the operator has not looked at it yet".into(),
        _ if !refused.is_empty() => refused,
        Phase::Queued | Phase::Starting => {
            said(status.conditions.iter().find(|seen| seen.kind == "QuotaReserved"))
        }
        _ => String::new(),
    }
}

fn holds<'s>(status: &'s ElasticJobStatus, kind: &str) -> Option<&'s Condition> {
    status.conditions.iter().find(|seen| seen.kind == kind && seen.status == "True")
}

/// When it ended; one that was never accepted did when it was refused.
fn ended_s(status: &ElasticJobStatus, state: Phase) -> Option<f64> {
    if !state.has_ended() {
        return None;
    }
    let end = holds(status, "Complete").or_else(|| holds(status, "Failed"));
    let refused = || status.conditions.iter().find(|seen| seen.kind == "Accepted" && seen.status == "False");
    time_s(end.or_else(refused)?.last_transition_time.as_ref())
}

/// Workers that it should have: the second of `ready/wanted/most`.
fn target(status: &ElasticJobStatus) -> u32 {
    let wanted = status.workers.as_ref().and_then(|workers| workers.split('/').nth(1)?.parse().ok());
    let allocated = || status.allocation.as_ref().map_or(0, |allocation| allocation.replicas);
    wanted.unwrap_or_else(allocated)
}

/// Numbers of workers that it may have, as the operator reads them from a specification that is right.
fn limits(job: &ElasticJob) -> WorkerRange {
    let elastic = &job.spec.elastic;
    let of_file = |file: &Value| serde_json::from_value::<WorkerRange>(file["workers"].clone()).ok();
    let of_file = job.spec.job.as_ref().and_then(of_file);
    let pods = elastic.pods(&elastic.sizes(of_file));
    let workers = |pods: u32| pods.saturating_mul(job.spec.slots_per_pod());
    WorkerRange { min: workers(*pods.start()), max: workers(*pods.end()) }
}

/// Steps of the whole job: as the operator counts them, else as its author wrote them; 0 where neither says.
fn total_steps(job: &ElasticJob, training: &Training) -> u64 {
    if training.total_steps > 0 {
        return training.total_steps;
    }
    let of_file = job.spec.job.as_ref().and_then(|file| file["steps"].as_u64());
    of_file.or_else(|| job.spec.work.as_ref()?.steps).unwrap_or(0)
}

fn outlook(outlook: &Outlook) -> JobOutlook {
    JobOutlook {
        waits_for: outlook.waits_for.clone().unwrap_or_default(),
        ahead: outlook.ahead,
        ahead_names: outlook.ahead_names.clone(),
        start: outlook.starts.as_ref().and_then(times),
        end: outlook.ends.as_ref().and_then(times),
    }
}

fn times(interval: &Interval) -> Option<Times> {
    Some(Times {
        low_s: time_s(interval.earliest.as_ref())?,
        middle_s: time_s(interval.median.as_ref()),
        high_s: time_s(interval.latest.as_ref()),
    })
}

/// A time of the API in seconds since the Unix epoch.
fn time_s(text: Option<&String>) -> Option<f64> {
    text?.parse::<k8s_openapi::jiff::Timestamp>().ok().map(|time| seconds(&time))
}

/// A fraction, which is text in a status.
fn number(text: Option<&String>) -> Option<f64> {
    text?.parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(spec: Value, status: Value) -> ElasticJob {
        let value = json!({
            "apiVersion": "train.bellwether.dev/v1alpha1", "kind": "ElasticJob",
            "metadata": {"name": "digits", "namespace": "research", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec, "status": status,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_job_that_trains() {
        let status = json!({
            "phase": "Running", "workers": "2/3/4", "replicas": 3, "readyReplicas": 2,
            "training": {"step": 30, "totalSteps": 300, "loss": "0.5000", "samplesPerSecond": "1234",
                "predictedSamplesPerSecond": "not a number", "expectedEnd": "2026-01-01T01:00:00Z"},
            "restarts": {"crash": 1, "preempt": 2},
            "outlook": {"ahead": 0, "ends": {"earliest": "2026-01-01T00:30:00Z"}},
        });
        let spec = json!({"job": {"steps": 300, "workers": "1..4"}, "weight": 2.0, "queue": "vision",
            "deadlineSeconds": 60});
        let state = state(&job(spec, status));
        assert_eq!((state.state, state.why.as_str()), (Phase::Running, ""));
        assert_eq!((state.workers, state.target_workers), (2, 3));
        assert_eq!((state.min_workers, state.max_workers), (1, 4));
        assert_eq!((state.step, state.total_steps), (30, 300));
        assert_eq!((state.loss, state.examples_per_s), (Some(0.5), Some(1234.0)));
        assert_eq!(state.predicted_examples_per_s, None);
        assert_eq!(state.submitted_s, 1_767_225_600.0);
        assert_eq!(state.expected_end_s, Some(1_767_225_600.0 + 3600.0));
        assert_eq!(state.deadline_s, Some(1_767_225_660.0));
        assert_eq!((state.preemptions, state.failures), (2, 1));
        let end = state.outlook.unwrap().end.unwrap();
        assert_eq!((end.low_s, end.middle_s), (1_767_225_600.0 + 1800.0, None));
        assert_eq!((state.queue.as_deref(), state.weight), (Some("vision"), 2.0));
    }

    #[test]
    fn a_job_that_ended() {
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:10:00Z"})
        };
        let end = |phase: &str, condition: Value| {
            let status = json!({"phase": phase, "workers": "0/2/4", "readyReplicas": 2,
                "conditions": [condition], "training": {"digest": "abc", "expectedEnd": "2026-01-01T01:00:00Z"}});
            state(&job(json!({}), status))
        };
        let done = end("Succeeded", condition("Complete", "AllWorkersSucceeded", ""));
        assert_eq!((done.state, done.ended_s), (Phase::Finished, Some(1_767_226_200.0)));
        assert_eq!((done.workers, done.target_workers, done.expected_end_s), (0, 0, None));
        assert_eq!(done.digest.as_deref(), Some("abc"));
        let failed = end("Failed", condition("Failed", "RunFailed", "the loss is not a number"));
        assert_eq!((failed.state, failed.why.as_str()), (Phase::Failed, "the loss is not a number"));
        assert_eq!(end("Failed", condition("Failed", "Cancelled", "")).state, Phase::Cancelled);
    }

    #[test]
    fn what_was_asked_last_is_told_before_the_status_says_it() {
        let at = |suspend: bool, status: Value| state(&job(json!({"suspend": suspend}), status)).state;
        let running = json!({"phase": "Running", "workers": "1/1/1"});
        assert_eq!(at(true, running.clone()), Phase::Stopping);
        assert_eq!(at(false, running), Phase::Running);
        assert_eq!(at(true, json!({"phase": "Suspended"})), Phase::Suspended);
        assert_eq!(at(false, json!({"phase": "Suspended"})), Phase::Queued);
        assert_eq!(at(true, json!({})), Phase::Suspended);
        assert_eq!(at(false, json!({"phase": "Resizing", "workers": "2/0/4"})), Phase::Stopping);
        assert_eq!(at(false, json!({"phase": "A word of another version"})), Phase::Queued);
    }

    #[test]
    fn a_job_that_waits_says_why_once() {
        let reserved =
            |message: &str| json!({"type": "QuotaReserved", "status": "False", "message": message});
        let status = json!({"phase": "Queued", "conditions": [reserved("4 slots")],
            "outlook": {"waitsFor": "4 slots", "ahead": 2}});
        let waits = state(&job(json!({}), status));
        let outlook = waits.outlook.unwrap();
        assert_eq!((waits.why.as_str(), outlook.waits_for.as_str(), outlook.ahead), ("", "4 slots", 2));
        let alone = state(&job(json!({}), json!({"phase": "Queued", "conditions": [reserved("8 slots")]})));
        assert_eq!(alone.why, "8 slots");
        let refused = json!({"phase": "Failed", "conditions": [{"type": "Accepted", "status": "False",
            "message": "spec.job: it is missing", "lastTransitionTime": "2026-01-01T00:00:01Z"}]});
        let refused = state(&job(json!({}), refused));
        assert_eq!((refused.state, refused.why.as_str()), (Phase::Failed, "spec.job: it is missing"));
        assert_eq!(refused.ended_s, Some(1_767_225_601.0));
        assert_eq!(state(&job(json!({}), json!({}))).why, "the operator has not looked at it yet");
    }

    #[test]
    fn pods_of_several_workers_are_counted_by_workers() {
        let spec = json!({"worker": {"slotsPerPod": 4},
            "elastic": {"minReplicas": 1, "maxReplicas": 3, "policy": "Manual", "replicas": 2}});
        let state = state(&job(spec, json!({"phase": "Running", "readyReplicas": 2, "workers": "2/8/8"})));
        assert_eq!((state.workers, state.target_workers), (8, 8));
        assert_eq!((state.min_workers, state.max_workers), (8, 8));
    }
}
