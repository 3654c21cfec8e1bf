//! The daemon: engine, processes and API put together around one state directory.
//!
//! Its own files lie in `STATE_DIR/.serve/`: `ledger.jsonl`, `token` (private), `lock` (held while a daemon lives) and
//! `endpoint.json`. No run can have such a name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_runtime::control::Token;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::{self, ApiOptions, Describe, Serving};
use crate::crew::Processes;
use crate::engine::{self, Engine, EngineError, Prepare};
use crate::machine::Machine;

/// The folder of the daemon's own files in a state directory.
const FOLDER: &str = ".serve";

/// How a daemon works.
pub struct Options {
    /// The folder of all runs; it exists.
    pub state_dir: PathBuf,
    /// Where the API listens.
    pub listen: Option<SocketAddr>,
    /// This program, to start coordinators.
    pub program: PathBuf,
    /// The slots; needed for a ledger that begins.
    pub machine: Option<Machine>,
    /// The policy that decides from now on; needed for a ledger that begins.
    pub policy: Option<String>,
    /// Seconds of the daemon's clock in a real second; 1 where nothing is said, and kept by the ledger.
    pub time_scale: Option<f64>,
    /// How often a job is tried again after its processes failed.
    pub retries: u32,
    /// Makes the folder of a run.
    pub prepare: Prepare,
    /// Learns the size of a job's task.
    pub describe: Describe,
}

/// Where a living daemon can be reached: the content of `endpoint.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its API.
    pub address: SocketAddr,
    /// The same, as clients write it.
    pub url: String,
    /// Its process.
    pub process: u32,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Something that its user can mend.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The engine cannot work.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A daemon that is ready.
pub struct Daemon {
    engine: Engine<Processes>,
    stop: watch::Sender<bool>,
    serving: Serving,
    endpoint: Endpoint,
    folder: PathBuf,
    token: Token,
    _lock: File,
}

/// The daemon's token file in a state directory.
pub fn token_file(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join("token")
}

/// The daemon's ledger in a state directory.
pub fn ledger_file(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join("ledger.jsonl")
}

/// Where the daemon of a state directory can be reached, or could before it died.
pub fn endpoint(state_dir: &Path) -> Option<Endpoint> {
    serde_json::from_slice(&fs::read(state_dir.join(FOLDER).join("endpoint.json")).ok()?).ok()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DaemonError {
    let place = path.display().to_string();
    move |error| InputError::new(place, error.to_string()).into()
}

impl Daemon {
    /// Takes the state directory, opens its ledger, takes running jobs over, and listens.
    ///
    /// # Errors
    ///
    /// Another daemon that is at work there; files and addresses that cannot be used; slots or policies that are missing.
    pub fn open(options: Options) -> Result<Daemon, DaemonError> {
        let folder = options.state_dir.join(FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        let lock = lock(&folder)?;
        let ledger = ledger_file(&options.state_dir);
        let token = token(&token_file(&options.state_dir))?;
        let old = endpoint(&options.state_dir).map(|old| old.address);
        let listener = bind(options.listen, old)?;
        let engine_options = engine::Options {
            folder: options.state_dir.clone(),
            ledger: ledger.clone(),
            machine: options.machine,
            policy: options.policy,
            time_scale: options.time_scale,
            retries: options.retries,
            prepare: options.prepare,
        };
        let program = options.program;
        let (engine, ends) = Engine::open(engine_options, |reports| {
            // An engine that is gone hears nothing more.
            Processes::new(program, move |report| drop(reports.send(report)))
        })?;
        let api_options = ApiOptions { token: token.clone(), describe: options.describe };
        let serving = api::serve(listener, ends.desk, api_options).map_err(failed(&folder))?;
        let address = serving.address();
        let endpoint = Endpoint { address, url: format!("http://{address}"), process: std::process::id() };
        let path = folder.join("endpoint.json");
        let text = serde_json::to_vec_pretty(&endpoint).expect("an endpoint is plain data");
        write_atomically(&path.with_extension("part"), &path, &text).map_err(failed(&path))?;
        Ok(Daemon { engine, stop: ends.stop, serving, endpoint, folder, token, _lock: lock })
    }

    /// Where it can be reached.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The dashboard, with the token that it needs; not for anybody else's eyes.
    pub fn dashboard(&self) -> String {
        format!("{}/#token={}", self.endpoint.url, self.token.to_text())
    }

    /// What it takes up: the policy that decides, the slots, and the jobs that have not ended.
    pub fn summary(&self) -> (String, u32, usize) {
        self.engine.summary()
    }

    /// Works until SIGINT or SIGTERM. Jobs go on.
    ///
    /// # Errors
    ///
    /// See [`Engine::run`].
    pub fn run(self) -> Result<(), DaemonError> {
        let Daemon { engine, stop, serving, folder, _lock, .. } = self;
        std::thread::spawn(move || wait_for_signal(&stop));
        let result = engine.run();
        drop(serving);
        // Nobody should look for it here any more; where a crash leaves the file, nobody answers.
        let _ = fs::remove_file(folder.join("endpoint.json"));
        Ok(result?)
    }
}

/// Only one daemon works on a state directory.
fn lock(folder: &Path) -> Result<File, DaemonError> {
    let path = folder.join("lock");
    let lock = File::create(&path).map_err(failed(&path))?;
    if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        let error = InputError::new(folder.display().to_string(), "another daemon is at work there");
        return Err(error
            .hint("`bellwether jobs` shows its jobs; --state-dir chooses another folder")
            .into());
    }
    Ok(lock)
}

/// The token of this state directory; made when there is none.
fn token(path: &Path) -> Result<Token, DaemonError> {
    if let Ok(text) = fs::read_to_string(path) {
        let wrong = || InputError::new(path.display().to_string(), "is not a token");
        let hint = "remove it, and the daemon makes another one";
        return Ok(Token::parse(&text).ok_or_else(|| wrong().hint(hint))?);
    }
    let token = Token::random().map_err(failed(path))?;
    let part = path.with_extension("part");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let written = file.and_then(|mut file| writeln!(file, "{}", token.to_text()));
    written.and_then(|()| fs::rename(&part, path)).map_err(failed(path))?;
    Ok(token)
}

/// Clients look where the last daemon was, so the next one goes there if it can.
fn bind(asked: Option<SocketAddr>, old: Option<SocketAddr>) -> Result<TcpListener, DaemonError> {
    if let (None, Some(old)) = (asked, old)
        && let Ok(listener) = TcpListener::bind(old)
    {
        return Ok(listener);
    }
    let address = asked.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    TcpListener::bind(address).map_err(|error| {
        let error = InputError::new(format!("--listen {address}"), error.to_string());
        error.hint("another program has the port, or the address is not one of this machine").into()
    })
}

fn wait_for_signal(stop: &watch::Sender<bool>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    stop.send_replace(true);
}
