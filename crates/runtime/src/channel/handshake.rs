//! The handshake that opens every connection.
//!
//! 1. The dialer says in the clear what it speaks and which run it means (16 bytes), then sends the first message of
//!    Noise's `NNpsk0` (72 bytes), which holds the rest of its [`Hello`].
//! 2. The listener answers with a status (8 bytes) and Noise's second message (48 bytes).
//! 3. The dialer sends the first, empty record (18 bytes): what was recorded before cannot play this part.
//!
//! The pre-shared key comes from the run's token. Everything said in the clear is bound into the keys, so no third
//! party can change version, cipher, purpose or run. Over a Unix socket the same is said without Noise, and for frames
//! of the collective the two then agree on a lane of shared memory (the module `lane`).

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use snow::resolvers::{DefaultResolver, FallbackResolver, RingResolver};
use snow::{Builder, HandshakeState};
use socket2::Socket;
use thiserror::Error;

use super::cipher::{Cipher, Direction};
use super::record::{EmptyRecord, is_empty_record};
use super::{Stream, Token, local};

/// Version of the handshake and of all that is spoken after it, on both planes.
pub const PROTOCOL_VERSION: u16 = 3;

pub(super) const MAGIC: [u8; 4] = *b"BWch";
pub(super) const PREFIX_BYTES: usize = 8;
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const REST_BYTES: usize = 24;
/// What Noise adds to each message: a public key and a tag.
pub(super) const NOISE_BYTES: usize = 48;

/// Says that a dialer does not care who listens, or a listener does not know its number yet.
pub(super) const ANYONE: u64 = u64::MAX;

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
    /// The control plane: gRPC.
    Control = 6,
    /// A worker of an inference, or who steers one.
    Inference = 7,
}

impl ConnectionKind {
    /// All that belong to the data plane.
    pub(super) const DATA: [ConnectionKind; 5] = [
        ConnectionKind::Mesh,
        ConnectionKind::State,
        ConnectionKind::Probe,
        ConnectionKind::Parameters,
        ConnectionKind::Gossip,
    ];
}

/// Who dials, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// What the connection is for.
    pub kind: ConnectionKind,
    /// The dialing worker.
    pub worker: u64,
    /// Membership epoch the connection belongs to.
    pub epoch: u64,
    /// The worker that is meant (0 the coordinator), where the dialer knows.
    pub to: Option<u64>,
}

/// Why a listener sent a dialer away.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RefusalReason {
    /// The first bytes are not a hello of this protocol.
    #[error("speaks another protocol")]
    NotOurProtocol,
    /// A hello of another version of the protocol.
    #[error(
        "speaks protocol version {0}, this is version {PROTOCOL_VERSION}; use the same release on all machines"
    )]
    OtherVersion(u16),
    /// The hello asks for a kind of connection that is not served here.
    #[error("asks for unknown connection kind {0}")]
    UnknownKind(u8),
    /// The hello is for another run.
    #[error("belongs to job {0:#x}: its token is not this run's")]
    OtherJob(u64),
    /// The hello is for another process of the run.
    #[error("looks for worker {0}, which is not here")]
    OtherWorker(u64),
    /// The hello is of this run, and of another cipher than its token names.
    #[error("holds a token that names another cipher")]
    OtherCipher,
    /// The hello does not prove knowledge of the token, or is an old one played back.
    #[error("does not hold the job's token")]
    WrongToken,
    /// A process of another user dialed over a socket of this one.
    #[error("belongs to another user of this machine")]
    OtherUser,
    /// The dialer hung up in the handshake.
    #[error("hung up before it proved to hold the job's token")]
    HungUp,
    /// The handshake was not over in time.
    #[error("did not finish the handshake in time")]
    TimedOut,
    /// Too many handshakes were in progress, and this was the oldest that had said nothing.
    #[error("came while too many handshakes were in progress")]
    Busy,
    /// This process has no descriptor to spare.
    #[error("came while this process had no descriptor to spare; `ulimit -n` says how many it may have")]
    NoDescriptors,
    /// The operating system failed.
    #[error("failed: {0}")]
    System(String),
}

/// What the listener says first; all but `Welcome` come without a proof, so they end an attempt and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Welcome = 0,
    OtherVersion = 1,
    OtherJob = 2,
    Busy = 3,
    BadHello = 4,
    OtherCipher = 5,
}

