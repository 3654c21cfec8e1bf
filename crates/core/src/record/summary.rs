//! The summary printed at the end of a run, and the parts of it.

use serde::{Deserialize, Serialize};

use super::{RunOutcome, Staleness, text};
use crate::boot::Boot;
use crate::prediction::Protocol;

/// One change of the batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchChange {
    /// The boundary.
    pub step: u64,
    /// Samples of an update before.
    pub from: u64,
    /// Samples of an update after.
    pub to: u64,
    /// What the scheduled learning rate is multiplied with.
    pub learning_rate_factor: f64,
    /// Why.
    pub reason: String,
}

/// An end before the last step of the job, by a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    /// The step after which the run ended.
    pub step: u64,
    /// Why, in the words of who decided it.
    pub reason: String,
}

/// One planned change of the number of workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    /// The boundary.
    pub step: u64,
    /// Workers before.
    pub from: u32,
    /// Workers after.
    pub to: u32,
    /// Longest time that a survivor spent for it.
    pub stall_s: f64,
    /// Why.
    pub reason: String,
}

/// How good the model was before the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LastEvaluation {
    /// Committed steps then.
    pub step: u64,
    /// Mean loss on the held-out set.
    pub loss: f64,
    /// Share of right predictions on it, 0…1; absent where it does not apply.
    pub accuracy: Option<f64>,
}

/// Steps that were done by one protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// The first of them.
    pub step: u64,
    /// How many.
    pub steps: u64,
    /// Who waited for whom; a text in the file.
    #[serde(with = "text")]
    pub protocol: Protocol,
    /// Parameter servers.
    pub servers: u32,
    /// Seconds from the first step's begin to the last one's end.
    pub seconds: f64,
    /// Seconds before the first step in which no worker trained, because of the change.
    pub stall_s: f64,
}

/// One unplanned loss of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    /// Committed steps when it was noticed.
    pub step: u64,
    /// Who.
    pub worker: u64,
    /// Seconds from the crash to the next committed step; absent when none followed.
    pub seconds: Option<f64>,
}

/// A virtual node that two workers computed differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// The step, the first is 0. It was not applied.
    pub step: u64,
    /// Which virtual node.
    pub node: u32,
    /// Whose node it was.
    pub worker: u64,
    /// Who computed it again; the same as `worker` where that one was alone.
    pub checker: u64,
    /// Whose computation was wrong; absent where no third worker's told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<u64>,
}

/// The part of the time in which processes wait for a processor from which on a machine is busy: other work is
/// measured, too, and predictions look wrong that are not.
pub const BUSY: f64 = 0.25;

/// Throughput that was predicted from the first steps of a run, beside what followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Active workers.
    pub workers: u32,
    /// Steps that were measured, those of the prediction left out.
    pub steps: u64,
    /// Predicted samples per second.
    pub predicted_examples_per_s: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Measured samples per second.
    pub measured_examples_per_s: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
}

/// The number of workers that a run began with, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Workers.
    pub workers: u32,
    /// Samples per second that were expected.
    pub examples_per_s: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Why, in a sentence.
    pub reason: String,
}

/// A run on servers that were taken away by a law: what it took beside what that law lets expect. Times and prices are
/// on the law's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revocations {
    /// The law, as the user named it.
    pub law: String,
    /// Seconds of the law's clock in a second of the run.
    pub time_scale: f64,
    /// Servers that were taken away.
    pub revoked: u32,
    /// Seconds that the steps of this run took.
    pub time_s: f64,
    /// Expected seconds, with the speeds of the first steps; absent where the run was too short to know them.
    pub expected: Option<ExpectedRun>,
    /// Server-hours.
    pub server_hours: f64,
    /// What they cost in dollars; absent without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_dollars: Option<f64>,
}

/// What a law of revocation lets expect of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectedRun {
    /// Mean seconds.
    pub time_s: f64,
    /// Seconds that 5 % of runs take at most.
    pub low_s: f64,
    /// Seconds that 95 % of runs take at most.
    pub high_s: f64,
    /// Mean number of servers lost.
    pub revoked: f64,
    /// Mean server-hours.
    pub server_hours: f64,
}

