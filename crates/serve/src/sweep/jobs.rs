//! What a sweep asks of whatever runs its trials: an engine in its own process, or a daemon.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_core::knowledge::Knowledge;
use bellwether_runtime::run_dir::StateDir;
use bellwether_sched::registry::Registry;
use tokio::sync::{oneshot, watch};

use crate::daemon;
use crate::engine::{self, Engine, EngineError};
use crate::machine::Machine;
use crate::request::{EngineHandle, Refusal, RefusalKind, Reply, Request, Submission};
use crate::runner::Processes;
use crate::snapshot::JobState;

/// The policy of an engine that has only the trials of a sweep: what each may have is said trial by trial.
const POLICY: &str = "fair";

/// The engine's ledger in its folder.
const LEDGER: &str = "ledger.jsonl";

/// Why something asked for was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The engine refuses it: the trial cannot be trained.
    #[error("{0}")]
    Refused(InputError),
    /// The engine does not answer, or has ended: no trial can go on.
    #[error("{0}")]
    Gone(InputError),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Trouble {
        match refusal.kind {
            RefusalKind::Unavailable => Trouble::Gone(refusal.error),
            _ => Trouble::Refused(refusal.error),
        }
    }
}

/// What runs trials.
///
/// # Laws
///
/// A submission with the key of an earlier one changes nothing. All else may be asked again, and is done once.
pub trait Jobs {
    /// Accepts a job.
    ///
    /// # Errors
    ///
    /// A refusal, or an engine that is gone.
    fn submit(&mut self, submission: Submission) -> Result<(), Trouble>;

    /// Changes the numbers of workers that a job may have.
    ///
    /// # Errors
    ///
    /// As [`submit`](Jobs::submit).
    fn limit(&mut self, job: &str, workers: WorkerRange) -> Result<(), Trouble>;

    /// Does something with a job.
    ///
    /// # Errors
    ///
    /// As [`submit`](Jobs::submit).
    fn act(&mut self, job: &str, act: Act) -> Result<(), Trouble>;

    /// How the jobs are whose names begin so.
    ///
    /// # Errors
    ///
    /// An engine that is gone.
    fn look(&mut self, prefix: &str) -> Result<BTreeMap<String, JobState>, Trouble>;
}

/// What is done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It waits, with a checkpoint.
    Suspend,
    /// It goes on.
    Resume,
    /// It ends.
    Cancel,
}

/// An engine in this process, without a server. Dropping it ends the engine, not the jobs: see [`Jobs`].
pub struct Embedded {
    handle: EngineHandle,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<(), EngineError>>>,
}

/// How an embedded engine works.
pub struct Room {
    /// Folder of the runs and of the engine's ledger.
    pub folder: PathBuf,
    /// Slots for workers.
    pub slots: u32,
    /// The command, which leads runs.
    pub program: PathBuf,
    /// Is told what the owner should know, in a sentence.
    pub tell: engine::Tell,
}

impl Embedded {
    /// Opens the engine, which takes up the jobs that are in its folder.
    ///
    /// # Errors
    ///
    /// Returns an error if its ledger cannot be read, or was made for another number of slots.
    pub fn open(room: Room) -> Result<Embedded, InputError> {
        let (sender, opened) = mpsc::channel();
        let place = room.folder.display().to_string();
        let wrong = {
            let place = place.clone();
            move |why: String| InputError::new(place.clone(), why)
        };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            let (engine, channels) = match open(room) {
                Ok(open) => open,
                Err(error) => {
                    let _ = sender.send(Err(error.to_string()));
                    return Err(error);
                }
            };
            // Without a receiver nothing is to be run.
            match sender.send(Ok((channels.engine, channels.stop))) {
                Ok(()) => engine.run(),
                Err(_) => Ok(()),
            }
        });
        let thread = thread.map_err(|error| wrong(format!("no thread can be started: {error}")))?;
        let (handle, stop) = match opened.recv() {
            Ok(Ok(ends)) => ends,
            Ok(Err(why)) => {
                return Err(wrong(why).hint("use the numbers of workers of before, or another --folder"));
            }
            Err(_) => return Err(wrong("the engine ended at once".into())),
        };
        Ok(Embedded { handle, stop, thread: Some(thread) })
    }

    fn ask(&self, request: Request) -> Result<Reply, Trouble> {
        let gone = || Trouble::Gone(InputError::new("sweep", "the engine has ended"));
        let (sender, receiver) = oneshot::channel();
        self.handle.requests.send((request, sender)).map_err(|_| gone())?;
        receiver.blocking_recv().map_err(|_| gone())?.map_err(Trouble::from)
    }

    /// Ends the engine, and says what had ended it before.
    ///
    /// # Errors
    ///
    /// What ended the engine.
    pub fn close(mut self) -> Result<(), EngineError> {
        self.stop.send_replace(true);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

fn open(room: Room) -> Result<(Engine<Processes>, engine::Channels), EngineError> {
    let Room { folder, slots, program, tell } = room;
    let ledger = folder.join(LEDGER);
    let state_dir = StateDir::find(Some(folder.clone()))
        .map_err(|error| InputError::new(folder.display().to_string(), error))?;
    let options = engine::Options {
        folder,
        machine: (!ledger.exists()).then(|| Machine::slots(slots)),
        ledger,
        policy: Some(POLICY.into()),
        queues: None,
        time_scale: None,
        registry: Registry::built_in(),
        retries: daemon::RETRIES,
        // What trials promise is the sweep's to know.
        remaining: Some(Knowledge::Nominal),
        compact_at: daemon::COMPACT_AT_BYTES,
        prepare: daemon::prepare(state_dir),
        outlook: None,
        tell,
    };
    Engine::open(options, |reports| Processes::new(program, move |report| drop(reports.send(report))))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // What ended it was said by the requests that were not answered.
            let _ = thread.join();
        }
    }
}

impl Jobs for Embedded {
    fn submit(&mut self, submission: Submission) -> Result<(), Trouble> {
        self.ask(Request::Submit(Box::new(submission))).map(drop)
    }

    fn limit(&mut self, job: &str, workers: WorkerRange) -> Result<(), Trouble> {
        let (job, workers, weight) = (job.to_owned(), Some(workers), None);
        self.ask(Request::Limit { job, workers, weight }).map(drop)
    }

    fn act(&mut self, job: &str, act: Act) -> Result<(), Trouble> {
        let job = job.to_owned();
        let request = match act {
            Act::Suspend => Request::Suspend { job, by: "the sweep".into() },
            Act::Resume => Request::Resume { job },
            Act::Cancel => Request::Cancel { job },
        };
        self.ask(request).map(drop)
    }

    fn look(&mut self, prefix: &str) -> Result<BTreeMap<String, JobState>, Trouble> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(Trouble::Gone(InputError::new("sweep", "the engine has ended")));
        }
        let snapshot = self.handle.now();
        let jobs = snapshot.jobs.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(jobs.map(|(name, job)| (name.clone(), job.as_ref().clone())).collect())
    }
}
