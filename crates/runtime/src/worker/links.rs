//! Makes the data-plane connections that a membership needs.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_memory::Vector;

use crate::channel::{ConnectionKind, DialError, Hello, Inbox, InboxError, Stream, dial, resolve};
use crate::control::Token;
use crate::membership::{FromWorker, Membership, WorkerId};
use crate::probe;

/// Time within which a process must be reached, ...
const DEADLINE: Duration = Duration::from_secs(5);

/// ... and more for each member of a membership: all of them dial at the same moment, often from one machine.
const DEADLINE_PER_MEMBER: Duration = Duration::from_millis(20);

/// Peers that are dialed at once.
const CALLS_MAX: usize = 16;

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(10);

/// The peer that could not be connected, if one is to blame, and why.
pub(super) type Fault = (Option<WorkerId>, String);

/// New connections, by the worker at their other end.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// For collectives.
    pub(super) mesh: Vec<(WorkerId, Stream)>,
    /// For state: to shadows, or from sources.
    pub(super) state: Vec<(WorkerId, Stream)>,
}

/// What is made in the background for a membership that may begin.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    pub(super) links: Links,
    /// Memory for partial sums, written to once: the first use of memory is slow, and others would wait.
    pub(super) buffers: Vec<Vector>,
    /// The same for a gradient that leaves tensor by tensor.
    pub(super) part: Vec<f32>,
}

/// Why another process did not get or give what a stream was opened for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The process cannot be reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The stream broke off.
    #[error("{what}: {source}")]
    Broken {
        /// What did not happen.
        what: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The coordinator named no checkpoint to begin from.
    #[error("no state to begin from was named")]
    NoCheckpoint,
    /// The operating system gives no thread, or no socket.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl LinkError {
    /// A stream broke off before this was done.
    pub(crate) fn broken(what: impl Into<String>) -> impl FnOnce(io::Error) -> LinkError {
        move |source| LinkError::Broken { what: what.into(), source }
    }
}

/// What it takes to connect.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) me: WorkerId,
    pub(crate) token: Token,
    pub(crate) inbox: Arc<Inbox>,
}

impl Connector {
    /// Dials `address`, the coordinator, for a stream of state.
    pub(crate) fn state_stream(&self, epoch: u64, address: &str) -> Result<Stream, DialError> {
        self.dial(self.hello(ConnectionKind::State, epoch, Some(0)), address, Instant::now() + DEADLINE)
    }

    /// Dials a parameter server, or from a server its replica.
    pub(crate) fn parameter_stream(&self, epoch: u64, address: &str) -> Result<Stream, DialError> {
        self.dial(self.hello(ConnectionKind::Parameters, epoch, None), address, Instant::now() + DEADLINE)
    }

    /// Measures the link to `address`; what to tell the coordinator of it.
    pub(super) fn probe(&self, address: &str) -> Result<FromWorker, LinkError> {
        let hello = self.hello(ConnectionKind::Probe, 0, Some(0));
        let stream = self.dial(hello, address, Instant::now() + DEADLINE)?;
        let (network, shared_memory) = probe::measure(stream)?;
        Ok(FromWorker::LinkMeasured { network, shared_memory })
    }

    fn hello(&self, kind: ConnectionKind, epoch: u64, to: Option<WorkerId>) -> Hello {
        Hello { kind, worker: self.me, epoch, to }
    }

    fn dial(&self, hello: Hello, address: &str, deadline: Instant) -> Result<Stream, DialError> {
        dial(resolve(address)?, &hello, &self.token, deadline)
    }

    /// Connects to `peers` of `membership`; a shadow also opens a state stream from each of them, who wait for it. Of
    /// two workers the one with the larger number dials. A peer may do something else first, which may take this long
    /// (`patience`).
    ///
    /// # Errors
    ///
    /// Returns the peer that could not be connected and why; `None` when `unwanted` said so.
    pub(super) fn connect(
        &self,
        membership: &Membership,
        peers: &[(WorkerId, &str)],
        patience: impl Fn(WorkerId) -> Duration,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Links, Fault> {
        let members = u32::try_from(membership.active.len()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + DEADLINE + DEADLINE_PER_MEMBER * members;
        let epoch = membership.epoch;
        let shadow = membership.shadows(self.me);
        // All dials first: they need no answer from a peer's main thread, waiting does.
        let mut calls = Vec::new();
        for peer in peers {
            calls.extend((self.me > peer.0).then_some((ConnectionKind::Mesh, *peer)));
            calls.extend(shadow.then_some((ConnectionKind::State, *peer)));
        }
        let mut links = self.dial_all(epoch, &calls, deadline)?;
        for (peer, _) in peers {
            let deadline = deadline + patience(*peer);
            if self.me < *peer {
                links.mesh.push((*peer, self.wait(ConnectionKind::Mesh, epoch, *peer, deadline, unwanted)?));
            }
            if !shadow && membership.shadows(*peer) {
                links
                    .state
                    .push((*peer, self.wait(ConnectionKind::State, epoch, *peer, deadline, unwanted)?));
            }
        }
        Ok(links)
    }

    /// Dials all of these, some at a time: an answer takes a while, mostly because the other end is busy.
    fn dial_all(
        &self,
        epoch: u64,
        calls: &[(ConnectionKind, (WorkerId, &str))],
        deadline: Instant,
    ) -> Result<Links, Fault> {
        let next = AtomicUsize::new(0);
        let made = Mutex::new(Ok(Links::default()));
        let dial = || {
            while let Some((kind, (peer, address))) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                let stream = self.dial(self.hello(*kind, epoch, Some(*peer)), address, deadline);
                let mut made = made.lock().expect("no holder of this lock panics");
                match (&mut *made, stream) {
                    (Ok(links), Ok(stream)) if *kind == ConnectionKind::Mesh => {
                        links.mesh.push((*peer, stream))
                    }
                    (Ok(links), Ok(stream)) => links.state.push((*peer, stream)),
                    (Ok(_), Err(error)) => *made = Err((Some(*peer), error.to_string())),
                    (Err(_), _) => return,
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..calls.len().min(CALLS_MAX) {
                // With fewer threads it only takes longer.
                let _ = std::thread::Builder::new().name("dial".into()).spawn_scoped(scope, dial);
            }
            dial();
        });
        made.into_inner().expect("no holder of this lock panics")
    }

    fn wait(
        &self,
        kind: ConnectionKind,
        epoch: u64,
        peer: WorkerId,
        deadline: Instant,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Stream, Fault> {
        loop {
            match self.inbox.take(kind, epoch, peer, deadline.min(Instant::now() + LOOK)) {
                Ok(stream) => return Ok(stream),
                Err(_) if unwanted() => return Err((None, "something newer is to be done".into())),
                Err(InboxError::TimedOut) if Instant::now() < deadline => {}
                Err(error) => return Err((Some(peer), error.to_string())),
            }
        }
    }
}
