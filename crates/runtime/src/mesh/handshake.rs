//! The mutual challenge and response that opens every data-plane connection.
//!
//! 1. The dialer sends its [`Hello`] with a fresh nonce (48 bytes).
//! 2. The listener answers with its own nonce and a keyed hash of both (56 bytes).
//! 3. The dialer checks it and sends its own keyed hash (32 bytes).
//!
//! The key is the job's token, which never travels. The hashes name the role that made them, so
//! neither can be played back as the other, and cover every field of the hello and both nonces.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use thiserror::Error;

/// Version of the handshake and of the frames that follow it.
pub const PROTOCOL_VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"BWdp";
const PREFIX_BYTES: usize = 8;
const NONCE_BYTES: usize = 16;
const HELLO_BYTES: usize = 48;
const ANSWER_BYTES: usize = 56;
const PROOF_BYTES: usize = 32;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnectionKind {
    /// Frames of the collective.
    Mesh = 1,
    /// A stream of training state to a joining worker.
    State = 2,
    /// A measurement of the link.
    Probe = 3,
    /// Pulls and pushes of a parameter server's pieces.
    Parameters = 4,
    /// Exchanges between two workers that average their parameters.
    Gossip = 5,
}

impl ConnectionKind {
    fn from_byte(byte: u8) -> Option<ConnectionKind> {
        match byte {
            1 => Some(ConnectionKind::Mesh),
            2 => Some(ConnectionKind::State),
            3 => Some(ConnectionKind::Probe),
            4 => Some(ConnectionKind::Parameters),
            5 => Some(ConnectionKind::Gossip),
            _ => None,
        }
    }
}

/// Who dials, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for.
    pub kind: ConnectionKind,
    /// Tag of the job.
    pub job: u64,
    /// The dialing worker.
    pub worker: u64,
    /// Membership epoch the connection belongs to.
    pub epoch: u64,
}

/// Why a listener sent a dialer away.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RefusalReason {
    /// The first bytes are not a hello of this protocol.
    #[error("speaks another protocol")]
    NotOurProtocol,
    /// A hello of another version of the protocol.
    #[error("speaks protocol version {0}, this is version {PROTOCOL_VERSION}")]
    OtherVersion(u16),
    /// The hello asks for a kind of connection that does not exist.
    #[error("asks for unknown connection kind {0}")]
    UnknownKind(u8),
    /// The hello is for another job.
    #[error("belongs to job {0:#x}")]
    OtherJob(u64),
    /// The dialer's proof is wrong: it does not hold the job's token.
    #[error("does not hold the job's token")]
    WrongToken,
    /// The dialer hung up before it proved itself, as one does that holds another token.
    #[error("hung up before it proved to hold the job's token")]
    HungUp,
    /// The handshake was not over in time.
    #[error("did not finish the handshake in time")]
    TimedOut,
    /// Too many handshakes are in progress.
    #[error("came while too many handshakes were in progress")]
    Busy,
    /// The operating system failed.
    #[error("failed: {0}")]
    System(String),
}

