//! The listening side: accepts, runs handshakes beside each other, keeps what passed in an inbox.
//!
//! A dialer that stays silent, sends garbage or holds another token costs one short-lived thread for
//! at most [`HANDSHAKE_DEADLINE`], is reported, and touches nothing else.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::handshake::{ConnectionKind, Hello, RefusalReason, Status, admit, refusal_answer};

/// Time a whole handshake may take.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Handshakes in progress at once; further dialers are sent away and may dial again.
pub const HANDSHAKES_MAX: usize = 64;

/// Connections that may wait in an inbox; beyond it those of the oldest epoch are closed.
const INBOX_MAX: usize = 4096;

/// A dialer that was sent away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where it dialed from, if the system still knew.
    pub peer: Option<SocketAddr>,
    /// Why.
    pub reason: RefusalReason,
}

/// Who a finished connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Membership epoch of its hello.
    pub epoch: u64,
    /// The worker that dialed.
    pub worker: u64,
}

/// Why no connection was taken from an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    /// None came before the deadline.
    #[error("the connection did not come in time")]
    TimedOut,
    /// The inbox was closed.
    #[error("the listener is closed")]
    Closed,
}

type Key = (ConnectionKind, u64, u64);

#[derive(Debug, Default)]
struct Waiting {
    streams: BTreeMap<Key, TcpStream>,
    closed: bool,
}

/// Finished connections that wait to be taken, by kind, epoch and worker.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Inbox {
    /// Waits for the connection of `worker` in `epoch`; the stream is blocking.
    ///
    /// # Errors
    ///
    /// [`InboxError::TimedOut`] at `deadline`, [`InboxError::Closed`] once the inbox is closed.
    pub fn take(
        &self,
        kind: ConnectionKind,
        epoch: u64,
        worker: u64,
        deadline: Instant,
    ) -> Result<TcpStream, InboxError> {
        self.wait(deadline, |streams| streams.remove(&(kind, epoch, worker)))
    }

    /// Waits for any connection of `kind`; that of the lowest epoch and worker comes first.
    ///
    /// # Errors
    ///
    /// As for [`take`](Inbox::take).
    pub fn take_any(
        &self,
        kind: ConnectionKind,
        deadline: Instant,
    ) -> Result<(Arrival, TcpStream), InboxError> {
        self.wait(deadline, |streams| {
            let key = *streams.range((kind, 0, 0)..=(kind, u64::MAX, u64::MAX)).next()?.0;
            let stream = streams.remove(&key)?;
            Some((Arrival { epoch: key.1, worker: key.2 }, stream))
        })
    }

    /// Closes the waiting connections of `kind` of epochs below `epoch`.
    pub fn discard_below(&self, kind: ConnectionKind, epoch: u64) {
        self.lock().streams.retain(|key, _| key.0 != kind || key.1 >= epoch);
    }

    /// Closes what waits, and ends every present and future `take`.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.streams.clear();
        drop(waiting);
        self.changed.notify_all();
    }

    /// Number of waiting connections.
    pub fn len(&self) -> usize {
        self.lock().streams.len()
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn put(&self, hello: &Hello, stream: TcpStream) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        // A worker that dials again has given up its older connection.
        waiting.streams.insert((hello.kind, hello.epoch, hello.worker), stream);
        if waiting.streams.len() > INBOX_MAX {
            let oldest = waiting.streams.keys().min_by_key(|key| key.1).copied();
            oldest.and_then(|key| waiting.streams.remove(&key));
        }
        drop(waiting);
        self.changed.notify_all();
    }

    fn wait<T>(
        &self,
        deadline: Instant,
        mut find: impl FnMut(&mut BTreeMap<Key, TcpStream>) -> Option<T>,
    ) -> Result<T, InboxError> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return Err(InboxError::Closed);
            }
            if let Some(found) = find(&mut waiting.streams) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(InboxError::TimedOut);
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The map is whole whatever thread panicked while it held the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Called with every refused dialer, from the listener's threads.
pub type OnRefusal = Arc<dyn Fn(Refusal) + Send + Sync>;

struct Gate {
    job: u64,
    token: [u8; 32],
    inbox: Arc<Inbox>,
    on_refusal: OnRefusal,
    in_progress: AtomicUsize,
}

/// A listening socket with its accepting thread; dropping it ends both and closes the inbox.
pub struct Listener {
    address: SocketAddr,
    inbox: Arc<Inbox>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on `address` (port 0 for any) for dialers of `job` that hold `token`.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound, or no thread or descriptor is to be had.
    pub fn bind(
        address: SocketAddr,
        job: u64,
        token: [u8; 32],
        on_refusal: OnRefusal,
    ) -> io::Result<Listener> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let inbox = Arc::new(Inbox::default());
        let gate = Arc::new(Gate {
            job,
            token,
            inbox: Arc::clone(&inbox),
            on_refusal,
            in_progress: AtomicUsize::new(0),
        });
        let thread = std::thread::Builder::new()
            .name("data-plane-accept".into())
            .spawn(move || accept_until(&socket, &stopped, &gate))?;
        Ok(Listener { address, inbox, stop, thread: Some(thread) })
    }

    /// The bound address, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where finished connections wait.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.inbox.close();
        // Either way the accepting thread sees its end of the pair become readable.
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn accept_until(socket: &TcpListener, stopped: &UnixStream, gate: &Arc<Gate>) {
    loop {
        let mut descriptors = [PollFd::new(socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        // A failed wait (a signal) is only tried again; what is ready is looked up below.
        let _ = poll(&mut descriptors, None);
        if !descriptors[1].revents().is_empty() {
            return;
        }
        match socket.accept() {
            Ok((stream, peer)) => start_handshake(stream, peer, gate),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                (gate.on_refusal)(Refusal { peer: None, reason: RefusalReason::System(error.to_string()) });
                // Out of descriptors, most likely: let some be closed rather than spin.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Frees a place among the handshakes in progress, also when its thread panics.
struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_handshake(mut stream: TcpStream, peer: SocketAddr, gate: &Arc<Gate>) {
    let deadline = Instant::now() + HANDSHAKE_DEADLINE;
    let refuse = move |gate: &Gate, reason| (gate.on_refusal)(Refusal { peer: Some(peer), reason });
    let before = gate.in_progress.fetch_add(1, Ordering::Relaxed);
    let place = Place(Arc::clone(gate));
    if before >= HANDSHAKES_MAX {
        // The few bytes fit any send buffer; if not, the dialer sees only that we hang up.
        let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&refusal_answer(Status::Busy)));
        refuse(gate, RefusalReason::Busy);
        return;
    }
    let handshake = move || {
        let gate = &place.0;
        let prepared = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        let admitted = match prepared {
            Ok(()) => admit(&mut stream, gate.job, &gate.token, deadline),
            Err(error) => Err(RefusalReason::System(error.to_string())),
        };
        match admitted {
            Ok(hello) => gate.inbox.put(&hello, stream),
            Err(reason) => {
                drop(stream);
                refuse(gate, reason);
            }
        }
    };
    let spawned = std::thread::Builder::new().name("data-plane-handshake".into()).spawn(handshake);
    if let Err(error) = spawned {
        refuse(gate, RefusalReason::System(error.to_string()));
    }
}
