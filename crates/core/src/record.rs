//! What a run leaves behind: the journal's events and the summary printed at its end.
//!
//! The journal is a file of JSON lines, one [`Line`] each. It is enough to restart a coordinator and to
//! prove that each sample of an epoch is in exactly one committed step.

use serde::{Deserialize, Serialize};

use crate::job::StopLimit;
use crate::prediction::Protocol;
use crate::profile::Network;

mod outcome;
mod sentence;
mod staleness;
mod step;
mod summary;
mod text;

pub use crate::boot::Boot;
pub use outcome::{RunFailure, RunOutcome};
pub use staleness::Staleness;
pub use step::{Call, LinkKind, StepRecord, Traffic, UnitRecord};
pub use summary::{
    BUSY, BatchChange, Comparison, Crash, Decision, EarlyEnd, ExpectedRun, LastEvaluation, Mismatch,
    PhaseSummary, Planned, Provisioned, Resize, Revocations, Summary,
};

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
    /// The folder of the run was lost, and its journal up to here is a copy: the last lines of the one that was lost
    /// may be missing.
    Restored {
        /// Bytes of the copy.
        bytes: u64,
    },
    /// The random name of the run: another run of the same job has another.
    RunIdentity {
        /// It.
        id: String,
    },
    /// What workers on different machines say to each other is not encrypted, as the user asked.
    PlainTransport {
        /// Why, in the words of the caller.
        reason: String,
    },
    /// A run that is taken up again goes on with other data or other kernels, as the user asked.
    OtherDataAccepted {
        /// What it was trained with so far.
        before: String,
        /// What it is trained with from here on.
        now: String,
    },
    /// No line tells that these steps were committed: they are in the checkpoint that the run goes on from.
    FoundInCheckpoint {
        /// First of them.
        first: u64,
        /// Last of them.
        last: u64,
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
        /// The same through memory that the two share; absent between machines.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        shared_memory: Option<Network>,
    },
    /// A worker can train: it has made what it computes with, and computed once.
    WorkerWarm {
        /// Who.
        worker: u64,
        /// What its start took.
        #[serde(flatten)]
        boot: Boot,
    },
    /// What a worker computes with, in a run that is open to workers of any kernel class.
    KernelClass {
        /// Who.
        worker: u64,
        /// Its kernel class.
        class: String,
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
    /// The run's director decided something, or not to change anything for a new reason.
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
    /// A member takes much longer than it should, and the run waits for it: it hangs, its session is silent, or nothing
    /// arrives between it and a peer.
    Late {
        /// Who.
        worker: u64,
        /// Who cannot be reached from there; absent when the worker itself is late.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        peer: Option<u64>,
        /// Committed steps.
        step: u64,
        /// What it was doing.
        doing: String,
        /// For how long.
        seconds: f64,
        /// How long that may take before people are told.
        limit_s: f64,
        /// What happens if it goes on.
        next: String,
    },
    /// A member that was late got on by itself.
    InTime {
        /// Who.
        worker: u64,
        /// Who could not be reached.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        peer: Option<u64>,
        /// For how long it had kept the run.
        seconds: f64,
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
    /// Two workers computed a virtual node differently. Nothing of the step was applied.
    Mismatched(Mismatch),
    /// The computation of a third worker told whose was wrong: that one was sent away.
    Quarantined {
        /// Who.
        worker: u64,
        /// The step that it computed wrong.
        step: u64,
        /// The third worker.
        judge: u64,
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
    /// Steps are done by another protocol, or through other servers, from here on.
    Protocol {
        /// Steps done by then.
        step: u64,
        /// Who waits for whom from now on; a text in the file.
        #[serde(with = "text")]
        protocol: Protocol,
        /// Parameter servers, replicas left out; 0 where the workers reduce among themselves.
        servers: u32,
        /// Seconds in which no worker trained because of it.
        stall_s: f64,
        /// Why.
        reason: String,
    },
    /// A worker pauses while all wait for all.
    #[serde(rename = "benched")]
    Paused {
        /// Who.
        worker: u64,
        /// Committed steps.
        step: u64,
    },
    /// A parameter server's process was started.
    ServerStarted {
        /// Who.
        server: u64,
    },
    /// A parameter server opened its session.
    ServerAttached {
        /// Who.
        server: u64,
        /// Where its data plane listens.
        address: String,
        /// Process number on its machine.
        process: u32,
    },
    /// A parameter server went away without a word.
    ServerCrashed {
        /// Who.
        server: u64,
        /// The shard that it held.
        shard: u32,
        /// Committed steps at that time.
        step: u64,
        /// How it was noticed.
        evidence: String,
    },
    /// Another server holds the shard of one that crashed.
    ServerReplaced {
        /// Who.
        server: u64,
        /// The shard.
        shard: u32,
        /// Updates of the shard that are lost, at most: those since the checkpoint that it was restored from, with
        /// those that were under way; 0 from a replica. Where all wait for all, their steps are done again.
        lost_updates: u64,
        /// The checkpoint; absent for a replica.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        checkpoint: Option<u64>,
        /// Seconds from the evidence on.
        seconds: f64,
    },
    /// How stale the updates of a phase were that ends here.
    Stale {
        /// Steps done by then.
        step: u64,
        /// The histogram over all servers, with an entry for each update of a piece.
        staleness: Staleness,
        /// Seconds that all of them spent applying.
        #[serde(default)]
        apply_s: f64,
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
        /// The longest time that a worker copied its slice of it, and did nothing else; absent where one worker sent
        /// the whole.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        stall_s: Option<f64>,
    },
    /// A checkpoint could not be written or used; training goes on.
    CheckpointFailed {
        /// Steps in it.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The cluster that runs the workers tells something of their machines.
    Cluster {
        /// In one sentence.
        message: String,
    },
    /// Something that a person should know.
    Warning {
        /// In one sentence.
        message: String,
    },
    /// It was decided whether the run goes on after a step at which its members waited for that.
    Verdict {
        /// The step.
        step: u64,
        /// Why the run ends there; absent where it goes on.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        ends: Option<String>,
    },
    /// The run reached a limit of its job, and is stopped for it.
    LimitReached {
        /// Which.
        limit: StopLimit,
        /// Seconds in which workers trained.
        trained_s: f64,
        /// Seconds of all workers.
        worker_s: f64,
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
        /// How it ended; a text in the file.
        #[serde(with = "text")]
        outcome: RunOutcome,
        /// Digest of parameters, optimizer and state; absent when no worker could tell.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        params_digest: Option<String>,
    },
}

#[cfg(test)]
mod tests;

fn one() -> u32 {
    1
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(accumulation: &u32) -> bool {
    *accumulation == 1
}
