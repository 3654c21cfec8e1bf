//! Workers and parameter servers as threads of this process.

use std::io;
use std::net::SocketAddr;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use bellwether_core::job::Job;
use bellwether_runtime::control::Token;
use bellwether_runtime::coordinator::{self, Spawned};
use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::run_dir::CoordinatorAddress;
use bellwether_runtime::worker::{Leash, Leashed, Options, Stages, WorkerError, leash};
use bellwether_runtime::{server, worker};

use crate::WorkloadBuilder;

/// How long a thread waits for a coordinator that went away: it is of this process, and none takes its place.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a thread that was told to vanish is waited for. One that computes for ever is left
/// behind.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a thread's stack: as many as the main thread of a process usually has.
const STACK_BYTES: usize = 8 << 20;

/// A worker or server that is a thread.
struct Thread {
    handle: Option<JoinHandle<Result<(), WorkerError>>>,
    /// How it ended.
    how: Option<String>,
    leash: Leash,
}

/// Starts workers that train `workload`.
pub(crate) fn workers(token: Token, workload: WorkloadBuilder) -> coordinator::Spawn {
    Box::new(move |number, address| {
        let workload = workload.clone();
        start(format!("worker {number}"), &token, number, address, move |options| {
            worker::run(options, |job: &Job, _: &Stages<'_>| workload.build(job))
        })
    })
}

/// Starts parameter servers.
pub(crate) fn servers(token: Token) -> coordinator::Spawn {
    Box::new(move |number, address| start(format!("server {number}"), &token, number, address, server::run))
}

fn start(
    name: String,
    token: &Token,
    number: WorkerId,
    address: SocketAddr,
    body: impl FnOnce(Options) -> Result<(), WorkerError> + Send + 'static,
) -> io::Result<Box<dyn Spawned>> {
    let (leash, leashed) = leash();
    let options = options(token.clone(), number, address, leashed);
    let handle = Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || body(options))?;
    Ok(Box::new(Thread { handle: Some(handle), how: None, leash }))
}

fn options(token: Token, number: WorkerId, address: SocketAddr, leashed: Leashed) -> Options {
    Options {
        coordinator: CoordinatorAddress::fixed(address.to_string()),
        token,
        worker: number,
        listen: SocketAddr::new(address.ip(), 0),
        orphan_timeout: ORPHAN_TIMEOUT,
        notices: Listening::default(),
        leashed: Some(leashed),
    }
}

impl Spawned for Thread {
    fn ended(&mut self) -> Option<String> {
        if let Some(handle) = self.handle.take_if(|handle| handle.is_finished()) {
            self.how = Some(match handle.join() {
                Ok(Ok(())) => "its thread ended".into(),
                Ok(Err(error)) => format!("its thread ended ({error})"),
                Err(_) => "its thread panicked".into(),
            });
        }
        self.how.clone()
    }

    fn warn(&mut self) {
        self.leash.leave();
    }

    fn kill(&mut self) {
        self.leash.vanish();
    }

    fn end(&mut self) {
        self.leash.vanish();
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < PATIENCE {
            sleep(Duration::from_millis(1));
        }
    }
}
