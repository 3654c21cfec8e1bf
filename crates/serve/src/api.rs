//! The HTTP API: what clients see of the engine and ask of it, as JSON over HTTP/1.1.
//!
//! One [table](routes) of routes makes both the router and the OpenAPI document, so neither can say what the other does
//! not. Every request passes the [gate]; every answer that is no success has an [`ErrorBody`](crate::snapshot::ErrorBody).
//! What is asked goes over the [`Desk`]; what is read comes from its snapshots, and from the files of a job's run.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::control::Token;
use tokio::sync::{Semaphore, watch};

use crate::ledger::Task;
use crate::request::Desk;

pub mod body;
mod call;
mod cluster;
mod curve;
mod describe;
mod failure;
mod gate;
mod jobs;
mod listener;
mod openapi;
mod page;
mod prometheus;
mod route;
mod routes;
mod streams;
mod tail;

/// Learns the size of a job's task; may take as long as its data take to load.
pub type Describe = Arc<dyn Fn(&Job) -> Result<Task, InputError> + Send + Sync>;

/// How the API is served.
#[derive(Clone)]
pub struct ApiOptions {
    /// What clients must bring.
    pub token: Token,
    /// Learns the size of a job's task.
    pub describe: Describe,
}

/// An API that is served, until this is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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

/// Threads that may read files and load data at a time.
const BLOCKING_THREADS: usize = 8;

/// Readers of files at a time; the others wait.
const READERS: usize = 4;

/// How long work that cannot be interrupted may hold up the end.
const BLOCKING_PATIENCE: Duration = Duration::from_secs(1);

/// What the handlers share.
struct Api {
    desk: Desk,
    describer: describe::Describer,
    gate: gate::Gate,
    readers: Semaphore,
    tally: prometheus::Tally,
    document: String,
    stopping: watch::Receiver<bool>,
}

/// Serves the API on a thread of its own.
///
/// # Errors
///
/// When the listener cannot be used, or the system gives no thread.
pub fn serve(listener: TcpListener, desk: Desk, options: ApiOptions) -> io::Result<Serving> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (stop, stopping) = watch::channel(false);
    let table = routes::table();
    let api = Arc::new(Api {
        desk,
        describer: describe::Describer::new(options.describe),
        gate: gate::Gate::new(&options.token, address),
        readers: Semaphore::new(READERS),
        tally: prometheus::Tally::default(),
        document: openapi::document(&table).to_string(),
        stopping,
    });
    let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
        let router = route::router(&api, table);
        runtime.block_on(listener::listen(listener, api, router));
        runtime.shutdown_timeout(BLOCKING_PATIENCE);
    })?;
    Ok(Serving { address, stop, thread: Some(thread) })
}

/// The OpenAPI document of what is served.
pub fn openapi() -> serde_json::Value {
    openapi::document(&routes::table())
}
