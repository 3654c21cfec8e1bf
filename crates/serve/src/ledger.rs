//! The ledger: every fact that the daemon decides by, one JSON line each, in the order in which it came to know them.

mod file;
mod kept;
mod lines;
mod repair;

use bellwether_core::cluster::{JobId, NodeId};
use bellwether_core::job::{Job, Sync, WorkerRange};
use bellwether_core::knowledge::Knowledge;
use bellwether_core::policy::Decision;
use bellwether_core::prediction::ProfiledRate;
use bellwether_core::queue::QueuesFile;
use bellwether_core::record::StepRecord;
use bellwether_runtime::membership::WorkloadDescription;
use serde::{Deserialize, Serialize};

use crate::machine::{DeviceType, Machine, Slot};
use crate::provision::Provision;
use crate::snapshot::DecisionState;
pub use file::{Compaction, FileStore, Keep, LedgerFile, Store, read, read_from};
pub use kept::{End, Held, KeptJob, KeptQueues, KeptSlots, KeptState, Record};
pub use repair::Damage;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds on the daemon's clock, which begins with the ledger and goes on while no daemon lives.
    pub time_s: f64,
    /// What became known.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What became known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The ledger begins; its first line.
    Opened {
        /// Version of the program.
        version: String,
        /// Time 0 of the ledger, in seconds since the Unix epoch.
        unix_s: f64,
        /// Seconds of the daemon's clock in a real second.
        time_scale: f64,
        /// The slots.
        machine: Machine,
    },
    /// The ledger goes on from a state that followed from longer ones; its first line, in the place of `Opened`.
    Compacted {
        /// Version of the program.
        version: String,
        /// Time 0 of the ledger, in seconds since the Unix epoch.
        unix_s: f64,
        /// Seconds of the daemon's clock in a real second.
        time_scale: f64,
        /// The slots.
        machine: Machine,
    },
    /// After it: a job of that state.
    KeptJob(Box<KeptJob>),
    /// The same of a job with machines of its own: a release that knows of none refuses the ledger.
    KeptElsewhere(Box<KeptJob>),
    /// After the jobs: a decision that is remembered.
    KeptDecision {
        /// The decision.
        decision: DecisionState,
    },
    /// After both: the rest of the state.
    KeptState(Box<KeptState>),
    /// A daemon took the ledger up again; a fresh policy takes over the jobs that are there.
    Reopened {
        /// Version of the program.
        version: String,
        /// Its process.
        process: u32,
    },
    /// Lines that were damaged, or could not be, were set aside. What they said of processes is not known: all leave,
    /// each with a checkpoint, and a fresh policy decides when they are gone.
    Repaired {
        /// How many lines.
        lines: u64,
    },
    /// The machine's clock was set: the ledger's own clock goes on as before, and is read otherwise.
    ClockCorrected {
        /// Time 0 of the ledger from now on, in seconds since the Unix epoch.
        unix_s: f64,
        /// By how many seconds that is later than before.
        by_s: f64,
    },
    /// A fresh policy decides from now on; all jobs that are there are new to it.
    PolicyChosen {
        /// Its name with its options.
        policy: String,
        /// Who chose.
        by: String,
    },
    /// What policies are told of the work that remains of a job, from now on; `nominal` before this was said first.
    RemainingChosen {
        /// It.
        remaining: Knowledge,
    },
    /// Other queues divide the slots from now on, or none do; a fresh policy decides.
    QueuesChosen {
        /// The queues; `None` where nothing divides the slots.
        queues: Option<QueuesFile>,
        /// Who chose.
        by: String,
    },
    /// A node takes no more processes, or takes them again.
    Node {
        /// The node.
        node: NodeId,
        /// Whether it takes processes from now on.
        up: bool,
        /// Why it does not.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A cluster's node has these slots from now on. One that was not there joins.
    Slots {
        /// The node's name.
        node: String,
        /// Type of the slots.
        device_type: DeviceType,
        /// How many there are.
        devices: u32,
        /// How many of them others' jobs hold.
        #[serde(default, skip_serializing_if = "is_zero")]
        taken: u32,
    },
    /// A job was accepted.
    Submitted(Box<Submitted>),
    /// A job's limits were changed by its user.
    Limited {
        /// The job.
        job: JobId,
        /// The numbers of workers that it may have from now on.
        workers: WorkerRange,
        /// Its share against those of others.
        weight: f64,
    },
    /// A job's user wants it to wait.
    Suspended {
        /// The job.
        job: JobId,
        /// Who asked.
        by: String,
    },
    /// A suspended job may run again.
    Resumed {
        /// The job.
        job: JobId,
    },
    /// A job's user does not want it any more.
    Cancelled {
        /// The job.
        job: JobId,
    },
    /// Steps of a job were observed: what is believed of all jobs of its kind is known better.
    Learnt {
        /// The job.
        job: JobId,
        /// Its workers.
        workers: u32,
        /// Speed of their slots.
        speed: f64,
        /// The steps.
        steps: Vec<StepRecord>,
        /// Part of the time meanwhile, 0…1, in which a process of the machine was ready and had no processor; absent
        /// where it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        processor_wait: Option<f64>,
        /// Whether the policy is told.
        matters: bool,
    },
    /// A job was profiled before it trains, or could not be.
    Profiled {
        /// The job.
        job: JobId,
        /// What the profile says of it on the slots; empty where there is none.
        rates: Vec<ProfiledRate>,
        /// Types of slot that can hold a worker, as places in the machine's list; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        device_types: Vec<u16>,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// The policy is asked; running jobs are as far as this.
    Moment {
        /// Of the running jobs those that were heard of.
        progress: Vec<Progress>,
    },
    /// What the policy answered.
    Decided {
        /// The answer.
        #[serde(flatten)]
        decision: Decision,
        /// Seconds that it took.
        deciding_s: f64,
    },
    /// From now on a job's processes hold these slots.
    Held {
        /// The job.
        job: JobId,
        /// The slots, in ascending order.
        slots: Vec<Slot>,
    },
    /// From now on machines of its own may be asked for, or be there, for a job.
    Obtaining {
        /// The job.
        job: JobId,
    },
    /// A job trains with this many workers since now.
    Training {
        /// The job.
        job: JobId,
        /// Active workers.
        workers: u32,
    },
    /// What a decision brought.
    Measured {
        /// Number of the decision, from 1.
        decision: u64,
        /// The job.
        job: JobId,
        /// Samples per second, in real time.
        examples_per_s: f64,
    },
    /// A job's processes are told to leave with a checkpoint.
    Leaving {
        /// The job.
        job: JobId,
    },
    /// A job's processes left, with a checkpoint unless something is said; they hold no slots any more.
    Stopped {
        /// The job.
        job: JobId,
        /// Committed steps.
        step: u64,
        /// What happened to them, where that needs to be said.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
        /// When its run ended, in seconds since the Unix epoch as it says itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unix_s: Option<f64>,
    },
    /// A job's processes ended though it was not done; it is tried again.
    Retried {
        /// The job.
        job: JobId,
        /// How often it failed, this time included.
        failures: u32,
        /// Why.
        why: String,
        /// When its run ended, in seconds since the Unix epoch as it says itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unix_s: Option<f64>,
    },
    /// A job is over.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// Why, where that needs to be said.
        why: String,
        /// Committed steps.
        step: u64,
        /// Digest of what was trained, when it is known.
        digest: Option<String>,
        /// Training loss of the last step that was heard of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss: Option<f64>,
        /// When its processes ended, in seconds since the Unix epoch, where that was before this line: while no daemon
        /// lived.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unix_s: Option<f64>,
    },
}

