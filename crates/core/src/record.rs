//! What a run leaves behind: the journal's events and the summary printed at its end.
//!
//! The journal is a file of JSON lines, one [`Line`] each. It is enough to restart a coordinator and to
//! prove that each sample of an epoch is in exactly one committed step.

use serde::{Deserialize, Serialize};

mod sentence;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since the Unix epoch, by the coordinator's clock.
    pub time_s: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A coordinator began, for the first time or after its predecessor died.
    CoordinatorStarted {
        /// Process number.
        process: u32,
        /// Version of the program.
        version: String,
        /// Whether the run had been begun before.
        resumed: bool,
    },
    /// The size of the task, from the first worker that loaded the data.
    TaskKnown {
        /// Kernel class of the workers.
        fingerprint: String,
        /// Samples of an epoch.
        training_samples: u64,
        /// Held-out samples.
        held_out_samples: u64,
        /// Parameters of the model.
        parameters: u64,
        /// Steps of the whole run.
        total_steps: u64,
        /// Samples of a full step.
        batch: u64,
        /// Virtual nodes.
        virtual_nodes: u32,
    },
    /// A worker process was started on this machine.
    WorkerStarted {
        /// Who.
        worker: u64,
    },
    /// A worker opened its session.
    WorkerAttached {
        /// Who.
        worker: u64,
        /// Where its data plane listens.
        address: String,
        /// Process number on its machine.
        process: u32,
        /// Steps of the state it holds, when it comes back to a restarted coordinator.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        held_step: Option<u64>,
    },
    /// A worker measured its link to the coordinator's data plane.
    LinkMeasured {
        /// Who.
        worker: u64,
        /// Bytes per second in one direction, while as many go the other way.
        bandwidth_bytes_per_s: f64,
        /// Seconds one way.
        latency_s: f64,
    },
    /// A connection or a worker was not let in.
    Refused {
        /// Its address, or the worker's number.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A membership began.
    Membership {
        /// Its number.
        epoch: u64,
        /// The boundary at which it began.
        step: u64,
        /// Active workers in rank order.
        workers: Vec<u64>,
        /// First virtual node of each, then the number of all.
        bounds: Vec<u32>,
        /// Workers that receive state.
        shadows: Vec<u64>,
        /// Steps that each update covers.
        #[serde(skip_serializing_if = "is_one", default = "one")]
        accumulation: u32,
        /// Why.
        reason: String,
    },
    /// The number of workers was asked to change.
    ScaleRequested {
        /// Workers wanted from now on.
        workers: u32,
        /// Who asked.
        by: String,
    },
    /// Whoever steers the run decided something, or not to change anything for a new reason.
    Decided(Decision),
    /// A worker computes slower than the others for no known reason.
    Straggler {
        /// Who.
        worker: u64,
        /// Committed steps.
        step: u64,
        /// Its pace; 1 is that of the median worker.
        pace: f64,
        /// What is done about it, and why.
        reason: String,
    },
    /// The provider takes a worker's server away.
    Revoked {
        /// Who.
        worker: u64,
        /// Committed steps.
        step: u64,
        /// Seconds that the server lived, on the clock of the law.
        lived_s: f64,
        /// Seconds of this run between the notice and the end; absent when there was none.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        notice_s: Option<f64>,
    },
    /// The number of active workers changed as planned.
    Resized {
        /// The boundary.
        step: u64,
        /// Active workers before.
        from: u32,
        /// Active workers after.
        to: u32,
        /// Time that no survivor was expected to lose.
        expected_stall_s: f64,
        /// Longest time that a survivor spent at the boundaries of this change.
        stall_s: f64,
        /// Seconds from the decision to the switch, hidden behind training.
        hidden_s: f64,
        /// Why.
        reason: String,
    },
    /// An active worker went away without a word.
    Crashed {
        /// Who.
        worker: u64,
        /// Committed steps at that time.
        step: u64,
        /// How it was noticed.
        evidence: String,
        /// Seconds to the next committed step that were expected.
        expected_s: f64,
    },
    /// The first step after a crash was committed.
    Recovered {
        /// The worker that was lost.
        worker: u64,
        /// The step.
        step: u64,
        /// Seconds from the evidence to the commit.
        seconds: f64,
    },
    /// Steps became part of the result: each of them exactly once.
    Committed {
        /// First of them.
        first: u64,
        /// Last of them.
        last: u64,
        /// Steps that each of their updates covered; 1 unless the batch may move, 0 where that is not known.
        #[serde(skip_serializing_if = "is_one", default = "one")]
        accumulation: u32,
    },
    /// The batch changed, and the learning rate with it.
    BatchChanged {
        /// The boundary.
        step: u64,
        /// Samples of an update before.
        from: u64,
        /// Samples of an update after.
        to: u64,
        /// What the scheduled learning rate is multiplied with.
        learning_rate_factor: f64,
        /// Samples beyond which a larger batch gains little, as measured; absent where it could not be.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        noise_scale: Option<f64>,
        /// Samples per second that were expected of the change; absent when none was.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        expected_examples_per_s: Option<f64>,
        /// Progress per sample that was expected, relative to the job's own batch.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        expected_efficiency: Option<f64>,
        /// Why.
        reason: String,
    },
    /// No worker was left: steps at and after `to` count as not done.
    RolledBack {
        /// Steps that remain.
        to: u64,
    },
    /// The held-out set was evaluated.
    Evaluated {
        /// Steps applied before.
        step: u64,
        /// Mean loss.
        loss: f64,
        /// Right predictions, as a share; absent where it does not apply.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        accuracy: Option<f64>,
    },
    /// A checkpoint was written.
    Checkpointed {
        /// Steps in it.
        step: u64,
        /// Its file.
        path: String,
        /// Its size.
        bytes: u64,
        /// Seconds to receive and write it.
        seconds: f64,
    },
    /// A checkpoint could not be written or used; training goes on.
    CheckpointFailed {
        /// Steps in it.
        step: u64,
        /// Why.
        reason: String,
    },
    /// Something that a person should know.
    Warning {
        /// In one sentence.
        message: String,
    },
    /// Someone asked the run to stop.
    StopRequested {
        /// Who.
        by: String,
    },
    /// The run is over.
    Ended {
        /// Committed steps.
        step: u64,
        /// How it ended.
        outcome: String,
        /// Digest of parameters, optimizer and state; absent when no worker could tell.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        params_digest: Option<String>,
    },
}

