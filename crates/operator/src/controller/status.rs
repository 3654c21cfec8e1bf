//! What people see of a job: its status, from what the engine says and what its pods do.

use std::sync::Arc;
use std::time::Duration;

use bellwether_serve::snapshot::{JobState, Phase};
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use super::{Context, Fault, act};
use crate::crd::{self, ElasticJob};
use crate::job::{JobSpec, Kept, contains, time};
use crate::observe::now_s;
use crate::reconcile::{PodSeen, Role};

/// Who writes it, as it stands in managed fields.
const MANAGER: &str = "bellwether-status";

/// The shortest time between two writes for the sake of progress alone.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);
const PROGRESS: [&str; 2] = ["training", "outlook"];

/// The same for the sake of how many pods there are: they come and go one by one, a set of them within a second or so.
const COUNTS_PERIOD: Duration = Duration::from_secs(1);
const COUNTS: [&str; 3] = ["replicas", "readyReplicas", "workers"];

/// Why the engine has not taken a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its specification is wrong.
    InvalidSpec,
    /// It names something that is not there.
    ReferenceMissing,
    /// Its queue is not there, or not for its namespace.
    QueueMissing,
    /// There are too few slots for it, whatever runs.
    WaitingForCapacity,
    /// It was suspended before it was submitted.
    Suspended,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Reason::InvalidSpec => "InvalidSpec",
            Reason::ReferenceMissing => "ReferenceMissing",
            Reason::QueueMissing => "QueueMissing",
            Reason::WaitingForCapacity => "WaitingForCapacity",
            Reason::Suspended => "Suspended",
        }
    }
}

/// Writes the job's status, if something has changed. Answers with when to look again, where that can wait.
pub(super) async fn write(
    job: &Arc<ElasticJob>,
    spec: Option<&JobSpec>,
    kept: &Kept,
    pods: &[PodSeen],
    context: &Context,
) -> Result<Option<Duration>, Fault> {
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let (run, refused, rejected) =
        context.edit(&uid, |known| (known.run.clone(), known.refusal(), known.rejected.clone()));
    let snapshot = context.engine.now();
    let state = run.as_deref().and_then(|run| snapshot.jobs.get(run)).map(Arc::as_ref);
    let before = serde_json::to_value(&job.status).unwrap_or(Value::Null);
    let look = Look { job, spec, kept, pods, state, refused, rejected, before: &before };
    let next = look.status();
    if contains(&before, &next) {
        return Ok(None);
    }
    let is_so = |fields: &[&str]| contains(&before, &without(&next, fields));
    let written_before = context.edit(&uid, |known| known.status_at.map(|at| at.elapsed()));
    let left = |period: Duration| written_before.and_then(|before| period.checked_sub(before));
    // Progress is looked at again and again anyway.
    if left(PROGRESS_PERIOD).is_some() && is_so(&PROGRESS) {
        return Ok(None);
    }
    if let Some(left) = left(COUNTS_PERIOD)
        && is_so(&[&PROGRESS[..], &COUNTS].concat())
    {
        return Ok(Some(left));
    }
    context.edit(&uid, |known| known.status_at = Some(tokio::time::Instant::now()));
    let (phase, was) =
        (next["phase"].as_str().unwrap_or_default(), before["phase"].as_str().unwrap_or_default());
    let (phase, is_new) = (phase.to_owned(), phase != was);
    let note = look.sentence();
    let place =
        (job.metadata.namespace.clone().unwrap_or_default(), job.metadata.name.clone().unwrap_or_default());
    act::patch_status_of(job, &place, &uid, next, MANAGER, context).await?;
    if is_new {
        let type_ = if phase == "Failed" { EventType::Warning } else { EventType::Normal };
        context.event(job, type_, &phase, &note).await;
    }
    Ok(None)
}

/// A status but for these fields.
fn without(status: &Value, fields: &[&str]) -> Value {
    let mut status = status.clone();
    if let Some(status) = status.as_object_mut() {
        status.retain(|field, _| !fields.contains(&field.as_str()));
    }
    status
}

