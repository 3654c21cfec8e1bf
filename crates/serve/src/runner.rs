//! The seam to the processes: what the engine wants of a job's processes, and what they report.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::job::StopLimit;
use bellwether_core::outlook::Expected;
use bellwether_core::profile::Profile;
use bellwether_core::record::{EarlyEnd, RunOutcome, StepRecord};
use bellwether_session::machines::ProviderKind;

use crate::machine::DeviceType;
pub use processes::{Patience, Processes};

pub mod cluster;
pub mod follow;
mod processes;

/// What a job's processes should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The job.
    pub job: JobId,
    /// The folder of its run; it exists.
    pub run: PathBuf,
    /// Workers that should train; 0: all should leave with a checkpoint.
    pub workers: u32,
    /// Parameter servers beside them.
    pub servers: u32,
    /// Speed of their slots, relative to the fastest; below 1 they are slowed down.
    pub speed: f64,
    /// On a cluster, the nodes on which its workers and servers may run, and how many on each at most.
    pub places: Option<BTreeMap<String, u32>>,
    /// Whether the job is to be profiled before its workers train.
    pub profiles: bool,
    /// Whether there are no processes as far as is known, so that some begin; else a change of those that are there is
    /// wanted, and nothing when they have ended meanwhile.
    pub begins: bool,
    /// Where its machines come from, for a job with machines of its own; its slots are those of a cluster otherwise.
    pub provision: Option<(ProviderKind, Option<SocketAddr>)>,
    /// When the run ended as far as is known, in seconds since the Unix epoch as it says itself. Where it says that it
    /// was stopped at another time, that was done by hand, and it is not started again.
    pub known_end_unix_s: Option<f64>,
}

/// Makes processes as they are wanted.
///
/// # Laws
///
/// - Nothing here waits: what is wanted is noted, and done in the background; the newest wish for a job counts.
/// - A change that finds the run ended, because the report of that is still on its way, begins nothing.
/// - Where a coordinator lives for the run, no matter who started it, it is taken over; two never train one run.
/// - Every run that was wanted with workers is [reported](Report) to have ended at some time, with exactly one
///   [`Report::Ended`], [`Report::Lost`], [`Report::Failed`] or [`Report::Unplaced`]; after that nothing is reported of
///   it until it is wanted again. They come after everything else that was to be said of it.
/// - Of a job with machines of its own, an end is reported once they are given back, or cannot be: but for that of a
///   run that has finished, and of one that is lost while workers are wanted, which goes on with them.
/// - Processes outlive the runner.
pub trait JobRunner {
    /// Wants something of a job's processes from now on.
    fn want(&mut self, wanted: Wanted);

    /// Gives back what the runs in these folders, which no process leads any more, may hold of a provider's machines.
    fn release(&mut self, runs: Vec<PathBuf>);
}

/// A node of a cluster, as the cluster tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSeen {
    /// Its name.
    pub name: String,
    /// Why it takes no processes; `None` where it does.
    pub down: Option<String>,
    /// Its slots.
    pub slots: SlotsSeen,
}

/// The slots of a node, as the cluster tells of them.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotsSeen {
    /// Their type.
    pub device_type: DeviceType,
    /// How many there are.
    pub devices: u32,
    /// How many of them jobs hold that are not this daemon's.
    pub taken: u32,
}

/// What happened to a job's processes, or to nodes. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// This many workers are active since then.
    Training {
        /// The job.
        job: JobId,
        /// Active workers.
        workers: u32,
        /// Since when.
        unix_s: f64,
    },
    /// The coordinator knows that this many workers are wanted, and no more are at work, those that start or leave
    /// included. It comes once after each wish with workers, unless the run ends or another wish comes before.
    Settled {
        /// The job.
        job: JobId,
        /// Workers that are wanted.
        workers: u32,
    },
    /// The job was profiled, or could not be, for the reason; its workers train next.
    Profiled {
        /// The job.
        job: JobId,
        /// What was measured.
        profile: Result<Box<Profile>, String>,
    },
    /// How nodes are now; those that are not named have not changed.
    Nodes(Vec<NodeSeen>),
    /// Steps were committed; a few times per second.
    Progress {
        /// The job.
        job: JobId,
        /// Committed steps.
        step: u64,
        /// How long ago it was heard of the last of them.
        since: Duration,
        /// Loss of the last of them.
        loss: Option<f64>,
        /// Samples per second since the number of workers changed, over the last seconds at most; absent where too few
        /// steps tell.
        examples_per_s: Option<f64>,
    },
    /// Calm steps that a model can learn from: no warm-up, no newcomers who use the machine meanwhile.
    Steps {
        /// The job.
        job: JobId,
        /// Its workers.
        workers: u32,
        /// Speed of their slots.
        speed: f64,
        /// The steps.
        steps: Vec<StepRecord>,
        /// Part of the time meanwhile, 0…1, in which a process of the machine was ready and had no processor; absent
        /// where the system does not tell, and where the jobs' own workers are more than there are processors.
        processor_wait: Option<f64>,
    },
    /// The coordinator ended as it should, and said how.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        outcome: RunOutcome,
        /// The verdict that ended it before the last step of the job, where one did.
        ended_early: Option<EarlyEnd>,
        /// Committed steps.
        step: u64,
        /// Digest of what was trained, when it is known.
        digest: Option<String>,
        /// When.
        unix_s: f64,
        /// The limit of its job for which it was stopped, if it was.
        limit: Option<StopLimit>,
        /// Who asked for its end, or why, where somebody did.
        by: Option<String>,
    },
    /// The coordinator is gone without a word, or could not be started, or did not leave in time and was killed.
    Lost {
        /// The job.
        job: JobId,
        /// What is known of it.
        why: String,
    },
    /// It has failed for good: starting it again would not help, or was done often enough.
    Failed {
        /// The job.
        job: JobId,
        /// Why.
        why: String,
    },
    /// Some of a job's own machines could not be given back, for the reason.
    Left {
        /// The job.
        job: JobId,
        /// Why.
        why: String,
    },
    /// Its processes found no place within the time that they had, which is not the job's fault: it waits again.
    Unplaced {
        /// The job.
        job: JobId,
        /// What is known of it.
        why: String,
    },
    /// What becomes of jobs was foreseen, or could not be, for the reason.
    Expected {
        /// Of each job when it starts and ends, on the daemon's clock.
        expected: Result<BTreeMap<JobId, Expected>, String>,
        /// Time that it took.
        took: Duration,
    },
}
