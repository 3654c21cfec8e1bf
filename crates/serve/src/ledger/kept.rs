//! What a compacted ledger holds in the place of all lines before: the state that followed from them.
//!
//! Its first line is [`Entry::Compacted`], then come a line for each job and each decision that is remembered, and one
//! for the rest. The first line takes the place of [`Entry::Opened`], so that a release which knows nothing of
//! compaction refuses the ledger, rather than setting aside every line that it does not understand.
//!
//! A field that a later release adds needs a default: these lines are read by it, too.

use std::collections::BTreeSet;

use bellwether_core::cluster::{JobId, JobView, NodeId};
use bellwether_core::job::WorkerRange;
use bellwether_core::policy::Changes;
use bellwether_core::queue::QueuesFile;
use bellwether_model::observed::Observed;
use bellwether_sched::queues::History;
use serde::{Deserialize, Serialize};

use super::{Outcome, Submitted};
use crate::early_ends::EarlyEnds;
use crate::machine::Slot;

#[cfg(doc)]
use super::Entry;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptJob {
    /// Its account.
    pub record: Record,
    /// What policies see of it, if it is in their view.
    pub seen: Option<JobView>,
}

/// What is known of a job beside what policies see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// As it was accepted.
    pub submitted: Box<Submitted>,
    /// When, on the daemon's clock.
    pub submitted_s: f64,
    /// Steps of the whole job.
    pub total_steps: u64,
    /// The numbers of workers that it may have once it was profiled, as long as it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_profile: Option<WorkerRange>,
    /// What policies saw of it last, while its user wants it to wait.
    pub away: Option<JobView>,
    /// What policies would see of it, while it should run on machines of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<JobView>,
    /// Whether machines of its own may be there, or on their way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub obtaining: bool,
    /// Its user does not want it any more.
    pub cancelled: bool,
    /// Its processes were told to leave.
    pub leaving: bool,
    /// How it ended.
    pub end: Option<End>,
    /// Why it is as it is, where that needs to be said.
    pub why: String,
    /// Training loss at its end.
    pub loss: Option<f64>,
    /// Committed steps, as far as the ledger knows.
    pub step: u64,
    /// Active workers.
    pub training: u32,
    /// How often its processes failed.
    pub failures: u32,
    /// How often it lost all its workers before its end.
    pub preemptions: u32,
    /// When its run ended last though the job was not over, in seconds since the Unix epoch as it says itself.
    pub run_ended_unix_s: Option<f64>,
    /// When its processes first held slots, on the daemon's clock.
    pub started_s: Option<f64>,
    /// Slots that its processes hold, and since when, on the daemon's clock.
    pub(crate) held: (u32, f64),
    /// Slot-seconds until then.
    pub(crate) slot_s: f64,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// In a word.
    pub outcome: Outcome,
    /// Committed steps.
    pub step: u64,
    /// Digest of what was trained.
    pub digest: Option<String>,
    /// When, on the daemon's clock.
    pub time_s: f64,
}

/// What is not of one job or one decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptState {
    /// The policy that decides; empty before the first was chosen.
    pub policy: String,
    /// How often a policy began to decide.
    pub policies: u64,
    /// What happened since the policy was last asked.
    pub changes: Changes,
    /// Who holds which slot, and who held it.
    pub slots: KeptSlots,
    /// Jobs of whose processes nothing is known since lines of the ledger were lost.
    pub unsettled: BTreeSet<JobId>,
    /// What was observed of the speeds of jobs.
    pub observed: Observed,
    /// Number of decisions.
    pub decided: u64,
    /// Nodes that take no processes, each with the reason. Not a map: its keys would be text, which is not read back as
    /// numbers among the other fields of a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<(NodeId, String)>,
    /// Nodes with slots that others' jobs hold, and how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<(NodeId, u32)>,
    /// The queues that divide the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<KeptQueues>,
    /// What is learnt of early ends.
    #[serde(default)]
    pub early_ends: EarlyEnds,
}

/// The queues that divide the slots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptQueues {
    /// As they were described.
    pub file: QueuesFile,
    /// What each of them had of late.
    pub history: History,
    /// By queue and type of slot, what its jobs held after the last decision.
    pub held: Vec<Vec<u32>>,
}

/// The slots that processes hold, and those that they held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSlots {
    /// Those of now.
    pub held: Vec<Held>,
    /// The last that are over, oldest first.
    pub past: Vec<Held>,
    /// Slot-seconds of all that are over.
    pub past_slot_s: f64,
}

/// A job held a slot from then until then, on the daemon's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The job.
    pub job: JobId,
    /// The slot.
    pub slot: Slot,
    /// Since when, in seconds.
    pub start_s: f64,
    /// Until when, in seconds; absent while it is held.
    pub end_s: Option<f64>,
}
