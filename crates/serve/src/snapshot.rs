//! How things are, in the words of the HTTP API: what clients read is this, as JSON.
//!
//! Times are seconds since the Unix epoch unless their name says otherwise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bellwether_core::queue::QueuesFile;
use rpds::{RedBlackTreeMapSync, VectorSync};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All that clients can see at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Grows with every change.
    pub version: u64,
    /// The slots and who decides.
    pub cluster: Arc<ClusterState>,
    /// Jobs by name, those that ended included. A copy costs nothing, and a change what it changes.
    pub jobs: RedBlackTreeMapSync<String, Arc<JobState>>,
    /// Names in the order of submission.
    pub order: VectorSync<String>,
    /// The last decisions, oldest first.
    pub decisions: Arc<Vec<DecisionState>>,
    /// Who held which slot when: all that is held now, and the last that were, oldest first.
    pub spans: Arc<Vec<Span>>,
    /// The queues that divide the slots, as they were described; `None` where none do.
    pub queues: Option<Arc<QueuesFile>>,
    /// Folder of each job's run.
    pub folder: PathBuf,
}

/// The slots and who decides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterState {
    /// Version of the program.
    pub version: String,
    /// The daemon's process.
    pub process: u32,
    /// When the ledger began.
    pub since_s: f64,
    /// Seconds of the daemon's clock in a real second; policies see that clock.
    pub time_scale: f64,
    /// The policy that decides.
    pub policy: String,
    /// Nodes. A copy costs nothing.
    pub nodes: Arc<Vec<NodeState>>,
    /// Slots of all nodes.
    pub slots: u32,
    /// Slots that no job's processes hold, and none of the cluster's other users.
    pub free: u32,
    /// Number of jobs in each state.
    pub jobs: BTreeMap<Phase, u64>,
    /// Slot-seconds held over slot-seconds offered since the ledger began.
    pub utilization: f64,
    /// Why nothing is foreseen of any job now, in a sentence; absent unless the last look ahead failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_outlook: Option<String>,
    /// The queues that divide the slots, one after the queue above it; empty where none do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueState>,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueState {
    /// Its name, with those of the queues above it.
    pub name: String,
    /// Its part of the surplus, against those of the queues beside it.
    pub weight: f64,
    /// Its slots, by their type.
    pub slots: Vec<QueueSlots>,
    /// Number of its jobs in each state, and of those in queues below it.
    pub jobs: BTreeMap<Phase, u64>,
    /// Slot-seconds of the daemon's clock that it had, each counting half after every half-life; of two queues that
    /// borrow, who had less for its weight comes first.
    pub recent_slot_s: f64,
}

