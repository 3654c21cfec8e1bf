//! The HTTP API: what clients see of the engine and ask of it, as JSON over HTTP/1.1.
//!
//! One table of routes makes both the router and the OpenAPI document, so neither can say what the other does
//! not. Every request passes the gate; every error answer has an [`ErrorBody`](crate::snapshot::ErrorBody). Questions
//! go over the [`EngineHandle`]; answers come from its snapshots, and from the files of a job's run.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_sched::registry::Registry;
use tokio::sync::{Semaphore, watch};

pub use gate::metrics_token;
pub use sessions::Sessions;
pub use users::Users;

use crate::loading::Describe;
use crate::request::EngineHandle;
use crate::secret::Secret;
use crate::tls::Identity;

mod access;
pub mod admission;
pub mod body;
mod call;
mod cluster;
mod curve;
mod describe;
pub mod entry;
mod failure;
mod gate;
mod jobs;
mod listener;
mod openapi;
mod page;
mod places;
mod prometheus;
mod route;
mod routes;
mod scope;
mod sessions;
mod streams;
pub mod users;

/// How the API is served.
#[derive(Clone)]
pub struct ApiOptions {
    /// Makes the client that brings it the owner, where it may be sent.
    pub token: Secret,
    /// Those of browsers; they end when this is dropped.
    pub sessions: Arc<Sessions>,
    /// Those with tokens of their own.
    pub users: Arc<Users>,
    /// Learns the size of a job's task.
    pub describe: Describe,
    /// The policies that clients may choose from.
    pub registry: Registry,
    /// Where others say what trains here: how they do it. Then clients see everything and change nothing.
    pub changed_by: Option<String>,
}

/// Where clients come in.
#[derive(Debug)]
pub struct Doors {
    /// For this user's own programs on this machine, who need no token.
    pub socket: Option<UnixListener>,
    /// For browsers, and for all others.
    pub web: TcpListener,
    /// What keeps others from overhearing what is sent there.
    pub security: Security,
}

/// What keeps others from overhearing what is sent to a port, and from answering there in the daemon's place.
#[derive(Debug, Clone)]
pub enum Security {
    /// Nothing. So only what is of no use after the daemon's death is taken: sessions of browsers, and the token for
    /// metrics.
    Sessions,
    /// A proxy in front of it. Tokens are taken.
    Elsewhere,
    /// TLS. Tokens are taken.
    Tls(Identity),
}

/// An API that is served, until this is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    url: String,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Where browsers find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, as browsers write it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Serving {
    /// Takes no more requests, ends the streams, and waits a few seconds for the answers that are under way.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Threads that may read files, look at data and wait for those who load them: as many as have permits together.
const BLOCKING_THREADS: usize = 8;

/// Readers of files at a time; the others wait.
const READERS: usize = 4;

/// How long work that cannot be interrupted may hold up the end.
const BLOCKING_PATIENCE: Duration = Duration::from_secs(1);

/// What the handlers share.
struct Api {
    engine: EngineHandle,
    describer: describe::Describer,
    registry: Registry,
    gate: gate::Gate,
    readers: Arc<Semaphore>,
    tally: prometheus::Tally,
    document: String,
    /// Where browsers find it.
    url: String,
    /// Of its certificate, if it has one.
    fingerprint: Option<String>,
    takes_tokens: bool,
    stopping: watch::Receiver<bool>,
}

/// Serves the API on a thread of its own.
///
/// # Errors
///
/// Returns an error if a listener cannot be used, or the system gives no thread.
pub fn serve(doors: Doors, engine: EngineHandle, options: ApiOptions) -> io::Result<Serving> {
    let address = doors.web.local_addr()?;
    let is_secure = matches!(doors.security, Security::Tls(_));
    let url = format!("{}://{address}", if is_secure { "https" } else { "http" });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let takes_tokens = !matches!(doors.security, Security::Sessions);
    let fingerprint = match &doors.security {
        Security::Tls(identity) => Some(identity.fingerprint.to_string()),
        _ => None,
    };
    let listeners = {
        let _inside = runtime.enter();
        listener::listeners(doors)?
    };
    let (stop, stopping) = watch::channel(false);
    let table = routes::table();
    let api = Arc::new(Api {
        engine,
        describer: describe::Describer::new(options.describe),
        registry: options.registry,
        gate: gate::Gate::new(&options.token, (options.sessions, options.users), address, is_secure)
            .changed_by(options.changed_by),
        readers: Arc::new(Semaphore::new(READERS)),
        tally: prometheus::Tally::default(),
        document: openapi::document(&table).to_string(),
        url: url.clone(),
        fingerprint,
        takes_tokens,
        stopping,
    });
    let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
        let router = route::router(&api, table);
        runtime.block_on(listener::listen_at_all(listeners, api, router));
        runtime.shutdown_timeout(BLOCKING_PATIENCE);
    })?;
    Ok(Serving { address, url, stop, thread: Some(thread) })
}

/// The OpenAPI document of what is served.
pub fn openapi() -> serde_json::Value {
    openapi::document(&routes::table())
}
