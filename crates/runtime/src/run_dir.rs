//! The folder of a run: the names of its files, and how each of them is read and written.
//!
//! | file | holds | written by |
//! |---|---|---|
//! | `job.json` | the [job](Job) | the creator of the run |
//! | `token` | the run's [token](Token), for its owner's eyes only | the creator of the run |
//! | `schedule.json` | scheduled changes of the number of workers | the program that starts a coordinator |
//! | `run_id` | the run's random name | the first coordinator |
//! | `origin` | where the checkpoints are of the run that this one goes on from | the creator of the run |
//! | `journal.jsonl` | what happened, a [line](bellwether_core::record::Line) each | the coordinator |
//! | `resume_point.json` | what the journal told at the last checkpoint; it may be removed | the coordinator |
//! | `metrics.jsonl` | what each step took | the coordinator |
//! | `endpoint.json` | where the coordinator listens | the coordinator, while it lives |
//! | `lock` | nothing; a coordinator that lives holds its lock | the coordinator |
//! | `checkpoints/` | the state after some steps | the coordinator |
//! | `worker-N.log`, `server-N.log` | what workers and parameter servers complain of | they |
//! | `summary.json` | how the last coordinator ended | the coordinator |
//! | `coordinator.log` | what a coordinator says that runs in the background | the coordinator |
//! | `served` | nothing; the run is a daemon's job | the daemon |
//! | `plan.json` | the machines that a daemon's job obtains from a provider | the daemon |
//! | `cluster_jobs.json` | how workers are submitted as jobs of a cluster | the program that starts a coordinator |
//! | `placement.json` | on which nodes they may run, where another program says that | the daemon |
//! | `tickets/` | what those jobs are told when they begin | the coordinator |
//! | `said` | what a coordinator says that a search started | the coordinator |
//!
//! A folder with a `job.json` is a run. No other module spells these names.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bellwether_core::job::{CheckpointUrl, Job};
use bellwether_core::record::Summary;
use serde::{Deserialize, Serialize};

use crate::channel::Cipher;
use crate::checkpoint::write_atomically;
use crate::control::Token;
use crate::journal::{self, Reader, RunHistory};
use crate::private;

mod cluster_jobs;
mod copy;
mod error;
mod initial;
mod leases;
pub(crate) mod leftovers;
mod lock;
mod log;
mod orphans;
mod plan;
mod rung;
mod state_dir;
mod ticket;
mod words;

pub use cluster_jobs::{ClusterJobs, random_key};
pub use copy::{Restoration, RunFile};
pub use error::RunDirError;
pub use leases::LeaseFile;
pub use log::{RunLog, RunWord};
pub use state_dir::StateDir;
pub use ticket::{CoordinatorAddress, Ticket};
pub use words::{WORKER_VARIABLE, words_of_process};

const JOB: &str = "job.json";
const PROFILE: &str = "profile.json";
const TOKEN: &str = "token";
const SCHEDULE: &str = "schedule.json";
const IDENTITY: &str = "run_id";
const ORIGIN: &str = "origin";
const JOURNAL: &str = "journal.jsonl";
const RESUME_POINT: &str = "resume_point.json";
pub(crate) const METRICS: &str = "metrics.jsonl";
const ENDPOINT: &str = "endpoint.json";
const LOCK: &str = "lock";
const CHECKPOINTS: &str = "checkpoints";
const OFFERED_CHECKPOINTS: &str = "epochs";
/// The name of the log of a coordinator in the background: a daemon started it, or a user with `--detach`.
pub const COORDINATOR_LOG: &str = "coordinator.log";
const SUMMARY: &str = "summary.json";
const SAID: &str = "said";
const SERVED: &str = "served";

/// The folder of one run. It need not be there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    /// The run's name: `JOB-NUMBER`, unless another was chosen.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
}

/// Where a living coordinator can be reached: the content of `endpoint.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Endpoint {
    /// Control plane.
    pub control: SocketAddr,
    /// Data plane.
    pub data: SocketAddr,
    /// The coordinator's process.
    pub process: u32,
}

impl RunDir {
    /// The run in this folder, named as the folder is. Looks at no file.
    pub fn at(path: impl Into<PathBuf>) -> RunDir {
        let path = path.into();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        RunDir { name, path }
    }

    /// The run in this folder; `None` where no run is.
    pub fn open(path: impl Into<PathBuf>) -> Option<RunDir> {
        Some(RunDir::at(path)).filter(RunDir::is_run)
    }

    /// Makes the folder of a new run, and what every run begins with; `plain` if nothing is to be encrypted between its
    /// machines.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a folder that is there already has the kind [`io::ErrorKind::AlreadyExists`].
    pub fn create(path: impl Into<PathBuf>, job: &Job, plain: bool) -> Result<RunDir, RunDirError> {
        let run = RunDir::at(path);
        DirBuilder::new().mode(0o700).create(&run.path).map_err(RunDirError::io(&run.path))?;
        run.fill(job, plain)?;
        Ok(run)
    }

