//! Interrupts a collective that waits for peers, from another thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Makes a waker and the receiver it wakes.
///
/// # Errors
///
/// Returns an error if the system gives no descriptors.
pub fn wake_pair() -> io::Result<(Waker, WakeReceiver)> {
    let (sender, receiver) = UnixStream::pair()?;
    sender.set_nonblocking(true)?;
    receiver.set_nonblocking(true)?;
    Ok((Waker { sender: Arc::new(sender) }, WakeReceiver { receiver }))
}

/// Wakes its [`WakeReceiver`]; clones wake the same one.
#[derive(Debug, Clone)]
pub struct Waker {
    sender: Arc<UnixStream>,
}

impl Waker {
    /// Makes the receiver readable until it is drained.
    pub fn wake(&self) {
        // A full buffer means that it is readable already; a closed one means that no thread waits.
        let _ = (&*self.sender).write(&[1]);
    }
}

/// The side that waits. A collective only looks at it; draining is the caller's.
#[derive(Debug)]
pub struct WakeReceiver {
    receiver: UnixStream,
}

impl WakeReceiver {
    /// Takes back all wakes so far; says whether there were any.
    pub fn drain(&self) -> bool {
        let mut bytes = [0; 64];
        let mut woken = false;
        while matches!((&self.receiver).read(&mut bytes), Ok(count) if count > 0) {
            woken = true;
        }
        woken
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