/// Why [`dial`] gave up.
#[derive(Debug, Error)]
pub enum DialError {
    /// No connection, so nobody listens there (any more).
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address dialed.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
    /// What listens there speaks another protocol, or another version of it.
    #[error("{address} speaks another protocol (version {version:?}, this is {PROTOCOL_VERSION})")]
    OtherProtocol {
        /// The address dialed.
        address: SocketAddr,
        /// The other side's version, if it is this protocol at all.
        version: Option<u16>,
    },
    /// The listener belongs to another job.
    #[error("{address} belongs to another job")]
    OtherJob {
        /// The address dialed.
        address: SocketAddr,
    },
    /// The listener could not prove that it holds the job's token.
    #[error("{address} does not hold the job's token")]
    WrongToken {
        /// The address dialed.
        address: SocketAddr,
    },
    /// The listener had too many handshakes in progress, or hung up, until the deadline.
    #[error("{address} hung up in the handshake")]
    HungUp {
        /// The address dialed.
        address: SocketAddr,
    },
    /// The deadline passed.
    #[error("no answer from {address} in time")]
    TimedOut {
        /// The address dialed.
        address: SocketAddr,
    },
    /// The operating system failed (sockets, randomness).
    #[error("cannot dial {address}: {source}")]
    System {
        /// The address dialed.
        address: SocketAddr,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// What the listener says in its answer; all but `Welcome` come without a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Welcome = 0,
    OtherVersion = 1,
    OtherJob = 2,
    Busy = 3,
    BadHello = 4,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Dialer,
    Listener,
}

/// Keyed hash that proves `role`'s knowledge of the token. Every part has a fixed length.
fn proof(token: &[u8; 32], role: Role, hello: &[u8; HELLO_BYTES], nonce: &[u8; NONCE_BYTES]) -> blake3::Hash {
    let domain: &[u8; 32] = match role {
        Role::Dialer => b"bellwether data plane 1, dialer ",
        Role::Listener => b"bellwether data plane 1, listen ",
    };
    blake3::Hasher::new_keyed(token).update(domain).update(hello).update(nonce).finalize()
}

fn encode_hello(hello: &Hello, nonce: &[u8; NONCE_BYTES]) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[6] = hello.kind as u8;
    bytes[8..16].copy_from_slice(&hello.job.to_le_bytes());
    bytes[16..24].copy_from_slice(&hello.worker.to_le_bytes());
    bytes[24..32].copy_from_slice(&hello.epoch.to_le_bytes());
    bytes[32..48].copy_from_slice(nonce);
    bytes
}

fn encode_answer(status: Status, nonce: &[u8; NONCE_BYTES], mac: &[u8; 32]) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[6] = status as u8;
    bytes[8..24].copy_from_slice(nonce);
    bytes[24..56].copy_from_slice(mac);
    bytes
}

/// An answer that sends the dialer away.
pub(super) fn refusal_answer(status: Status) -> [u8; ANSWER_BYTES] {
    encode_answer(status, &[0; NONCE_BYTES], &[0; 32])
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

/// The listening side. On success the stream is blocking, without time limits.
///
/// # Errors
///
/// The reason to report; the caller drops the stream.
pub(super) fn admit(
    stream: &mut TcpStream,
    job: u64,
    token: &[u8; 32],
    deadline: Instant,
) -> Result<Hello, RefusalReason> {
    let mut bytes = [0; HELLO_BYTES];
    // The prefix alone tells another protocol or version, whose hello may be of another length.
    read_until(stream, &mut bytes[..PREFIX_BYTES], deadline)?;
    if bytes[0..4] != MAGIC {
        return Err(RefusalReason::NotOurProtocol);
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != PROTOCOL_VERSION {
        write_until(stream, &refusal_answer(Status::OtherVersion), deadline)?;
        return Err(RefusalReason::OtherVersion(version));
    }
    read_until(stream, &mut bytes[PREFIX_BYTES..], deadline)?;
    let Some(kind) = ConnectionKind::from_byte(bytes[6]) else {
        write_until(stream, &refusal_answer(Status::BadHello), deadline)?;
        return Err(RefusalReason::UnknownKind(bytes[6]));
    };
    let hello = Hello {
        kind,
        job: u64::from_le_bytes(array(&bytes[8..16])),
        worker: u64::from_le_bytes(array(&bytes[16..24])),
        epoch: u64::from_le_bytes(array(&bytes[24..32])),
    };
    if hello.job != job {
        write_until(stream, &refusal_answer(Status::OtherJob), deadline)?;
        return Err(RefusalReason::OtherJob(hello.job));
    }
    let nonce = nonce().map_err(|error| RefusalReason::System(error.to_string()))?;
    let mac = proof(token, Role::Listener, &bytes, &nonce);
    write_until(stream, &encode_answer(Status::Welcome, &nonce, mac.as_bytes()), deadline)?;
    let mut theirs = [0; PROOF_BYTES];
    read_until(stream, &mut theirs, deadline)?;
    // `blake3::Hash` compares in constant time.
    if proof(token, Role::Dialer, &bytes, &nonce) != blake3::Hash::from_bytes(theirs) {
        return Err(RefusalReason::WrongToken);
    }
    let cleared = stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None));
    cleared.map_err(|error| RefusalReason::System(error.to_string()))?;
    Ok(hello)
}

