//! Makes the data-plane connections that a membership needs.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::profile::Network;

use crate::channel::{ConnectionKind, DialError, Hello, Inbox, InboxError, Stream, dial, resolve};
use crate::control::Token;
use crate::membership::{FromWorker, Membership, WorkerId};
use crate::probe;

/// Time within which all peers must be connected.
const DEADLINE: Duration = Duration::from_secs(5);

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(10);

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
    pub(super) buffers: Vec<Vec<f32>>,
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
        let Network { bandwidth_bytes_per_s, latency_s } = probe::measure(stream)?;
        Ok(FromWorker::LinkMeasured { bandwidth_bytes_per_s, latency_s })
    }

    fn hello(&self, kind: ConnectionKind, epoch: u64, to: Option<WorkerId>) -> Hello {
        Hello { kind, worker: self.me, epoch, to }
    }

    fn dial(&self, hello: Hello, address: &str, deadline: Instant) -> Result<Stream, DialError> {
        dial(resolve(address)?, &hello, &self.token, deadline)
    }

    /// Connects to `peers` of `membership`; a shadow also opens a state stream from every active member,
    /// who wait for it. Of two workers the one with the larger number dials.
    ///
    /// # Errors
    ///
    /// Returns the peer that could not be connected and why; `None` when `unwanted` said so.
    pub(super) fn connect(
        &self,
        membership: &Membership,
        peers: &[(WorkerId, &str)],
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Links, (Option<WorkerId>, String)> {
        let deadline = Instant::now() + DEADLINE;
        let epoch = membership.epoch;
        let shadow = membership.shadows(self.me);
        let mut links = Links::default();
        // All dials first: they need no answer from a peer's main thread, waiting does.
        for (peer, address) in peers {
            let call = |kind| {
                let hello = self.hello(kind, epoch, Some(*peer));
                self.dial(hello, address, deadline).map_err(|error| (Some(*peer), error.to_string()))
            };
            if self.me > *peer {
                links.mesh.push((*peer, call(ConnectionKind::Mesh)?));
            }
            if shadow {
                links.state.push((*peer, call(ConnectionKind::State)?));
            }
        }
        for (peer, _) in peers {
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

    fn wait(
        &self,
        kind: ConnectionKind,
        epoch: u64,
        peer: WorkerId,
        deadline: Instant,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Stream, (Option<WorkerId>, String)> {
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
