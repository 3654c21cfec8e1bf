//! What the coordinator's state machine is told, and what it asks for.

use std::collections::BTreeMap;

use bellwether_core::plan::Synchronisation;
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event as Journal;

#[cfg(doc)]
use super::Coordinator;
use super::{End, Resumed};
use crate::membership::{FromWorker, StepRecord, ToWorker, WorkerId, WorkloadDescription};

/// What the coordinator knows before any worker speaks.
#[derive(Debug, Clone)]
pub struct Config {
    /// Virtual nodes of the job.
    pub virtual_nodes: u32,
    /// Workers wanted at the start.
    pub wanted: u32,
    /// Fewest workers to begin with while the others wait for machines.
    pub min_workers: u32,
    /// Most workers that those who join by hand may raise the number to.
    pub max_workers: u32,
    /// Scheduled changes: at this boundary, this many workers. Rising steps.
    pub schedule: Vec<(u64, u32)>,
    /// Whether this machine may start worker processes itself.
    pub spawns: bool,
    /// How fast workers compute, relative to each other; those that are not named are taken for 1.
    pub speeds: BTreeMap<WorkerId, f64>,
    /// Seconds of silence after which a worker counts as lost.
    pub heartbeat_timeout_s: f64,
    /// Seconds within which a worker must have opened its session, from when it could begin; and those of a stage of
    /// its start that says no others.
    pub boot_timeout_s: f64,
    /// Seconds that a restarted coordinator waits for its workers.
    pub reattach_grace_s: f64,
    /// Crashes without a step between them after which the run fails.
    pub max_barren_crashes: u32,
    /// What the journal of a coordinator that died says.
    pub resumed: Option<Resumed>,
    /// Step of the newest usable checkpoint.
    pub checkpoint: Option<u64>,
    /// Most steps that an update may cover; 1 where the batch never moves.
    pub max_accumulation: u32,
    /// The description to which the first worker of a resumed run is held.
    pub workload: Option<WorkloadDescription>,
    /// Who waits for whom, and since when.
    pub synchronisation: Synchronisation,
    /// Units of a step, where they are granted one by one.
    pub units_per_step: u64,
    /// Steps between evaluations; 0 evaluates at the end only.
    pub evaluate_every: u64,
    /// Steps between checkpoints; 0 writes at the end only.
    pub checkpoint_every: u64,
    /// Whether each member writes its slices of checkpoints, and not the first one the whole.
    pub slices: bool,
    /// Whether the members share the optimizer's state, and each sends its part of a checkpoint.
    pub sharded: bool,
    /// Steps between boundaries at which the members wait for a verdict; 0 never waits.
    pub verdict_every: u64,
    /// Whether a verdict is about the state, which is to be written first, and not about the held-out results of that
    /// step, which the members report.
    pub verdict_needs_state: bool,
    /// Least seconds between checkpoints by time; 0 for none.
    pub checkpoint_period_s: f64,
    /// Seconds that the members hold the state when the last checkpoint cannot be written.
    pub last_checkpoint_wait_s: f64,
    /// Seconds that a model predicts of a step, until steps were measured.
    pub expected_step_s: Option<f64>,
    /// Whether late members are replaced even if the run cannot go on without them: their state may be the only one.
    pub replaces_alone: bool,
}

/// What happens to the coordinator. Times are seconds on one clock that never goes back.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker opened a session.
    Attached {
        /// Who; from [`Coordinator::new_worker`] when it had no number.
        worker: WorkerId,
        /// Where its data plane listens.
        address: String,
        /// Process number on its machine.
        process: u32,
        /// Tells this process from another that calls itself by the same number.
        instance: u64,
        /// Seconds since it knocked: it could say nothing before it was let in.
        waited_s: f64,
        /// Epoch and step of a state it holds.
        held: Option<(u64, u64)>,
        /// What it warmed up in an earlier session.
        workload: Option<WorkloadDescription>,
    },
    /// A parameter server opened a session.
    ServerAttached {
        /// Who; from [`Coordinator::new_worker`] when it had no number.
        server: WorkerId,
        /// Where its data plane listens.
        address: String,
        /// Process number on its machine.
        process: u32,
        /// As of a worker.
        instance: u64,
        /// As of a worker.
        waited_s: f64,
    },
    /// A worker said something.
    Said(WorkerId, FromWorker),
    /// A worker's session broke, or its process ended.
    Gone(WorkerId, String),
    /// The process of a worker that is gone has ended.
    Ended(WorkerId),
    /// Someone wants this many workers.
    Scale(u32),
    /// Another worker is to take this one's place; it computes until that one has joined.
    Replace(WorkerId),
    /// This worker leaves at the next boundary, and none takes its place.
    LeaveOut(WorkerId),
    /// A worker's machine goes soon: it leaves at the next boundary, and another one takes its place.
    Relieve(WorkerId),
    /// Its provider takes a worker's server away: should it go without coming up, nothing is wrong with the workers.
    Revoked(WorkerId),
    /// How fast these workers compute, relative to each other; the others are taken for 1.
    Speeds(BTreeMap<WorkerId, f64>),
    /// An update is to cover this many steps.
    Accumulate(u32),
    /// Who waits for whom from this boundary on, or the next possible one; what was planned for later is void.
    Protocol(u64, Protocol),
    /// This worker pauses while all wait for all.
    Pause(WorkerId),
    /// All paused workers train again.
    Unpause,
    /// The run goes on after this step, at which its members wait; or it ends there, for this reason. What cannot be
    /// followed ([`Coordinator::verdict_refusal`]) changes nothing.
    Verdict(u64, Option<String>),
    /// Someone wants the run to stop.
    Stop,
    /// The state after this step is at the coordinator, not yet written; its sender's
    /// [counts](Coordinator::state_counts).
    Received(u64),
    /// All shards of the state after this step are at the coordinator, or could not be put together.
    Collected(u64, Result<(), String>),
    /// A checkpoint arrived and was written (`Ok`), or could not be.
    Checkpoint(u64, Result<(), String>),
    /// Time passed.
    Tick,
}

impl Event {
    /// Whether it comes in every step or all the time, and nothing follows from it at once unless it says so by an
    /// action.
    pub(super) fn is_routine(&self) -> bool {
        use FromWorker::{At, Heartbeat, Ready, Report};
        matches!(self, Event::Tick | Event::Said(_, Heartbeat | At(_) | Report(_) | Ready { .. }))
    }
}

/// What the shell does for the coordinator.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a message.
    Send(WorkerId, ToWorker),
    /// Start a worker process with this number.
    Spawn(WorkerId),
    /// Start a server process with this number.
    SpawnServer(WorkerId),
    /// Put the state after this step together from what these hand over, in the order of the shards.
    Collect {
        /// Which step.
        step: u64,
        /// Servers; or workers, where each holds the whole state.
        holders: Vec<WorkerId>,
    },
    /// Close the session; kill the process if it is ours.
    Close(WorkerId),
    /// Write a line to the journal.
    Journal(Journal),
    /// The steps up to this number are committed; their records.
    Committed(Vec<StepRecord>),
    /// The run is over.
    End(End),
}
