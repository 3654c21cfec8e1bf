//! What the operator tells of an `ElasticJob`. Everything may be missing, so that objects of other versions can be
//! read.
//!
//! Fractions are strings, by the conventions of Kubernetes' API, and so are times, so that what was written is read
//! back to the letter.

use std::collections::BTreeMap;

use bellwether_serve::snapshot::{self, JobOutlook, Times};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What is known of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ElasticJobStatus {
    /// What the job is doing, to be printed; programs read the conditions.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    pub phase: Option<Phase>,
    /// Generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Workers that are ready, that the job should have, and that it may have at most: `2/4/8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Worker pods that exist.
    pub replicas: u32,
    /// Worker pods that are ready.
    pub ready_replicas: u32,
    /// Selects the job's worker pods, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Name of the job's run: in the ledger, and for the daemon's client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The last decision. It is written before it is acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// How often pods were replaced, by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// How far the training is, and how fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// What is foreseen of the job, while it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// What was accepted and cannot be changed any more: fields of the specification, with a digest of each. Until it
    /// is written everything may be changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed: BTreeMap<String, String>,
    /// What holds of the job: `Accepted`, `QuotaReserved`, `Running`, `Resizing`, `Suspended`, and at its end
    /// `Complete` or `Failed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// It waits for slots.
    Queued,
    /// Its pods start.
    Starting,
    /// It trains.
    Running,
    /// Workers join or leave.
    Resizing,
    /// It was asked to wait.
    Suspended,
    /// All is done.
    Succeeded,
    /// It failed more often than it may, or can never run.
    Failed,
}

impl Phase {
    /// What the engine says a job is doing; whether its workers change, the engine does not know.
    pub fn of(phase: snapshot::Phase) -> Phase {
        match phase {
            snapshot::Phase::Queued => Phase::Queued,
            snapshot::Phase::Starting => Phase::Starting,
            snapshot::Phase::Running => Phase::Running,
            snapshot::Phase::Stopping => Phase::Resizing,
            snapshot::Phase::Suspended => Phase::Suspended,
            snapshot::Phase::Finished => Phase::Succeeded,
            snapshot::Phase::Failed | snapshot::Phase::Cancelled => Phase::Failed,
        }
    }
}

/// A word of another version counts as missing: one status that cannot be read would hide all jobs.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Phase>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(Phase::deserialize(value).ok())
}

/// A decision: which nodes hold the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// Grows with every decision. Pods bear it as a label.
    pub generation: u64,
    /// How often the operator's Lease had changed hands: an operator that lost it writes no decision any more.
    pub lease_transitions: u64,
    /// Workers.
    pub replicas: u32,
    /// Parameter servers.
    pub servers: u32,
    /// Slots on each node, those of parameter servers included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSlots>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// Seconds for which the job had workers under the decisions before, for `activeDeadlineSeconds`.
    pub ran_seconds: u64,
}

/// Slots of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeSlots {
    /// Name of the node.
    pub node: String,
    /// How many of its slots.
    pub slots: u32,
}

/// How often pods were replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Restarts {
    /// Because a worker failed; only these count against `maxRestarts`.
    pub crash: u32,
    /// Because all workers were taken away.
    pub preempt: u32,
    /// Because the number of workers changed.
    pub resize: u32,
    /// Because the coordinator's pod was lost.
    pub coordinator: u32,
    /// When a pod failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last: Option<String>,
}

/// How far the training is, and how fast. It is written every ten seconds at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Training {
    /// Committed steps.
    pub step: u64,
    /// Steps of the whole job.
    pub total_steps: u64,
    /// Committed steps in percent of all, rounded down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<u32>,
    /// Measured samples per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<String>,
    /// Samples per second that were predicted for the workers that the job should have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_samples_per_second: Option<String>,
    /// Training loss of the last step that was heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// When the job was heard of last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_report: Option<String>,
    /// When it will be done if it keeps its workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expected_end: Option<String>,
    /// Digest of what was trained, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// What is foreseen of a job, by simulating the scheduler forward.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Outlook {
    /// What the job waits for, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Jobs that wait too and will start before it.
    pub ahead: u32,
    /// Names of those of them that are next before it in the same queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ahead_names: Vec<String>,
    /// When it starts, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<Interval>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<Interval>,
}

/// When something happens: nine times of ten within these limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interval {
    /// The earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub earliest: Option<String>,
    /// The median; absent where it happens in fewer than half of the simulations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub median: Option<String>,
    /// The latest; absent where it does not happen in all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub latest: Option<String>,
}

/// Something that holds of the object, or does not: Kubernetes' own `metav1.Condition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is spoken of.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word for programs.
    #[serde(default)]
    pub reason: String,
    /// Why, in sentences for people.
    #[serde(default)]
    pub message: String,
    /// When it began to hold, or ceased to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: Option<String>,
    /// Generation of the object that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Outlook {
    /// What the engine foresees of a job.
    pub fn of(outlook: &JobOutlook) -> Outlook {
        let JobOutlook { waits_for, ahead, ahead_names, start, end } = outlook;
        let interval = |times: &Times| Interval {
            earliest: time(times.low_s),
            median: times.middle_s.and_then(time),
            latest: times.high_s.and_then(time),
        };
        Outlook {
            waits_for: Some(waits_for.clone()).filter(|text| !text.is_empty()),
            ahead: *ahead,
            ahead_names: ahead_names.clone(),
            starts: start.as_ref().map(interval),
            ends: end.as_ref().map(interval),
        }
    }
}

/// Seconds since the Unix epoch as a time of the API, in whole seconds; `None` for what no time is.
fn time(unix_s: f64) -> Option<String> {
    let is_time = unix_s > 0.0 && unix_s < 1e12;
    let time = k8s_openapi::jiff::Timestamp::from_second(unix_s as i64).ok().filter(|_| is_time)?;
    Some(time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlook_becomes_times_in_whole_seconds() {
        let start = Some(Times { low_s: 1.5e9, middle_s: Some(1.5e9 + 60.7), high_s: None });
        let foreseen = JobOutlook { waits_for: "4 slots".into(), ahead: 2, start, ..JobOutlook::default() };
        let outlook = Outlook::of(&foreseen);
        let starts = outlook.starts.as_ref().expect("it will start");
        assert_eq!(starts.earliest.as_deref(), Some("2017-07-14T02:40:00Z"));
        assert_eq!(starts.median.as_deref(), Some("2017-07-14T02:41:00Z"));
        assert_eq!((&starts.latest, &outlook.ends, outlook.ahead), (&None, &None, 2));
        assert_eq!(time(f64::NAN), None);
        assert_eq!(time(1e300), None);
    }
}