/// What of the hello is said in the clear, as it goes over the wire.
pub(super) fn header(kind: u8, cipher: Cipher, job: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[6] = kind;
    bytes[7] = cipher as u8;
    bytes[8..16].copy_from_slice(&job.to_le_bytes());
    bytes
}

/// What of the hello is said to the right listener only.
pub(super) fn rest(hello: &Hello) -> [u8; REST_BYTES] {
    let mut bytes = [0; REST_BYTES];
    bytes[0..8].copy_from_slice(&hello.worker.to_le_bytes());
    bytes[8..16].copy_from_slice(&hello.epoch.to_le_bytes());
    bytes[16..24].copy_from_slice(&hello.to.unwrap_or(ANYONE).to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(number)
}

fn read_rest(kind: ConnectionKind, bytes: &[u8; REST_BYTES]) -> Hello {
    let to = number(&bytes[16..24]);
    Hello {
        kind,
        worker: number(&bytes[0..8]),
        epoch: number(&bytes[8..16]),
        to: (to != ANYONE).then_some(to),
    }
}

/// The listener's first word.
pub(super) fn status(status: Status) -> [u8; PREFIX_BYTES] {
    let mut bytes = [0; PREFIX_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[6] = status as u8;
    bytes
}

/// One side of the Noise handshake, bound to what was said in the clear.
pub(super) fn noise(token: &Token, header: &[u8; HEADER_BYTES], dials: bool) -> HandshakeState {
    let name = format!("Noise_NNpsk0_25519_{}_BLAKE2s", token.cipher().noise());
    let resolver = FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver));
    let key = token.handshake_key();
    let builder = Builder::with_resolver(name.parse().expect("the name is well-formed"), Box::new(resolver));
    let builder = builder.psk(0, &key).and_then(|builder| builder.prologue(header));
    let built = builder.and_then(|b| if dials { b.build_initiator() } else { b.build_responder() });
    built.expect("all that the name asks for is compiled in")
}

/// The keys for what is sent and for what comes, once the handshake is over.
pub(super) fn directions(cipher: Cipher, mut noise: HandshakeState, dials: bool) -> (Direction, Direction) {
    let (dialers, listeners) = noise.dangerously_get_raw_split();
    let (dialers, listeners) = (Direction::new(cipher, &dialers), Direction::new(cipher, &listeners));
    if dials { (dialers, listeners) } else { (listeners, dialers) }
}

/// The connection that the handshake was for.
pub(super) fn protected(socket: Socket, cipher: Cipher, (send, receive): (Direction, Direction)) -> Stream {
    match cipher {
        Cipher::Unencrypted => Stream::plain(socket),
        Cipher::Aes256Gcm | Cipher::ChaCha20Poly1305 => Stream::encrypted(socket, send, receive),
    }
}

/// What a listener admits.
pub(super) struct Door<'a> {
    pub(super) token: &'a Token,
    pub(super) kinds: &'a [ConnectionKind],
    /// The listener's own number, once it knows.
    pub(super) number: Option<u64>,
    /// When the whole handshake must be over.
    pub(super) deadline: Instant,
    /// Called when the dialer has said something that only a holder of the token says.
    pub(super) proved: &'a dyn Fn(),
}

