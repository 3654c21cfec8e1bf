//! The daemon: engine, processes and API put together around one state directory.
//!
//! Its own files lie in `STATE_DIR/.serve/`, a private folder: `ledger.jsonl`, `token`, `metrics_token`, `users.json`,
//! `lock` (held while a daemon lives), `connection.json` (for clients elsewhere), `socket` (where its user's clients
//! come in) and `endpoint.json`. No run can have such a name.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::knowledge::Knowledge;
use bellwether_core::queue::QueuesFile;
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_runtime::run_dir::{RunDirError, StateDir};
use bellwether_runtime::{ending, private};
use bellwether_sched::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::api::{self, ApiOptions, Doors, Security, Serving, Users, metrics_token};
use crate::connection::Connection;
use crate::engine::{self, Channels, Engine, EngineError, Prepare};
use crate::ledger::{Compaction, Damage};
use crate::loading::{self, LoadLimits};
use crate::local;
use crate::machine::{Machine, SlurmJobs};
use crate::outlook::Outlook;
use crate::private::write_line;
use crate::runner::Processes;
use crate::runner::cluster::NodeWatch;
use crate::secret::Secret;
use crate::tls::{self, Fingerprint};

pub mod view;

/// The folder of the daemon's own files in a state directory.
const FOLDER: &str = ".serve";

/// How often a job is tried again after its processes failed, where nothing else is said.
pub const RETRIES: u32 = 2;

/// Bytes with which a ledger is compacted, where nothing else is said.
pub const COMPACT_AT_BYTES: u64 = 16 << 20;

/// How a daemon works.
pub struct Options {
    /// The folder of all runs; it is made if it is missing.
    pub state_dir: StateDir,
    /// Where the API listens.
    pub listen: Option<SocketAddr>,
    /// What keeps others from overhearing what is sent there.
    pub protection: Protection,
    /// The command `bellwether`, which starts coordinators and loads data.
    pub program: PathBuf,
    /// The slots; needed for a ledger that begins.
    pub machine: Option<Machine>,
    /// The policy that decides from now on; needed for a ledger that begins.
    pub policy: Option<String>,
    /// The queues that divide the slots from now on; `None` for those of before.
    pub queues: Option<QueuesFile>,
    /// The policies that can be named: those of one's own too.
    pub registry: Registry,
    /// Seconds of the daemon's clock in a real second; 1 where nothing is said, and kept by the ledger.
    pub time_scale: Option<f64>,
    /// How often a job is tried again after its processes failed.
    pub retries: u32,
    /// What policies are told of the work that remains: see [`engine::Options`].
    pub remaining: Option<Knowledge>,
    /// Bytes with which the ledger is compacted: see [`engine::Options`].
    pub compact_at: u64,
    /// What loading the data of a submitted job may take.
    pub loading: LoadLimits,
    /// What foresees when jobs start and end, if anything does.
    pub outlook: Option<Box<dyn Outlook>>,
    /// Is told what its owner should know of it while it runs, in a sentence.
    pub tell: engine::Tell,
}

impl Options {
    /// What `bellwether serve` does without options: the API listens where it did, or at a free port of loopback;
    /// slots and policy are those of the ledger, or one slot for each core and `fair`.
    pub fn new(state_dir: StateDir, program: PathBuf) -> Options {
        Options {
            state_dir,
            listen: None,
            protection: Protection::Usual,
            program,
            machine: None,
            policy: None,
            queues: None,
            registry: Registry::built_in(),
            time_scale: None,
            retries: RETRIES,
            remaining: None,
            compact_at: COMPACT_AT_BYTES,
            loading: LoadLimits::default(),
            outlook: None,
            tell: Box::new(|_| {}),
        }
    }
}

/// What keeps others from overhearing what is sent to the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// On loopback nothing, so only browsers' sessions are taken; elsewhere HTTPS with a certificate of the daemon's
    /// own.
    Usual,
    /// HTTPS, with the certificate and the key in these files, or with one of the daemon's own.
    Https(Option<(PathBuf, PathBuf)>),
    /// A proxy.
    Elsewhere,
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
    connection: Option<PathBuf>,
    fingerprint: Option<Fingerprint>,
    folder: PathBuf,
    /// The nodes, where slots are those of a cluster.
    watch: Option<NodeWatch>,
    _lock: File,
}