fn one() -> u32 {
    1
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(accumulation: &u32) -> bool {
    *accumulation == 1
}

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
    /// Upper end of it.
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
    /// Upper end of it.
    pub high: f64,
    /// Why, in a sentence.
    pub reason: String,
}

/// A run on servers that were taken away by a law: what it took beside what that law lets expect. Times and prices are on
/// the law's clock.
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

/// What whoever steered a run decided.
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
    /// `finished`, `stopped` or `failed`.
    pub outcome: String,
    /// Why it failed; empty otherwise.
    pub reason: String,
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
    /// Samples per second of this coordinator's time, start-up excluded.
    pub examples_per_s: f64,
    /// Seconds from the start of this coordinator to the end.
    pub elapsed_s: f64,
    /// BLAKE3 over parameters, then optimizer and model state, in layout order, in hex.
    pub params_digest: Option<String>,
    /// Active workers at each membership epoch, in order.
    pub workers: Vec<u32>,
    /// Planned changes of the number of workers.
    pub resizes: Vec<Resize>,
    /// Unplanned losses.
    pub crashes: Vec<Crash>,
    /// Changes of the batch; none in mode `exact`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchChange>,
    /// Largest resident memory that a worker reported.
    pub peak_resident_bytes: u64,
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
    /// What was decided about the number of workers; empty where nobody steered.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}