    /// Makes what is missing of the run: its folder, its token and its job.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn complete(&self, job: &Job) -> Result<(), RunDirError> {
        if self.is_run() && self.token_file().is_file() {
            return Ok(());
        }
        private::folder(&self.path).map_err(RunDirError::io(&self.path))?;
        self.fill(job, false)
    }

    fn fill(&self, job: &Job, plain: bool) -> Result<(), RunDirError> {
        self.make_token(plain)?;
        // A folder with a job is a run, so it comes last and whole.
        write_json(&self.job_file(), job, true)
    }

    fn make_token(&self, plain: bool) -> Result<(), RunDirError> {
        let token = Token::random().map_err(RunDirError::Random)?;
        self.take_token(&if plain { token.with_cipher(Cipher::Unencrypted) } else { token })
    }

    /// Puts this token in the place of the run's own: its workers have it from elsewhere.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn take_token(&self, token: &Token) -> Result<(), RunDirError> {
        write_whole(&self.token_file(), format!("{}\n", token.to_text()).as_bytes())
    }

    /// Makes another token if the run's is not valid, as after a power cut, and no coordinator that knows it is alive.
    /// Says whether it did; its workers cannot come back then.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn renew_token(&self) -> Result<bool, RunDirError> {
        let path = self.token_file();
        let is_token = fs::read_to_string(&path).is_ok_and(|text| Token::parse(&text).is_some());
        let is_lost =
            !is_token && !matches!(fs::metadata(&path), Err(e) if e.kind() != io::ErrorKind::NotFound);
        if !is_lost || self.is_alive().unwrap_or(true) {
            return Ok(false);
        }
        self.make_token(false).map(|()| true)
    }

    /// Whether the folder holds a run.
    pub fn is_run(&self) -> bool {
        self.job_file().is_file()
    }

    /// The number at the end of the name; 0 where there is none.
    pub fn number(&self) -> u64 {
        self.name.rsplit_once('-').and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    }

    /// The name without its number.
    pub fn job_name(&self) -> &str {
        self.name.rsplit_once('-').map_or(&self.name, |(name, _)| name)
    }

    /// The job as it was when the run was made, not checked: readers of old runs need less than trainers.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds no job.
    pub fn job(&self) -> Result<Job, RunDirError> {
        let path = self.job_file();
        let text = fs::read_to_string(&path).map_err(RunDirError::io(&path))?;
        serde_json::from_str(&text).map_err(RunDirError::malformed(&path))
    }

    /// The run's token.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds no token.
    pub fn token(&self) -> Result<Token, RunDirError> {
        read_token(&self.token_file())
    }

    /// The scheduled changes of the number of workers, by step; a run without the file has none.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds no schedule.
    pub fn schedule(&self) -> Result<Vec<(u64, u32)>, RunDirError> {
        let path = self.path.join(SCHEDULE);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(RunDirError::io(&path)(error)),
            Ok(text) => serde_json::from_slice(&text).map_err(RunDirError::malformed(&path)),
        }
    }

    /// Keeps the scheduled changes for the coordinator that resumes the run.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_schedule(&self, schedule: &[(u64, u32)]) -> Result<(), RunDirError> {
        write_json(&self.path.join(SCHEDULE), &schedule, false)
    }

    /// Keeps where the checkpoints in slices are of the run that this one goes on from.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_origin(&self, url: &CheckpointUrl) -> Result<(), RunDirError> {
        write_json(&self.path.join(ORIGIN), url, true)
    }

    /// Where the checkpoints are of the run that this one goes on from; none for most runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds no URL.
    pub fn origin(&self) -> Result<Option<CheckpointUrl>, RunDirError> {
        let path = self.path.join(ORIGIN);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunDirError::io(&path)(error)),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(RunDirError::malformed(&path)),
        }
    }

    /// Where the run's coordinator is, or was when it died.
    pub fn endpoint(&self) -> Option<Endpoint> {
        serde_json::from_slice(&fs::read(self.endpoint_file()).ok()?).ok()
    }

    pub(crate) fn keep_endpoint(&self, endpoint: &Endpoint) -> Result<(), RunDirError> {
        write_json(&self.endpoint_file(), endpoint, true)
    }

    pub(crate) fn remove_endpoint(&self) {
        let _ = fs::remove_file(self.endpoint_file());
    }

    /// Whether a coordinator of the run lives, no matter who started it.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a missing folder is an error.
    pub fn is_alive(&self) -> io::Result<bool> {
        lock::is_held(&self.lock_file())
    }

    /// Takes the run's lock until the file is closed; `None` when another coordinator has it.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        lock::take(&self.lock_file())
    }

    /// The journal, line by line.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a run that never began has none.
    pub fn journal(&self) -> io::Result<Reader> {
        Reader::open(&self.journal_file())
    }

    /// Follows the journal from its first line on; it may not be there yet.
    pub fn follow_journal(&self) -> journal::Tail {
        journal::Tail::of(self.journal_file())
    }

    /// What the journal tells up to its resume point, if it has one, and all that comes next.
    pub fn follow_history(&self) -> (RunHistory, journal::Tail) {
        journal::follow(self.journal_file(), &self.resume_point_file())
    }

    /// What the journal tells; a run that never began has no history.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn history(&self) -> Result<RunHistory, RunDirError> {
        let path = self.journal_file();
        match journal::history(&path, &self.resume_point_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RunHistory::default()),
            history => history.map_err(RunDirError::io(&path)),
        }
    }

    /// `job.json`.
    pub fn job_file(&self) -> PathBuf {
        self.path.join(JOB)
    }

    /// `profile.json`: what was measured of the job before it trained, where a daemon did that.
    pub fn profile_file(&self) -> PathBuf {
        self.path.join(PROFILE)
    }

    /// `token`.
    pub fn token_file(&self) -> PathBuf {
        self.path.join(TOKEN)
    }

    /// `journal.jsonl`.
    pub fn journal_file(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// `resume_point.json`.
    pub(crate) fn resume_point_file(&self) -> PathBuf {
        self.path.join(RESUME_POINT)
    }

    /// `metrics.jsonl`.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// `endpoint.json`.
    pub fn endpoint_file(&self) -> PathBuf {
        self.path.join(ENDPOINT)
    }

    /// `lock`.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// The run's random name, once a coordinator gave it one.
    pub fn id(&self) -> Option<String> {
        fs::read_to_string(self.identity_file()).ok().map(|text| text.trim().to_string())
    }

    pub(crate) fn identity_file(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    /// `checkpoints/`, where the job names no other folder.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// `epochs/`: checkpoints for the script that trains, which removes those that it has opened.
    pub fn offered_checkpoints(&self) -> PathBuf {
        self.path.join(OFFERED_CHECKPOINTS)
    }

    /// `coordinator.log`: what a coordinator in the background says.
    pub fn coordinator_log(&self) -> PathBuf {
        self.path.join(COORDINATOR_LOG)
    }

    /// How the last coordinator of the run ended; nothing where that is not known.
    pub fn summary(&self) -> Option<Summary> {
        serde_json::from_slice(&fs::read(self.summary_file()).ok()?).ok()
    }

    /// Keeps how the run ended.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn keep_summary(&self, summary: &Summary) -> Result<(), RunDirError> {
        write_json(&self.summary_file(), summary, false)
    }

    /// Whether the run is a daemon's job: only its daemon starts coordinators.
    pub fn is_served(&self) -> bool {
        self.path.join(SERVED).exists()
    }

    /// Makes the run a daemon's job.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn mark_served(&self) -> Result<(), RunDirError> {
        let path = self.path.join(SERVED);
        log(&path).map(drop).map_err(RunDirError::io(&path))
    }

    /// `summary.json`.
    pub fn summary_file(&self) -> PathBuf {
        self.path.join(SUMMARY)
    }

    /// `said`: what a coordinator says that a search started.
    pub fn said_file(&self) -> PathBuf {
        self.path.join(SAID)
    }

    /// Opens the log of a worker, to append to it.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn worker_log(&self, worker: u64) -> io::Result<File> {
        log(&self.worker_log_file(worker))
    }

    /// `worker-N.log`.
    pub fn worker_log_file(&self, worker: u64) -> PathBuf {
        self.path.join(format!("worker-{worker}.log"))
    }

    /// Opens the log of the process that forks a script's workers, to append to it.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn fork_server_log(&self) -> io::Result<File> {
        log(&self.path.join("fork-server.log"))
    }

    /// Opens the log of a parameter server, to append to it.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn server_log(&self, server: u64) -> io::Result<File> {
        log(&self.server_log_file(server))
    }

    /// `server-N.log`.
    pub fn server_log_file(&self, server: u64) -> PathBuf {
        self.path.join(format!("server-{server}.log"))
    }

    /// Whether a file of this name in a run's folder is shown as its log: that of the coordinator or of a worker.
    pub fn is_log(name: &str) -> bool {
        name == COORDINATOR_LOG || (name.starts_with("worker-") && name.ends_with(".log"))
    }
}

/// Reads a token file, wherever it lies.
///
/// # Errors
///
/// Returns an error if the file cannot be read or holds no token.
pub fn read_token(path: &Path) -> Result<Token, RunDirError> {
    let wrong = |source| RunDirError::Token { path: path.into(), source };
    let text = fs::read_to_string(path).map_err(|error| wrong(Some(error)))?;
    Token::parse(&text).ok_or_else(|| wrong(None))
}

fn log(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}

fn write_json(path: &Path, value: &impl Serialize, pretty: bool) -> Result<(), RunDirError> {
    let text = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    write_whole(path, &text.map_err(RunDirError::malformed(path))?)
}

/// Writes a file that only its owner may read, whole or not at all, also after a power cut.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    write_atomically(&path.with_extension("part"), path, bytes).map_err(RunDirError::io(path))
}