/// The daemon's token file in a state directory.
fn token_file(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join("token")
}

/// Where the daemon of a state directory listens for its user's clients.
pub fn socket_file(state_dir: &Path) -> PathBuf {
    state_dir.join(FOLDER).join("socket")
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

fn unmade(error: RunDirError) -> DaemonError {
    InputError::new("state directory", error.to_string()).into()
}

/// Makes the folders of jobs' runs.
pub(crate) fn prepare(state_dir: StateDir) -> Prepare {
    Box::new(move |submitted, slurm| {
        let made = || {
            let run = state_dir.create_named(&submitted.name, &submitted.job)?;
            run.mark_served()?;
            if let Some(provision) = &submitted.provision {
                run.keep_plan(&provision.plan)?;
            }
            if let Some(SlurmJobs { options, script, key, .. }) = slurm {
                run.keep_cluster_jobs(key, options.clone(), script.clone())?;
            }
            Ok(run.path)
        };
        made().map_err(|error: RunDirError| error.to_string())
    })
}

/// Stops a daemon, as SIGTERM does. Its jobs go on.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Lets [`Daemon::run`] return.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Daemon {
    /// Takes the state directory, opens its ledger, takes running jobs over, and listens.
    ///
    /// # Errors
    ///
    /// Returns an error if another daemon is at work there, if files or addresses cannot be used, or if slots or
    /// policies are missing.
    pub fn open(options: Options) -> Result<Daemon, DaemonError> {
        let state_dir = options.state_dir.make().map_err(unmade)?;
        let folder = state_dir.join(FOLDER);
        private::folder(&folder).and_then(|()| private::restrict(&folder)).map_err(failed(&folder))?;
        let lock = lock(&folder)?;
        let ledger = ledger_file(&state_dir);
        let token = token(&token_file(&state_dir))?;
        let metrics = folder.join("metrics_token");
        write_line(&metrics, &metrics_token(&token)).map_err(failed(&metrics))?;
        let old = endpoint(&state_dir).map(|old| old.address);
        let web = bind(options.listen, old)?;
        let path = socket_file(&state_dir);
        let socket = local::listen(&path).map_err(failed(&path))?;
        let security = secure(&folder, &web, &options.protection)?;
        let fingerprint = match &security {
            Security::Tls(identity) => Some(identity.fingerprint),
            _ => None,
        };
        let takes_token = !matches!(security, Security::Sessions);
        let doors = Doors { socket: Some(socket), web, security };
        let engine_options = engine::Options {
            folder: state_dir,
            ledger: ledger.clone(),
            machine: options.machine,
            policy: options.policy,
            queues: options.queues,
            registry: options.registry.clone(),
            time_scale: options.time_scale,
            retries: options.retries,
            remaining: options.remaining,
            compact_at: options.compact_at,
            prepare: prepare(options.state_dir),
            outlook: options.outlook,
            tell: options.tell,
        };
        let program = options.program;
        let describe = loading::in_process(program.clone(), options.loading);
        let (engine, ends) = Engine::open(engine_options, |reports| {
            // An engine that is gone hears nothing more.
            Processes::new(program, move |report| drop(reports.send(report)))
        })?;
        let watch = watch_nodes(&engine, &ends).transpose().map_err(failed(&folder))?;
        let users = Arc::new(Users::open(&folder.join("users.json"))?);
        let (owner, sessions, registry) = (token.clone(), Arc::default(), options.registry);
        let api_options = ApiOptions { token: owner, sessions, users, describe, registry, changed_by: None };
        let serving = api::serve(doors, ends.engine, api_options).map_err(failed(&folder))?;
        let connection = Connection {
            url: serving.url().into(),
            fingerprint: fingerprint.map(|fingerprint| fingerprint.to_string()),
            token: token.to_text(),
        };
        let connection = tell(&folder, takes_token.then_some(connection))?;
        // The last of its files: who sees this one finds the others.
        let endpoint = publish(&folder, &serving)?;
        Ok(Daemon {
            engine,
            stop: ends.stop,
            serving,
            endpoint,
            connection,
            fingerprint,
            folder,
            watch,
            _lock: lock,
        })
    }

    /// Where it can be reached.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The file that clients elsewhere need, if they can come in.
    pub fn connection(&self) -> Option<&Path> {
        self.connection.as_deref()
    }

    /// That of its certificate, if it has one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// What its ledger had lost.
    pub fn damage(&self) -> Option<&Damage> {
        self.engine.damage()
    }

    /// What became of the ledger where it was long when it was opened: why it was not compacted, if it was not.
    pub fn compaction(&self) -> Option<&Result<Compaction, String>> {
        self.engine.compaction()
    }

    /// What it takes up: the policy that decides, the slots, and the jobs that have not ended.
    pub fn summary(&self) -> (String, u32, usize) {
        self.engine.summary()
    }

    /// Stops it while it runs, from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Works until SIGINT, SIGTERM or its [`Stopper`]. Jobs go on.
    ///
    /// # Errors
    ///
    /// See [`Engine::run`].
    pub fn run(self) -> Result<(), DaemonError> {
        let Daemon { engine, stop, serving, folder, watch, _lock, .. } = self;
        std::thread::spawn(move || wait_for_signal(&stop));
        let result = engine.run();
        drop(serving);
        drop(watch);
        // Clients should not look for it here any more; where a crash leaves the files, no daemon answers.
        let _ = fs::remove_file(folder.join("endpoint.json"));
        let _ = fs::remove_file(folder.join("socket"));
        Ok(result?)
    }
}

