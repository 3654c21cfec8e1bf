//! What clients ask of the engine, and what it answers.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job, SyncPolicy, WorkerRange};
use bellwether_core::prediction::ProfiledRate;
use bellwether_core::profile::Profile;
use bellwether_core::queue::QueuesFile;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

use crate::ledger::Task;
use crate::provision::Provision;
use crate::snapshot::{JobState, Snapshot};

/// A wish.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Accept a job.
    Submit(Box<Submission>),
    /// Change the limits of a job that has not ended; what is absent stays.
    Limit {
        /// Its name.
        job: String,
        /// Numbers of workers that it may have.
        workers: Option<WorkerRange>,
        /// Its share against those of others.
        weight: Option<f64>,
    },
    /// Let a job wait until it is resumed.
    Suspend {
        /// Its name.
        job: String,
        /// Who asks, in the words of a sentence.
        by: String,
    },
    /// Let a suspended job run again.
    Resume {
        /// Its name.
        job: String,
    },
    /// End a job.
    Cancel {
        /// Its name.
        job: String,
    },
    /// Let another policy decide from now on.
    Choose {
        /// Its name, with options after a colon.
        policy: String,
        /// Who asks.
        by: String,
    },
    /// Tell what a job was submitted as.
    Describe {
        /// Its name.
        job: String,
    },
    /// Let other queues divide the slots from now on, or none.
    Divide {
        /// They.
        queues: Option<QueuesFile>,
        /// Who asks.
        by: String,
    },
}

/// A job to be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// What is trained; its paths are absolute.
    pub job: CheckedJob,
    /// The name that it shall have; without one it gets its job's, and a number.
    pub name: Option<String>,
    /// Numbers of workers, where they are not those of the job file.
    pub workers: Option<WorkerRange>,
    /// Its share against those of others; 1 where nothing is said.
    pub weight: f64,
    /// Seconds from now on within which it should be done.
    pub deadline_s: Option<f64>,
    /// What is known of its task.
    pub task: Task,
    /// What was measured of it before.
    pub profile: Option<Box<Profile>>,
    /// What is known of its speed otherwise.
    pub rates: Vec<ProfiledRate>,
    /// Who may wait for whom, where that is not what the job file says; of several, its first start decides.
    pub protocols: Vec<SyncPolicy>,
    /// Numbers of parameter servers, where they are not the job file's; of several, its first start decides.
    pub servers: Option<WorkerRange>,
    /// Whether it is to be profiled on one slot before it trains.
    pub profile_first: bool,
    /// The client's own word for this submission: asked twice, it is accepted once.
    pub key: Option<String>,
    /// Its queue, where it names one.
    pub queue: Option<String>,
    /// Who submits it, where that is not the daemon's owner.
    pub user: Option<String>,
    /// Where its machines come from, where it should take none of the slots.
    pub provision: Option<Provision>,
}

impl Submission {
    /// A job under another name, accepted once for each `key`; all else is as it says itself.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot have the name.
    pub fn named(job: CheckedJob, task: Task, name: &str, key: String) -> Result<Submission, InputError> {
        Ok(Submission {
            job: job.edit(|job| name.clone_into(&mut job.name))?,
            name: Some(name.to_owned()),
            workers: None,
            weight: 1.0,
            deadline_s: None,
            task,
            profile: None,
            rates: Vec::new(),
            protocols: Vec::new(),
            servers: None,
            profile_first: false,
            key: Some(key),
            queue: None,
            user: None,
            provision: None,
        })
    }
}

/// The answer to a wish that was granted: it is on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The job as it is now. It was accepted before when a submission came again.
    Job {
        /// The job.
        job: Arc<JobState>,
        /// Whether this request accepted it.
        created: bool,
    },
    /// The policy that decides from now on.
    Policy(String),
    /// The job file of a job, as it was accepted.
    Description(Box<Job>),
    /// The queues that divide the slots from now on.
    Queues(Option<QueuesFile>),
}

/// Why a wish was not granted; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of mistake it is.
    pub kind: RefusalKind,
    /// What is wrong, where, and what to do.
    pub error: InputError,
}

/// Kinds of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// What was sent cannot be done: HTTP 422.
    Invalid,
    /// There is no such job: HTTP 404.
    Unknown,
    /// It does not fit the present state, as a name that is taken: HTTP 409.
    Conflict,
    /// The daemon cannot do its work now: HTTP 503.
    Unavailable,
}

/// A wish on its way to the engine, with the place for its answer.
pub type Pending = (Request, oneshot::Sender<Result<Reply, Refusal>>);

/// The clients' end of the engine.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    /// Wishes.
    pub requests: mpsc::UnboundedSender<Pending>,
    /// How things are, replaced as a whole whenever something changed, at most some tens of times per second.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl EngineHandle {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// Returns what the engine refuses; [`RefusalKind::Unavailable`] when it is gone.
    pub async fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        let gone = || Refusal {
            kind: RefusalKind::Unavailable,
            error: InputError::new("serve", "the daemon is shutting down").hint("try again when it is back"),
        };
        let (sender, receiver) = oneshot::channel();
        self.requests.send((request, sender)).map_err(|_| gone())?;
        receiver.await.unwrap_or_else(|_| Err(gone()))
    }

    /// How things are.
    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }
}