/// All that a status follows from.
struct Look<'l> {
    job: &'l ElasticJob,
    spec: Option<&'l JobSpec>,
    kept: &'l Kept,
    pods: &'l [PodSeen],
    state: Option<&'l JobState>,
    refused: Option<(Reason, String)>,
    rejected: Option<String>,
    before: &'l Value,
}

impl Look<'_> {
    fn status(&self) -> Value {
        let workers = self.pods.iter().filter(|pod| pod.role == Role::Worker);
        let there = workers.clone().filter(|pod| pod.is_live()).count();
        let ready = workers.filter(|pod| pod.is_ready()).count();
        let target = self.state.map_or(0, |state| state.target_workers);
        let most = self.spec.map(|spec| spec.workers.max);
        let uid = self.job.metadata.uid.clone().unwrap_or_default();
        let mut status = json!({
            "observedGeneration": self.job.metadata.generation,
            "phase": self.phase(),
            "replicas": there,
            "readyReplicas": ready,
            "workers": most.map(|most| format!("{ready}/{target}/{most}")),
            "selector": format!("{}={uid},{}=worker", crate::labels::JOB_UID, crate::labels::ROLE),
            "conditions": self.conditions(),
        });
        if let Some(state) = self.state {
            status["run"] = json!(state.name);
            if self.before["fixed"].is_null() && self.spec.is_some() {
                status["fixed"] = json!(crd::fixed(&self.job.spec));
            }
            status["training"] = training(state, &self.before["training"]);
            status["outlook"] = outlook(state);
            status["restarts"] = json!({"preempt": state.preemptions});
        }
        status
    }

    fn phase(&self) -> crd::Phase {
        if self.kept.is_over {
            return if self.had("Complete") { crd::Phase::Succeeded } else { crd::Phase::Failed };
        }
        let Some(state) = self.state else {
            return match self.refused {
                Some((Reason::Suspended, _)) => crd::Phase::Suspended,
                Some((Reason::InvalidSpec, _)) => crd::Phase::Failed,
                _ => crd::Phase::Queued,
            };
        };
        match state.state {
            Phase::Running if state.workers != state.target_workers => crd::Phase::Resizing,
            phase => crd::Phase::of(phase),
        }
    }

    /// Whether a condition was true before.
    fn had(&self, condition: &str) -> bool {
        let before = self.before["conditions"].as_array().into_iter().flatten();
        before.into_iter().any(|seen| seen["type"] == condition && seen["status"] == "True")
    }

    fn conditions(&self) -> Value {
        let mut conditions = Vec::new();
        let mut add = |kind: &str, is_so: bool, reason: &str, message: &str| {
            conditions.push(self.condition(kind, is_so, reason, message));
        };
        let invalid = self.refused.as_ref().filter(|(reason, _)| {
            matches!(reason, Reason::InvalidSpec | Reason::ReferenceMissing | Reason::QueueMissing)
        });
        match (invalid, &self.rejected) {
            (Some((reason, why)), _) => add("Accepted", false, reason.word(), why),
            (None, Some(why)) => add("Accepted", false, "TemplateRejected", why),
            (None, None) => add("Accepted", true, "Valid", ""),
        }
        let Some(state) = self.state else {
            if let Some((reason @ (Reason::WaitingForCapacity | Reason::Suspended), why)) = &self.refused {
                add("QuotaReserved", false, reason.word(), why);
            }
            return self.with_ends(conditions);
        };
        let why = self.sentence();
        if state.state.has_ended() {
            for kind in ["QuotaReserved", "Running", "Resizing"] {
                add(kind, false, "Ended", "");
            }
            return self.with_ends(conditions);
        }
        let has_slots = state.target_workers > 0;
        let waiting = if state.preemptions > 0 { "Preempted" } else { "WaitingForCapacity" };
        add("QuotaReserved", has_slots, if has_slots { "Admitted" } else { waiting }, &why);
        let fewest = self.spec.map_or(1, |spec| spec.workers.min);
        let runs = state.workers >= fewest;
        add("Running", runs, if runs { "Started" } else { "BelowMinimum" }, "");
        let resizes = state.state == Phase::Running && state.workers != state.target_workers;
        let direction = if state.target_workers > state.workers { "ScaleUp" } else { "ScaleDown" };
        let change = format!("from {} to {} workers", state.workers, state.target_workers);
        add(
            "Resizing",
            resizes,
            if resizes { direction } else { "Settled" },
            if resizes { &change } else { "" },
        );
        let suspended = state.state == Phase::Suspended;
        add("Suspended", suspended, if suspended { "UserRequest" } else { "Resumed" }, "");
        self.with_ends(conditions)
    }

    /// A job that has ended says so for ever.
    fn with_ends(&self, mut conditions: Vec<Value>) -> Value {
        let end = self.state.filter(|state| state.state.has_ended());
        for (kind, phases) in
            [("Complete", &[Phase::Finished][..]), ("Failed", &[Phase::Failed, Phase::Cancelled])]
        {
            let is_new = end.filter(|state| phases.contains(&state.state));
            if let Some(state) = is_new {
                let reason = match state.state {
                    Phase::Finished => "AllWorkersSucceeded",
                    Phase::Cancelled => "Cancelled",
                    _ => "RunFailed",
                };
                conditions.push(self.condition(kind, true, reason, &state.why));
            } else if self.had(kind) {
                let before = self.before["conditions"].as_array().into_iter().flatten();
                conditions.extend(before.filter(|seen| seen["type"] == kind).cloned());
            }
        }
        json!(conditions)
    }

    /// A condition, with the time of its last change of state.
    fn condition(&self, kind: &str, is_so: bool, reason: &str, message: &str) -> Value {
        let status = if is_so { "True" } else { "False" };
        let mut before = self.before["conditions"].as_array().into_iter().flatten();
        let before = before.find(|seen| seen["type"] == kind && seen["status"] == status);
        let since = before.map(|seen| seen["lastTransitionTime"].clone()).filter(|since| !since.is_null());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| json!(time(now_s()))),
            "observedGeneration": self.job.metadata.generation,
        })
    }

    /// Why it is as it is, in one sentence.
    fn sentence(&self) -> String {
        let pod = self.pods.iter().find_map(|pod| pod.waits_for.as_deref());
        match self.state {
            Some(state) if !state.why.is_empty() => state.why.clone(),
            Some(state) => {
                let foreseen = state.outlook.as_ref().map(|outlook| outlook.waits_for.clone());
                foreseen.filter(|text| !text.is_empty()).or(pod.map(Into::into)).unwrap_or_default()
            }
            None => self.refused.as_ref().map(|(_, why)| why.clone()).unwrap_or_default(),
        }
    }
}

