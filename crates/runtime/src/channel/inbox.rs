//! Where connections wait that passed the handshake.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{ConnectionKind, Hello, Stream};

/// Connections that may wait in an inbox; beyond it those of the oldest epoch are closed.
const INBOX_MAX: usize = 4096;

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
type Streams = BTreeMap<Key, VecDeque<Stream>>;

#[derive(Debug, Default)]
struct Waiting {
    /// Of each key the oldest first; only connections that carry a state each may be several.
    streams: Streams,
    closed: bool,
}

/// Finished connections that wait to be taken, by kind, epoch and worker.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Inbox {
    /// Waits for the connection of `worker` in `epoch`, the newest if there are several; the stream is blocking.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::TimedOut`] at `deadline`, [`InboxError::Closed`] once the inbox is closed.
    pub fn take(
        &self,
        kind: ConnectionKind,
        epoch: u64,
        worker: u64,
        deadline: Instant,
    ) -> Result<Stream, InboxError> {
        self.wait(deadline, |streams| streams.remove(&(kind, epoch, worker))?.pop_back())
    }

    /// Waits for any connection of `kind`; that of the lowest epoch and worker comes first, and of
    /// several the oldest.
    ///
    /// # Errors
    ///
    /// Same errors as [`take`](Inbox::take).
    pub fn take_any(&self, kind: ConnectionKind, deadline: Instant) -> Result<(Arrival, Stream), InboxError> {
        self.wait(deadline, |streams| {
            let key = *streams.range((kind, 0, 0)..=(kind, u64::MAX, u64::MAX)).next()?.0;
            let waiting = streams.get_mut(&key)?;
            let stream = waiting.pop_front()?;
            if waiting.is_empty() {
                streams.remove(&key);
            }
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

    /// Whether a connection of `kind` waits.
    pub fn has(&self, kind: ConnectionKind) -> bool {
        self.lock().streams.range((kind, 0, 0)..=(kind, u64::MAX, u64::MAX)).next().is_some()
    }

    /// Number of waiting connections.
    pub fn len(&self) -> usize {
        count(&self.lock().streams)
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn put(&self, hello: &Hello, stream: Stream) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        let same = waiting.streams.entry((hello.kind, hello.epoch, hello.worker)).or_default();
        if hello.kind != ConnectionKind::State {
            // A worker that dials again has given up its older connection. But one that is faster than its coordinator
            // may send the next state before the last one was taken.
            same.clear();
        }
        same.push_back(stream);
        if count(&waiting.streams) > INBOX_MAX {
            let oldest = waiting.streams.keys().min_by_key(|key| key.1).copied();
            oldest.and_then(|key| waiting.streams.remove(&key));
        }
        drop(waiting);
        self.changed.notify_all();
    }

    fn wait<T>(
        &self,
        deadline: Instant,
        mut find: impl FnMut(&mut Streams) -> Option<T>,
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

/// How many wait.
fn count(streams: &Streams) -> usize {
    streams.values().map(VecDeque::len).sum()
}
