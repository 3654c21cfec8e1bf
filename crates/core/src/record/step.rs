//! One step of a run: what its workers report of it, and a line of `metrics.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One applied update. Of a committed one this is a line of `metrics.jsonl`, told by the slowest of its workers.
///
/// A reader takes every key as absent that an earlier release did not write.
///
/// ```
/// use bellwether_core::record::StepRecord;
/// let text = r#"{"step":7,"loss":null,"duration_s":0.5,"compute_s":0.4,"workers":2}"#;
/// let step: StepRecord = serde_json::from_str(text).unwrap();
/// assert_eq!((step.step, step.loss, step.steps(), step.workers), (7, None, 1, 2));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StepRecord {
    /// Which step: the first is 0. Of an update that covers several steps the first of them.
    pub step: u64,
    /// Mean training loss of its samples; absent where it is not a number.
    pub loss: Option<f64>,
    /// Seconds from boundary to boundary.
    pub duration_s: f64,
    /// Seconds of it spent on gradients, once their samples were there.
    pub compute_s: f64,
    /// Seconds of it in which gradients waited for their samples; 0, which is not written, where none did, and in
    /// files of earlier releases, which counted them as computing.
    #[serde(skip_serializing_if = "is_no_time")]
    pub data_wait_s: f64,
    /// Seconds of it spent in the exchange. A worker counts its waiting for others; in a file no waiting is counted.
    pub exchange_s: f64,
    /// Seconds in which a part of the gradients was exchanged while others were still computed: from the first part
    /// that was complete until all were; 0, which is not written, where the exchange began at the end.
    #[serde(skip_serializing_if = "is_no_time")]
    pub hidden_s: f64,
    /// Seconds of it spent on the update.
    pub update_s: f64,
    /// Seconds that the gradients of each of the worker's virtual nodes took, in order, without waiting for samples.
    pub nodes_s: Vec<f64>,
    /// Bytes to and from each peer, and when the last of them moved; of more than [`Traffic::PEERS_MAX`] peers the
    /// total. In a file only those of a sample of steps.
    pub traffic: Vec<Traffic>,
    /// Active workers; 0 until the step is committed.
    pub workers: u32,
    /// Workers that received state meanwhile.
    pub shadows: u32,
    /// Steps that the update covered, beginning with `step`; 0, which is not written, means 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub accumulation: u32,
    /// Samples beyond which a larger batch gains little, where it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// What the scheduled learning rate was multiplied with, where the batch may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate_factor: Option<f64>,
    /// The units of a step that was done without a membership: the coordinator's own account. In a file only those of
    /// a sample of steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitRecord>,
    /// How many units there were; 0, which is not written, for a step that all workers did together, and in files of
    /// earlier releases.
    #[serde(skip_serializing_if = "is_zero")]
    pub unit_count: u32,
}

/// What one exchange moved between a worker and a peer, frames and all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Traffic {
    /// The peer; 0 for all peers together.
    pub peer: u64,
    /// Bytes handed to the system for it.
    pub sent_bytes: u64,
    /// Bytes of its frames.
    pub received_bytes: u64,
    /// Seconds from the begin of the exchange until the last of the sent ones.
    pub sent_s: f64,
    /// The same for the last of the received ones.
    pub received_s: f64,
    /// What carries the sent bytes; absent for all peers together, and in files of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkKind>,
}

/// What carries bytes from one worker to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Nothing: the peer, on the same machine, reads the vectors where they lie.
    Lent,
    /// A ring in memory that the two processes share.
    SharedMemory,
    /// A Unix socket.
    UnixSocket,
    /// TCP, as it is.
    Tcp,
    /// TCP, with encrypted records.
    EncryptedTcp,
}

impl LinkKind {
    /// All of them.
    pub const ALL: [LinkKind; 5] =
        [LinkKind::Lent, LinkKind::SharedMemory, LinkKind::UnixSocket, LinkKind::Tcp, LinkKind::EncryptedTcp];

    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            LinkKind::Lent => "lent memory",
            LinkKind::SharedMemory => "shared memory",
            LinkKind::UnixSocket => "Unix socket",
            LinkKind::Tcp => "TCP",
            LinkKind::EncryptedTcp => "encrypted TCP",
        }
    }
}

/// A unit of a step that is done unit by unit: the gradient of a few virtual nodes, whose updates all servers have
/// acknowledged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnitRecord {
    /// Who did it; 0 in the worker's own report.
    pub worker: u64,
    /// Which.
    pub unit: u64,
    /// Its samples.
    pub samples: u64,
    /// Sum of its samples' losses.
    pub loss_sum: f64,
    /// Seconds from its begin to the last acknowledgement.
    pub duration_s: f64,
    /// Seconds of it spent computing.
    pub compute_s: f64,
    /// Seconds of it spent waiting for samples.
    #[serde(skip_serializing_if = "is_no_time")]
    pub data_wait_s: f64,
    /// Seconds of it spent waiting for parameters.
    pub wait_s: f64,
    /// Seconds of computing before each call that took or gave a tensor, and after the last.
    pub segments_s: Vec<f64>,
    /// Those calls in order, in a worker's first unit of a phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
}

/// What a gradient's computation asked of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// The parameters of the tensor of this number.
    Take(u32),
    /// To hand the gradient of this tensor over.
    Give(u32),
}

impl StepRecord {
    /// Steps that the update covered, at least 1.
    pub fn steps(&self) -> u64 {
        u64::from(self.accumulation.max(1))
    }

    /// Seconds until a worker had its gradients: those of computing them, and of waiting for their samples.
    pub fn gradients_s(&self) -> f64 {
        self.compute_s + self.data_wait_s
    }

    /// Whether no membership did it, but workers unit by unit: then no worker waited for its end.
    pub fn is_asynchronous(&self) -> bool {
        self.unit_count > 0 || !self.units.is_empty()
    }

    /// The same without virtual nodes, peers and units, whose number has no bound.
    #[must_use]
    pub fn without_details(&self) -> StepRecord {
        StepRecord { nodes_s: Vec::new(), traffic: Vec::new(), units: Vec::new(), ..*self }
    }

    /// One account from those of two workers: the longest times that were worked, and the shortest exchange,
    /// because all but the last to arrive also wait in it. The gradients are those of the worker that had its last.
    #[must_use]
    pub fn merge(self, other: StepRecord) -> StepRecord {
        let (slower, faster) =
            if self.gradients_s() >= other.gradients_s() { (self, other) } else { (other, self) };
        StepRecord {
            duration_s: slower.duration_s.max(faster.duration_s),
            exchange_s: slower.exchange_s.min(faster.exchange_s),
            update_s: slower.update_s.max(faster.update_s),
            ..slower
        }
    }
}

impl Traffic {
    /// Peers that a report names: if each named all, the reports of a step would grow with the square of the workers.
    pub const PEERS_MAX: usize = 64;

    /// What a report says of these peers: each by itself, or the total of too many, and when the last byte moved.
    pub fn reported(peers: Vec<Traffic>) -> Vec<Traffic> {
        if peers.len() <= Traffic::PEERS_MAX {
            return peers;
        }
        let mut total = Traffic::default();
        for peer in peers {
            total.sent_bytes = total.sent_bytes.saturating_add(peer.sent_bytes);
            total.received_bytes = total.received_bytes.saturating_add(peer.received_bytes);
            (total.sent_s, total.received_s) =
                (total.sent_s.max(peer.sent_s), total.received_s.max(peer.received_s));
        }
        vec![total]
    }
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_no_time(seconds: &f64) -> bool {
    *seconds == 0.0
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