/// What the machines of a run were that a provider gave, and whether the word of its plan was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provisioned {
    /// Who gave them.
    pub provider: String,
    /// Machines that ran.
    pub obtained: u32,
    /// How often other machines were wanted than before, to keep deadline or budget.
    pub changes: u32,
    /// Seconds from the request of the first machine to the release of the last.
    pub time_s: f64,
    /// What all machines cost, in dollars.
    pub cost_dollars: f64,
    /// Seconds that were allowed; absent without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
    /// Dollars that were allowed; absent without a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_dollars: Option<f64>,
    /// What the plan expected in seconds.
    pub expected_time_s: f64,
    /// What the plan expected in dollars.
    pub expected_cost_dollars: f64,
    /// Machines of which it is not known that they were given back.
    pub left: u32,
}

/// What the director of a run decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Who: the heuristic, as the user named it.
    pub by: String,
    /// Committed steps.
    pub step: u64,
    /// Active workers.
    pub workers: u32,
    /// Workers wanted from then on.
    pub target: u32,
    /// Why.
    pub reason: String,
}

/// The result of a run, printed as JSON at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the job.
    pub job: String,
    /// The run: `NAME-NUMBER`.
    pub run: String,
    /// The run's folder.
    pub run_dir: String,
    /// How it ended. In JSON two texts: `outcome`, which is `finished`, `stopped` or `failed`, and `reason`, which is
    /// empty unless it failed.
    #[serde(flatten, with = "ended")]
    pub outcome: RunOutcome,
    /// The verdict that ended it before the last step of the job, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<EarlyEnd>,
    /// Committed steps.
    pub steps: u64,
    /// Samples in them.
    pub examples: u64,
    /// Mean training loss of the last committed step.
    pub final_loss: Option<f64>,
    /// Mean loss on the held-out set at the end.
    pub held_out_loss: Option<f64>,
    /// Share of right predictions on the held-out set at the end, 0…1.
    pub accuracy: Option<f64>,
    /// The last evaluation, where the run did not end with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation: Option<LastEvaluation>,
    /// Samples per second of this coordinator's time, start-up excluded.
    pub examples_per_s: f64,
    /// Seconds from the start of this coordinator to the end.
    pub elapsed_s: f64,
    /// BLAKE3 over parameters, then optimizer and model state, in layout order, in hex.
    pub params_digest: Option<String>,
    /// Active workers at each membership epoch, in order.
    pub workers: Vec<u32>,
    /// The start of a worker that took longest; absent where none came up under this coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_boot: Option<Boot>,
    /// Planned changes of the number of workers.
    pub resizes: Vec<Resize>,
    /// Unplanned losses.
    pub crashes: Vec<Crash>,
    /// Virtual nodes that two workers computed differently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mismatches: Vec<Mismatch>,
    /// Changes of the batch; none in mode `exact`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchChange>,
    /// Phases by protocol, where the run had more than all-reduce.
    #[serde(default, rename = "stretches", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseSummary>,
    /// How stale asynchronous updates were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Largest resident memory that a worker reported.
    pub peak_resident_bytes: u64,
    /// Mean share of the steps' time in which gradients waited for their samples, 0…1; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_wait: Option<f64>,
    /// Steps in which some gradient waited for its samples.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub data_waits: u64,
    /// Part of the run's time, 0…1, in which a process of this machine was ready and had no processor; absent where the
    /// system does not tell, or the workers were more than the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_wait: Option<f64>,
    /// The last checkpoint.
    pub checkpoint: Option<String>,
    /// Predicted beside measured throughput, by number of workers; empty where a run was too short to tell.
    #[serde(default)]
    pub predictions: Vec<Comparison>,
    /// How the number of workers was chosen, where a range was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Planned>,
    /// Servers that were taken away on purpose, and what that was expected to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocations: Option<Revocations>,
    /// Machines that a provider gave, and what they cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<Provisioned>,
    /// What was decided about the number of workers; empty without a director.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// How a run ended, as two texts.
mod ended {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::RunOutcome;

    #[derive(Serialize, Deserialize)]
    struct Ended {
        outcome: String,
        reason: String,
    }

    pub(super) fn serialize<S: Serializer>(how: &RunOutcome, to: S) -> Result<S::Ok, S::Error> {
        Ended { outcome: how.summary_word().into(), reason: how.reason() }.serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<RunOutcome, D::Error> {
        let Ended { outcome, reason } = Ended::deserialize(from)?;
        let text = if reason.is_empty() { outcome } else { format!("{outcome}: {reason}") };
        text.parse().map_err(D::Error::custom)
    }
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
