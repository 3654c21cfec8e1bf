//! Two processes that met over a Unix socket agree on a lane of shared memory for the frames of the collective.
//!
//! The dialer makes it and passes it on; the listener says whether it could map it. Where either has no memory for it,
//! the frames travel over the socket. The socket stays in any case: it wakes who sleeps, and ends when a process does.

use std::os::fd::AsFd;
use std::time::Instant;

use bellwether_memory::Lane;
use socket2::Socket;

use super::handshake::{RefusalReason, read_until, time_left, write_until};
use super::passing::{PASSED, pass, receive};

/// Bytes of each of the two rings of a pair. Rings that stay in the caches are faster than larger ones.
const RING_BYTES: usize = 256 * 1024;

/// The dialer has a lane, and passes it along with this byte; or the listener has mapped it.
const LANE: u8 = PASSED;

/// There is none.
const NO_LANE: u8 = 0;

/// The dialer's part.
///
/// # Errors
///
/// Returns how the conversation broke off.
pub(super) fn offer(stream: &Socket, deadline: Instant) -> Result<Option<Lane>, RefusalReason> {
    // Without a descriptor or memory to spare the frames travel over the socket.
    let Ok((lane, descriptor)) = Lane::create(RING_BYTES) else {
        return write_until(stream, &[NO_LANE], deadline).map(|()| None);
    };
    let passed = pass(stream, descriptor.as_fd());
    passed.map_err(|error| RefusalReason::System(error.to_string()))?;
    let mut answer = [0];
    read_until(stream, &mut answer, deadline)?;
    Ok((answer[0] == LANE).then_some(lane))
}

/// The listener's part.
///
/// # Errors
///
/// Returns how the conversation broke off.
pub(super) fn accept(stream: &Socket, deadline: Instant) -> Result<Option<Lane>, RefusalReason> {
    let left = time_left(deadline).ok_or(RefusalReason::TimedOut)?;
    let mut said = [0];
    let came = stream.set_read_timeout(Some(left)).and_then(|()| receive(stream, &mut said));
    match came.map_err(|error| RefusalReason::System(error.to_string()))? {
        (0, _) => Err(RefusalReason::HungUp),
        (_, None) if said[0] == NO_LANE => Ok(None),
        (_, descriptor) => {
            let lane = descriptor.and_then(|descriptor| Lane::open(&descriptor).ok());
            write_until(stream, &[if lane.is_some() { LANE } else { NO_LANE }], deadline)?;
            Ok(lane)
        }
    }
}
