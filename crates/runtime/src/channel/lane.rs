//! Two processes that met over a Unix socket agree on a lane of shared memory for the frames of the collective.
//!
//! The dialer makes it and passes it on; the listener says whether it could map it. Where either has no memory for it,
//! the frames travel over the socket. The socket stays in any case: it wakes who sleeps, and ends when a process does.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bellwether_memory::Lane;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::Socket;

use super::handshake::{RefusalReason, read_until, time_left, write_until};

/// Bytes of each of the two rings of a pair. Rings that stay in the caches are faster than larger ones.
const RING_BYTES: usize = 256 * 1024;

/// The dialer has a lane, and passes it along with this byte; or the listener has mapped it.
const LANE: u8 = 1;

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
    send(stream, &descriptor).map_err(|error| RefusalReason::System(error.to_string()))?;
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
    let came = stream.set_read_timeout(Some(left)).and_then(|()| receive(stream));
    match came.map_err(|error| RefusalReason::System(error.to_string()))? {
        None => Err(RefusalReason::HungUp),
        Some((NO_LANE, _)) => Ok(None),
        Some((_, descriptor)) => {
            let lane = descriptor.and_then(|descriptor| Lane::open(&descriptor).ok());
            write_until(stream, &[if lane.is_some() { LANE } else { NO_LANE }], deadline)?;
            Ok(lane)
        }
    }
}

fn send(stream: &Socket, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    // One byte and the little that was said before fit any buffer.
    sendmsg(stream, &[IoSlice::new(&[LANE])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// One byte with the descriptor that came along; none where the other side has hung up.
fn receive(stream: &Socket) -> io::Result<Option<(u8, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    // What a peer sends beyond one is closed here.
    let descriptor = descriptors.flatten().next();
    Ok((message.bytes > 0).then_some((byte[0], descriptor)))
}
