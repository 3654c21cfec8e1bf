//! What happens when the user's script forks: its children must not hold the worker's connections.

use std::cell::RefCell;
use std::os::fd::RawFd;

use bellwether_runtime::channel::{Held, hold_descriptors};
use pyo3::prelude::*;

thread_local! {
    /// By the thread that forks, from before until after.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Before a fork: no connection is opened or closed until it is over.
#[pyfunction]
pub(crate) fn hold_connections() {
    // A thread that has them for the moment does not wait for the interpreter meanwhile.
    HELD.set(Some(hold_descriptors()));
}

/// After a fork, in the process that forked.
#[pyfunction]
pub(crate) fn release_connections() {
    HELD.take();
}

/// After a fork, in the new process: the descriptors that it has to close.
#[pyfunction]
pub(crate) fn forget_connections() -> Vec<RawFd> {
    HELD.take().map(Held::forget).unwrap_or_default()
}