/// What a queue has of one type of slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueSlots {
    /// The type.
    pub device_type: String,
    /// What it has as soon as its jobs can use it, of the nodes that are up.
    pub guaranteed: u32,
    /// The most that it may hold; absent where that is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What its jobs hold by the last decision; what is beyond the guarantee is borrowed.
    pub held: u32,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeState {
    /// Its name, where it is a machine of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Why it takes no processes now; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// Type of its slots.
    pub device_type: String,
    /// Speed of its slots, relative to the fastest.
    pub speed: f64,
    /// Of each slot the job that holds it.
    pub slots: Vec<Option<String>>,
    /// How many of its slots the cluster's other users hold.
    #[serde(default, skip_serializing_if = "crate::ledger::is_zero")]
    pub taken: u32,
}

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits for slots.
    Queued,
    /// Its processes start.
    Starting,
    /// It trains.
    Running,
    /// Its processes leave with a checkpoint.
    Stopping,
    /// Its user wants it to wait.
    Suspended,
    /// All steps are done.
    Finished,
    /// It failed more often than it may, or can never run.
    Failed,
    /// Its user did not want it any more.
    Cancelled,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 8] = [
        Phase::Queued,
        Phase::Starting,
        Phase::Running,
        Phase::Stopping,
        Phase::Suspended,
        Phase::Finished,
        Phase::Failed,
        Phase::Cancelled,
    ];

    /// Their names, in the same order, as they stand in JSON.
    pub const NAMES: [&str; 8] =
        ["queued", "starting", "running", "stopping", "suspended", "finished", "failed", "cancelled"];

    /// Its name.
    ///
    /// ```
    /// use bellwether_serve::snapshot::Phase;
    /// for (phase, name) in Phase::ALL.into_iter().zip(Phase::NAMES) {
    ///     assert_eq!((serde_json::json!(phase), phase.name()), (name.into(), name));
    /// }
    /// ```
    pub fn name(self) -> &'static str {
        Phase::NAMES[self as usize]
    }

    /// Whether it is over.
    pub fn has_ended(self) -> bool {
        matches!(self, Phase::Finished | Phase::Failed | Phase::Cancelled)
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobState {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: Phase,
    /// Why it is in this state, where that needs to be said; empty otherwise.
    pub why: String,
    /// Its queue, where queues divide the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Who submitted it; absent where that was the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Who gives its machines, where it takes none of the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// When it was accepted.
    pub submitted_s: f64,
    /// When its processes first started.
    pub started_s: Option<f64>,
    /// When it ended.
    pub ended_s: Option<f64>,
    /// When it will end if it keeps its workers, by what is believed.
    pub expected_end_s: Option<f64>,
    /// What is foreseen of it; absent where nothing is yet, and once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<JobOutlook>,
    /// When it should be done.
    pub deadline_s: Option<f64>,
    /// Its share against those of others.
    pub weight: f64,
    /// Fewest workers that it may have.
    pub min_workers: u32,
    /// Most workers that it may have.
    pub max_workers: u32,
    /// Workers that train now.
    pub workers: u32,
    /// Workers that the policy gave it.
    pub target_workers: u32,
    /// Parameter servers, and their replicas, each with a slot of its own beside those of the workers.
    #[serde(default)]
    pub servers: u32,
    /// Types of slot that can hold a worker, by its profile; empty where all can, or nothing is known of that.
    #[serde(default)]
    pub fits: Vec<String>,
    /// The ways in which its workers may be kept together, where its first start decides that.
    #[serde(default)]
    pub ways: Vec<String>,
    /// Committed steps.
    pub step: u64,
    /// Steps of the whole job.
    pub total_steps: u64,
    /// Training loss of the last step that was heard of.
    pub loss: Option<f64>,
    /// Measured samples per second with the present workers, in real time.
    pub examples_per_s: Option<f64>,
    /// Predicted samples per second with the workers that the policy gave it, in real time.
    pub predicted_examples_per_s: Option<f64>,
    /// Lower end of its 95 % interval.
    pub predicted_low: Option<f64>,
    /// Upper end of the interval.
    pub predicted_high: Option<f64>,
    /// What it rests on where such steps were not observed: a profile, a declared time, other numbers of workers.
    #[serde(default)]
    pub predicted_beyond: Option<String>,
    /// How often it lost all workers before its end because the policy or its user wanted it.
    pub preemptions: u32,
    /// How often its processes failed.
    pub failures: u32,
    /// Worker-seconds that it held, in real time.
    pub worker_s: f64,
    /// Digest of what was trained, once it is finished.
    pub digest: Option<String>,
    /// Folder of its run.
    pub run_dir: PathBuf,
}

/// What is foreseen of a job, by simulating the policy and what is believed of all jobs forward.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobOutlook {
    /// What it waits for, in a sentence; empty where it has slots.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    /// Jobs that wait too, and will start before it, by their medians.
    #[serde(default)]
    pub ahead: u32,
    /// Names of those of them that are next before it and in the same queue, the next last; three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead_names: Vec<String>,
    /// When it starts; absent where it has slots, and where it starts in no simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Times>,
    /// When it ends; absent where it ends in no simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Times>,
}

/// When something happens: nine times of ten within this interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// The earliest.
    pub low_s: f64,
    /// The median; absent where it happens in fewer than half of the simulations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middle_s: Option<f64>,
    /// The latest; absent where it does not happen in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_s: Option<f64>,
}

/// A decision of the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionState {
    /// Its number, from 1.
    pub number: u64,
    /// When it was made.
    pub time_s: f64,
    /// Who made it.
    pub policy: String,
    /// Why, in a sentence.
    pub reason: String,
    /// What was to be done.
    pub actions: Vec<ActionState>,
    /// Seconds that the policy took.
    pub deciding_s: f64,
}

/// Something that was to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionState {
    /// The job.
    pub job: String,
    /// Workers before.
    pub from: u32,
    /// Workers from then on; 0 to wait.
    pub to: u32,
    /// Why it is refused; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<String>,
    /// Samples per second that were expected of it, in real time.
    pub expected_examples_per_s: Option<f64>,
    /// Samples per second that were measured then, in real time, as soon as they are known.
    pub measured_examples_per_s: Option<f64>,
    /// Seconds from the decision until it was so.
    pub took_s: Option<f64>,
}

/// A job held a slot for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// The job.
    pub job: String,
    /// Number of the node.
    pub node: u32,
    /// The slot's place in it.
    pub slot: u32,
    /// Since when.
    pub start_s: f64,
    /// Until when; absent while it holds it.
    pub end_s: Option<f64>,
}

/// A point of a job's curves, over as many steps as were put together for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// The last of the steps.
    pub step: u64,
    /// When it was committed.
    pub time_s: Option<f64>,
    /// Mean training loss.
    pub loss: Option<f64>,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Workers.
    pub workers: u32,
}

/// A job's model on its held-out samples at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationPoint {
    /// The last step before it.
    pub step: u64,
    /// When it was measured.
    pub time_s: f64,
    /// Mean loss on the held-out samples.
    pub loss: Option<f64>,
    /// Share of right predictions, 0 to 1.
    pub accuracy: Option<f64>,
}

/// The body of every error answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What is wrong, in one sentence.
    pub error: String,
    /// Where: a key of the body, a part of the address, a header.
    pub place: String,
    /// What to do about it; empty when the sentence already says it.
    pub hint: String,
}
