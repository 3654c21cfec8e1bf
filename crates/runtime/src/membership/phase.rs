//! The words of phases without a membership: training through parameter servers, or by gossip.
//!
//! The steps of a run lie in *phases*, each of one protocol. In a synchronous phase with all-reduce a membership
//! moves from step to step. In every other the coordinator grants *units* to workers one by one
//! ([`super::work queue`]), and the parameters are at the servers.

use bellwether_core::plan::TransmissionOrder;
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Staleness;

use super::{WorkerId, WorkloadDescription};

/// Whom a worker exchanges tensors with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub worker: WorkerId,
    /// Where its data plane listens, `host:port`.
    pub address: String,
}

/// How a worker is to train until it is told otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Number of the phase, counted with those of memberships.
    pub epoch: u64,
    /// Who waits for whom.
    pub protocol: Protocol,
    /// The server of each shard; none for gossip.
    pub servers: Vec<Peer>,
    /// Other workers, for gossip.
    pub peers: Vec<Peer>,
    /// Which waiting part a connection to a server serves next.
    pub order: TransmissionOrder,
    /// For gossip: the coordinator's checkpoint that all begin from.
    pub checkpoint: Option<u64>,
    /// For gossip: the others have trained since then.
    pub late: bool,
}

/// What a server is to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Serve {
    /// Number of the phase.
    pub epoch: u64,
    /// Which shard.
    pub shard: u32,
    /// Of how many.
    pub shards: u32,
    /// Who waits for whom: in synchronous phases a step is applied at once, otherwise each unit.
    pub protocol: Protocol,
    /// Complete steps: units of later ones will come.
    pub step: u64,
    /// The coordinator's checkpoint that the state comes from.
    pub checkpoint: Option<u64>,
    /// What is trained.
    pub workload: WorkloadDescription,
    /// Who holds the same, to take over.
    pub replica: Option<Peer>,
    /// It is told what the server of the shard applies, to take its place.
    pub follows: bool,
    /// Which waiting part a connection serves next.
    pub order: TransmissionOrder,
}

/// A server's account since the phase began.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerReport {
    /// Number of the phase.
    pub epoch: u64,
    /// How stale its updates were.
    pub staleness: Staleness,
    /// Applied updates of pieces.
    pub updates: u64,
    /// Seconds spent applying.
    pub apply_s: f64,
    /// Bytes of pushes.
    pub received_bytes: u64,
    /// Bytes of pulls.
    pub sent_bytes: u64,
    /// The shard was handed over after this step.
    pub handed_over: Option<u64>,
    /// Mean seconds of an update of each piece of the shard.
    pub pieces_s: Vec<f64>,
}
