//! Searches for the share of synchronous steps that a recurring job needs: trains it again and again, and
//! keeps on disk how far the search is and what it found.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::{Job, SyncPolicy};
use bellwether_core::prediction::Protocol;
use bellwether_runtime::run_dir::{RunDirError, StateDir};
use bellwether_sched::tune::{Ask, Outcome, Session};

mod report;
mod session;
mod state;
mod tuned;

pub use report::{Report, SettingReport};
pub use state::State;
use state::then;
pub use tuned::{Tuned, key};

/// A search cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The job, a file or this machine cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A run's folder cannot be read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The file of a search cannot be read.
    #[error("{}: the search cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The search began for another job, or with other wishes.
    #[error("{what} was another when the search began")]
    Other {
        /// What is otherwise.
        what: String,
    },
    /// A session was stopped.
    #[error("{run} was stopped")]
    Stopped {
        /// The session's run.
        run: String,
    },
}

/// What happens in a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A session begins.
    Session {
        /// Which it is, from 1 on.
        number: usize,
        /// Sessions at most.
        most: u32,
        /// Share of its steps that are synchronous.
        fraction: f64,
        /// Its seed.
        seed: u64,
    },
    /// It goes on, every few seconds.
    Step {
        /// Steps that are done.
        committed: u64,
        /// Steps of the session, once known.
        total: Option<u64>,
    },
    /// It ended.
    Trained {
        /// How good the model became.
        outcome: Outcome,
        /// Seconds that it took.
        seconds: f64,
    },
}

/// Hears what happens in a search.
pub type Tell<'t> = dyn FnMut(Progress) + 't;

/// The folder with the runs of a search that is kept at `path`.
pub fn sessions_folder(path: &Path) -> PathBuf {
    path.with_extension("sessions")
}

/// Trains until the search is over, and keeps at `path` how far it is. Each session is a run by `program`,
/// which is started as `PROGRAM run --resume …` and outlives a search that is killed.
///
/// # Errors
///
/// Returns an error for a session that cannot be trained or was stopped, a file that cannot be written.
pub fn search(
    state: &mut State,
    job: &Job,
    path: &Path,
    program: &Path,
    tell: &mut Tell<'_>,
) -> Result<(), SearchError> {
    let folder = StateDir::find(Some(sessions_folder(path)))?;
    while let Ask::Run { fraction, run } = state.search.next() {
        let number = state.search.sessions().len() + 1;
        let variant = variant(job, fraction, run);
        tell(Progress::Session { number, most: state.search.most_sessions(), fraction, seed: variant.seed });
        let name = format!("{}-{number}", job.name);
        let trained = session::train(&folder, &name, &variant, program, tell)?;
        let session::Trained { outcome, seconds, samples, folder } = trained;
        state.search.tell(Session { fraction, run, outcome, seconds, samples })?;
        state.write(path)?;
        let _ = fs::remove_dir_all(folder);
        tell(Progress::Trained { outcome, seconds });
    }
    Ok(())
}

/// The job of one session: which share is synchronous, and with which seed.
fn variant(job: &Job, fraction: f64, run: u32) -> Job {
    let mut job = job.clone();
    job.sync.policy = policy(&job, fraction);
    job.seed = job.seed.wrapping_add(u64::from(run));
    job
}

/// Synchronous for a share of the steps, then as the job's own policy goes on, or asynchronous.
fn policy(job: &Job, fraction: f64) -> SyncPolicy {
    let phases = match fraction < 1.0 {
        true => vec![(0.0, Protocol::Bsp), (fraction, then(job))],
        false => vec![(0.0, Protocol::Bsp)],
    };
    SyncPolicy::Phases(phases)
}