/// A job, as it was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its number, in order of acceptance.
    pub id: JobId,
    /// Its name, which is also that of its run's folder.
    pub name: String,
    /// What is trained. It was checked when it was accepted; a ledger is read whatever later releases check.
    pub job: Job,
    /// Numbers of workers that it may have.
    pub workers: WorkerRange,
    /// Its share against those of others; `priority` puts the highest first.
    pub weight: f64,
    /// When it should be done, in seconds on the daemon's clock.
    pub deadline_s: Option<f64>,
    /// What is known of its task.
    pub task: Task,
    /// What jobs of equal speed have in common.
    pub kind: String,
    /// Slots of its parameter servers and their replicas, beside those of its workers; 0, too, for a job that an
    /// earlier release accepted, which counted none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub servers: u32,
    /// What its profile says of it on the slots, where it came with one: the first decisions about it rest on that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiled: Vec<ProfiledRate>,
    /// Types of slot that can hold a worker, by the profile, as places in the machine's list; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_types: Vec<u16>,
    /// The ways in which its workers may be kept together, where that is open until its first start; `kind` is then a
    /// name for all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<OpenWay>,
    /// Whether it is profiled on one slot before it trains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile_first: bool,
    /// The client's own word for this submission, if it gave one: the same word is the same submission.
    pub key: Option<String>,
    /// Its queue, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Who submitted it, where that was not the daemon's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where its machines come from, where it takes none of the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
}

/// One of the ways in which the workers of a job may be kept together, and what is so then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenWay {
    /// The job's table `[sync]`.
    pub sync: Sync,
    /// Slots of its servers and their replicas.
    pub servers: u32,
    /// What jobs of equal speed have in common.
    pub kind: String,
    /// What its profile says of it on the slots.
    pub profiled: Vec<ProfiledRate>,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The size of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Samples of an epoch.
    pub training_samples: u64,
    /// Bytes of gradients and state that a step exchanges.
    pub bytes: u64,
}

impl Task {
    /// That of what is trained.
    pub fn of(workload: &WorkloadDescription) -> Task {
        let values = workload.layout.parameter_count() + workload.layout.state_count();
        Task { training_samples: workload.training_samples, bytes: 4 * values as u64 }
    }
}

/// How far a running job is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// Committed samples.
    pub done: f64,
    /// Samples per second of the daemon's clock, as measured since its workers changed; absent where too few steps
    /// were.
    pub rate: Option<f64>,
    /// Seconds of the daemon's clock for which it has gone on at this rate since then; 0 in ledgers of earlier
    /// releases, which took what was heard last for what is so now.
    #[serde(default, skip_serializing_if = "is_none_s")]
    pub since_s: f64,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none_s(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All steps are done.
    Finished,
    /// It failed more often than it may.
    Failed,
    /// Its user did not want it any more.
    Cancelled,
    /// The policy will never run it.
    Refused,
}