impl Door<'_> {
    /// The listening side over TCP. The stream is blocking, without time limits.
    ///
    /// # Errors
    ///
    /// Returns the reason to report.
    pub(super) fn admit(&self, stream: Socket) -> Result<(Hello, Stream), RefusalReason> {
        let (kind, header) = self.read_header(&stream)?;
        let mut message = [0; REST_BYTES + NOISE_BYTES];
        read_until(&stream, &mut message, self.deadline)?;
        let mut noise = noise(self.token, &header, false);
        let mut bytes = [0; REST_BYTES + NOISE_BYTES];
        // A peer that holds another token, or was recorded under another, fails here.
        noise.read_message(&message, &mut bytes).map_err(|_| RefusalReason::WrongToken)?;
        (self.proved)();
        let hello = self.check(kind, &bytes)?;
        let mut answer = [0; PREFIX_BYTES + NOISE_BYTES];
        answer[..PREFIX_BYTES].copy_from_slice(&status(Status::Welcome));
        let written = noise.write_message(&[], &mut answer[PREFIX_BYTES..]);
        written.map_err(|error| RefusalReason::System(error.to_string()))?;
        write_until(&stream, &answer, self.deadline)?;
        let cipher = self.token.cipher();
        let (send, mut receive) = directions(cipher, noise, false);
        let mut confirmation = EmptyRecord::default();
        read_until(&stream, &mut confirmation, self.deadline)?;
        // A peer that only replays what an honest dialer said fails here.
        if !is_empty_record(confirmation, &mut receive) {
            return Err(RefusalReason::WrongToken);
        }
        limitless(&stream).map_err(|error| RefusalReason::System(error.to_string()))?;
        Ok((hello, protected(stream, cipher, (send, receive))))
    }

    /// The listening side over a Unix socket, up to the lane, on which the sides agree next.
    ///
    /// # Errors
    ///
    /// Returns the reason to report.
    pub(super) fn admit_local(&self, stream: Socket) -> Result<(Hello, Socket), RefusalReason> {
        if !local::is_ours(&stream) {
            return Err(RefusalReason::OtherUser);
        }
        (self.proved)();
        let (kind, _) = self.read_header(&stream)?;
        let mut bytes = [0; REST_BYTES];
        read_until(&stream, &mut bytes, self.deadline)?;
        let hello = self.check(kind, &bytes)?;
        write_until(&stream, &status(Status::Welcome), self.deadline)?;
        Ok((hello, stream))
    }

    fn read_header(&self, stream: &Socket) -> Result<(ConnectionKind, [u8; HEADER_BYTES]), RefusalReason> {
        let mut bytes = [0; HEADER_BYTES];
        // The prefix alone tells another protocol or version, whose hello may be of another length.
        read_until(stream, &mut bytes[..PREFIX_BYTES], self.deadline)?;
        if bytes[0..4] != MAGIC {
            return Err(RefusalReason::NotOurProtocol);
        }
        let refuse = |answer, reason| {
            write_until(stream, &status(answer), self.deadline)?;
            Err(reason)
        };
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != PROTOCOL_VERSION {
            return refuse(Status::OtherVersion, RefusalReason::OtherVersion(version));
        }
        let Some(kind) = self.kinds.iter().find(|kind| **kind as u8 == bytes[6]) else {
            return refuse(Status::BadHello, RefusalReason::UnknownKind(bytes[6]));
        };
        read_until(stream, &mut bytes[PREFIX_BYTES..], self.deadline)?;
        let job = number(&bytes[8..16]);
        if job != self.token.job_tag() {
            return refuse(Status::OtherJob, RefusalReason::OtherJob(job));
        }
        if bytes[7] != self.token.cipher() as u8 {
            return refuse(Status::OtherCipher, RefusalReason::OtherCipher);
        }
        Ok((*kind, bytes))
    }

    fn check(&self, kind: ConnectionKind, bytes: &[u8]) -> Result<Hello, RefusalReason> {
        let bytes = bytes.first_chunk().expect("the messages have this length");
        let hello = read_rest(kind, bytes);
        match (hello.to, self.number) {
            (Some(meant), Some(here)) if meant != here => Err(RefusalReason::OtherWorker(meant)),
            _ => Ok(hello),
        }
    }
}

pub(super) fn limitless(stream: &Socket) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

pub(super) fn time_left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Fills `bytes` before `deadline`, however slowly they drip.
pub(super) fn read_until(stream: &Socket, bytes: &mut [u8], deadline: Instant) -> Result<(), RefusalReason> {
    let mut filled = 0;
    while filled < bytes.len() {
        let left = time_left(deadline).ok_or(RefusalReason::TimedOut)?;
        stream.set_read_timeout(Some(left)).map_err(refusal)?;
        match (&mut &*stream).read(&mut bytes[filled..]) {
            Ok(0) => return Err(RefusalReason::HungUp),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refusal(error)),
        }
    }
    Ok(())
}

pub(super) fn write_until(stream: &Socket, bytes: &[u8], deadline: Instant) -> Result<(), RefusalReason> {
    let left = time_left(deadline).ok_or(RefusalReason::TimedOut)?;
    stream.set_write_timeout(Some(left)).map_err(refusal)?;
    (&mut &*stream).write_all(bytes).map_err(refusal)
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
