//! Which descriptors of this process are connections of the run, so that those who are forked from it can close theirs.
//!
//! A connection ends for its other end when the last process closes it. A child of a worker, such as a loader of data,
//! that kept what it was born with would hide the worker's death.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

static OPEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

fn open() -> MutexGuard<'static, BTreeSet<RawFd>> {
    // A set is whole whatever thread panicked while it held the lock.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor is known as the run's as long as this lives. It must go before the descriptor is closed: its number may
/// be another's afterwards.
#[derive(Debug)]
pub(super) struct Noted(RawFd);

impl Noted {
    pub(super) fn of(socket: &impl AsRawFd) -> Noted {
        let descriptor = socket.as_raw_fd();
        open().insert(descriptor);
        Noted(descriptor)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        open().remove(&self.0);
    }
}

/// While this lives no connection of the run is opened or closed in this process: for the moment of a fork.
#[derive(Debug)]
pub struct Held(MutexGuard<'static, BTreeSet<RawFd>>);

/// Holds all connections as they are. A process that is forked meanwhile has exactly these.
pub fn hold_descriptors() -> Held {
    Held(open())
}

impl Held {
    /// What a forked process has of the run's connections, and has to close. To be asked there, once.
    pub fn forget(mut self) -> Vec<RawFd> {
        std::mem::take(&mut *self.0).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_noted_is_held_and_what_is_dropped_is_not() {
        let (a, b) = UnixStream::pair().expect("a pair");
        let (noted, other) = (Noted::of(&a), Noted::of(&b));
        drop(other);
        let held = hold_descriptors();
        assert!(held.0.contains(&a.as_raw_fd()) && !held.0.contains(&b.as_raw_fd()));
        drop(held);
        drop(noted);
        assert!(!open().contains(&a.as_raw_fd()));
    }
}