/// A number as it stands in a status, where there are no fractions.
fn fraction(value: Option<f64>) -> Option<String> {
    let value = value.filter(|value| value.is_finite())?;
    Some(if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.4}") })
}

fn training(state: &JobState, before: &Value) -> Value {
    let is_news = before["step"].as_u64() != Some(state.step);
    let last_report = if is_news { json!(time(now_s())) } else { before["lastReport"].clone() };
    let percent = (state.step.min(state.total_steps) * 100).checked_div(state.total_steps);
    json!({
        "step": state.step,
        "totalSteps": state.total_steps,
        "progressPercent": percent,
        "samplesPerSecond": fraction(state.examples_per_s),
        "predictedSamplesPerSecond": fraction(state.predicted_examples_per_s),
        "loss": fraction(state.loss),
        "expectedEnd": state.expected_end_s.and_then(time),
        "digest": state.digest,
        "lastReport": last_report,
    })
}

/// Every field, so that what is no longer so does not stay.
fn outlook(state: &JobState) -> Value {
    let Some(outlook) = &state.outlook else { return Value::Null };
    let crd::Outlook { waits_for, ahead, ahead_names, starts, ends } = crd::Outlook::of(outlook);
    let ahead_names = Some(ahead_names).filter(|names| !names.is_empty());
    let at = |interval: Option<crd::Interval>| {
        interval.map(|crd::Interval { earliest, median, latest }| {
            json!({"earliest": earliest, "median": median, "latest": latest})
        })
    };
    json!({
        "waitsFor": waits_for, "ahead": ahead, "aheadNames": ahead_names, "starts": at(starts), "ends": at(ends),
    })
}