/// Looks at the nodes, where slots are those of a cluster.
fn watch_nodes(engine: &Engine<Processes>, ends: &Channels) -> Option<io::Result<NodeWatch>> {
    let (jobs, reports) = (engine.slurm()?.clone(), ends.reports.clone());
    Some(NodeWatch::start(jobs, move |report| drop(reports.send(report))))
}

/// How the port is protected.
fn secure(folder: &Path, web: &TcpListener, protection: &Protection) -> Result<Security, DaemonError> {
    let address = web.local_addr().map_err(failed(folder))?.ip();
    Ok(match protection {
        Protection::Usual if address.is_loopback() => Security::Sessions,
        Protection::Usual | Protection::Https(None) => Security::Tls(tls::own(folder, address)?),
        Protection::Https(Some((certificate, key))) => Security::Tls(tls::given(certificate, key)?),
        Protection::Elsewhere => Security::Elsewhere,
    })
}

/// Writes where clients find it.
fn publish(folder: &Path, serving: &Serving) -> Result<Endpoint, DaemonError> {
    let (address, process) = (serving.address(), std::process::id());
    let endpoint = Endpoint { address, url: serving.url().into(), process };
    let path = folder.join("endpoint.json");
    let text = serde_json::to_vec_pretty(&endpoint).expect("an endpoint is plain data");
    write_atomically(&path.with_extension("part"), &path, &text).map_err(failed(&path))?;
    Ok(endpoint)
}

/// Writes the file for clients elsewhere; without it where none can come in.
fn tell(folder: &Path, connection: Option<Connection>) -> Result<Option<PathBuf>, DaemonError> {
    let path = folder.join("connection.json");
    let Some(connection) = connection else {
        let _ = fs::remove_file(path);
        return Ok(None);
    };
    let text = serde_json::to_string_pretty(&connection).expect("a connection is plain data");
    write_line(&path, &text).map_err(failed(&path))?;
    Ok(Some(path))
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
fn token(path: &Path) -> Result<Secret, DaemonError> {
    if let Ok(text) = fs::read_to_string(path) {
        let wrong = || InputError::new(path.display().to_string(), "is not a token");
        let hint = "remove it, and the daemon makes another one";
        return Ok(Secret::parse(&text).ok_or_else(|| wrong().hint(hint))?);
    }
    let token = Secret::random().map_err(failed(path))?;
    write_line(path, &token.to_text()).map_err(failed(path))?;
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
    // Where the system does not let us listen, a signal ends the daemon as it ends any process.
    if ending::wait_until_asked().is_ok() {
        stop.send_replace(true);
    }
}
