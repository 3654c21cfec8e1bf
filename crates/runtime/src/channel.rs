//! The one secure channel between the processes of a run: workers, servers, coordinator, and the clients that steer it.
//!
//! Between machines it is a Noise handshake (`NNpsk0`, its pre-shared key derived from the run's [`Token`]) and
//! encrypted records over TCP. Both sides prove that they hold the token, which never travels; no third party can
//! listen in, change a byte, or replay a message. Between processes of one user on one machine it is a Unix socket in a
//! private folder, plain, where the system itself says who the other side is.
//!
//! A [`Listener`] admits who passes the handshake, [`dial`] passes it, and both give a [`Stream`], which is read and
//! written like a socket; [`AsyncStream`] is the same for tokio.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;

use rustix::process::{Resource, getrlimit, setrlimit};

mod asynchronous;
mod cipher;
mod descriptors;
mod dialing;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod inbox;
mod lane;
mod listener;
mod local;
pub(crate) mod passing;
pub(crate) mod patience;
mod record;
mod stream;
mod token;

pub use asynchronous::AsyncStream;
pub use cipher::Cipher;
pub use descriptors::{Held, hold_descriptors};
pub use dialing::{DialError, dial};
pub use handshake::{ConnectionKind, Hello, PROTOCOL_VERSION, RefusalReason};
pub use inbox::{Arrival, Inbox, InboxError};
pub use listener::{HANDSHAKE_DEADLINE, HANDSHAKES_MAX, Listener, OnRefusal, Refusal};
pub use stream::Stream;
pub use token::Token;

/// The first address that a name stands for.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, DialError> {
    let unresolved = |source| DialError::Unresolved { address: address.into(), source };
    let mut all = address.to_socket_addrs().map_err(unresolved)?;
    all.next().ok_or_else(|| unresolved(std::io::Error::other("it has no address")))
}

/// A number that no other caller draws.
pub(crate) fn random_number() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Descriptors that no connection of a stranger takes, where a process may have enough: for checkpoints, the journal,
/// logs, and processes to be started.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Handshakes in progress at once, of one listener, and the first descriptor that none of them gets.
///
/// A process has two listeners at most, and a handshake takes two descriptors: strangers hold a quarter of all.
fn descriptor_bounds() -> (usize, RawFd) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let places = usize::try_from(limit / 16).map_or(HANDSHAKES_MAX, |places| places.clamp(2, HANDSHAKES_MAX));
    let reserved = RESERVED_DESCRIPTORS.min(limit / 8);
    (places, RawFd::try_from(limit - reserved).unwrap_or(RawFd::MAX))
}

/// Lets this process have as many descriptors as the system would give it on request: a worker has a connection to
/// every other one, and what waits in a handshake takes some, too.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A connection that may not have more goes on with what there is.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests;