/// Connects to a worker's listener and proves to hold the job's token; so does the listener.
///
/// A listener that is busy is dialed again until the deadline. The stream is blocking, without time
/// limits, and does not delay small writes.
///
/// # Errors
///
/// See [`DialError`].
pub fn dial(
    address: SocketAddr,
    hello: &Hello,
    token: &[u8; 32],
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    const PAUSE: Duration = Duration::from_millis(20);
    loop {
        let error = match attempt(address, hello, token, deadline) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        // Only a full listener hangs up on an honest dialer before it answers.
        if !matches!(error, DialError::HungUp { .. }) || Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
}

fn attempt(
    address: SocketAddr,
    hello: &Hello,
    token: &[u8; 32],
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let fault = |reason: RefusalReason| match reason {
        RefusalReason::HungUp => DialError::HungUp { address },
        RefusalReason::TimedOut => DialError::TimedOut { address },
        other => DialError::System { address, source: io::Error::other(other.to_string()) },
    };
    let left = time_left(deadline).ok_or(DialError::TimedOut { address })?;
    let mut stream = TcpStream::connect_timeout(&address, left).map_err(|source| match source.kind() {
        io::ErrorKind::TimedOut => DialError::TimedOut { address },
        _ => DialError::Connect { address, source },
    })?;
    stream.set_nodelay(true).map_err(|source| DialError::System { address, source })?;
    let own_nonce = nonce().map_err(|source| DialError::System { address, source })?;
    let hello = encode_hello(hello, &own_nonce);
    write_until(&mut stream, &hello, deadline).map_err(fault)?;
    let mut answer = [0; ANSWER_BYTES];
    read_until(&mut stream, &mut answer[..PREFIX_BYTES], deadline).map_err(fault)?;
    if answer[0..4] != MAGIC {
        return Err(DialError::OtherProtocol { address, version: None });
    }
    let version = u16::from_le_bytes([answer[4], answer[5]]);
    let status = answer[6];
    if version != PROTOCOL_VERSION || status == Status::OtherVersion as u8 {
        return Err(DialError::OtherProtocol { address, version: Some(version) });
    }
    if status == Status::OtherJob as u8 {
        return Err(DialError::OtherJob { address });
    }
    if status != Status::Welcome as u8 {
        return Err(DialError::HungUp { address });
    }
    read_until(&mut stream, &mut answer[PREFIX_BYTES..], deadline).map_err(fault)?;
    let nonce = array(&answer[8..24]);
    let theirs = blake3::Hash::from_bytes(array(&answer[24..56]));
    if proof(token, Role::Listener, &hello, &nonce) != theirs {
        return Err(DialError::WrongToken { address });
    }
    let mac = proof(token, Role::Dialer, &hello, &nonce);
    write_until(&mut stream, mac.as_bytes(), deadline).map_err(fault)?;
    let cleared = stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None));
    cleared.map_err(|source| DialError::System { address, source })?;
    Ok(stream)
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

fn time_left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Fills `bytes` before `deadline`, however slowly they drip.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> Result<(), RefusalReason> {
    let mut filled = 0;
    while filled < bytes.len() {
        let left = time_left(deadline).ok_or(RefusalReason::TimedOut)?;
        stream.set_read_timeout(Some(left)).map_err(refusal)?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(RefusalReason::HungUp),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refusal(error)),
        }
    }
    Ok(())
}

fn write_until(stream: &mut TcpStream, bytes: &[u8], deadline: Instant) -> Result<(), RefusalReason> {
    let left = time_left(deadline).ok_or(RefusalReason::TimedOut)?;
    stream.set_write_timeout(Some(left)).map_err(refusal)?;
    stream.write_all(bytes).map_err(refusal)
}

fn refusal(error: io::Error) -> RefusalReason {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => RefusalReason::TimedOut,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::NotConnected => RefusalReason::HungUp,
        _ => RefusalReason::System(error.to_string()),
    }
}
