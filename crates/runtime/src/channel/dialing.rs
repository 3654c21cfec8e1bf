//! The dialing side of the handshake.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::Socket;
use thiserror::Error;

use super::handshake::{
    ConnectionKind, HEADER_BYTES, Hello, MAGIC, NOISE_BYTES, PREFIX_BYTES, PROTOCOL_VERSION, REST_BYTES,
    RefusalReason, Status, directions, header, limitless, noise, protected, read_until, rest, time_left,
    write_until,
};
use super::patience::{PATIENCE, limit_silence};
use super::record::empty_record;
use super::{Stream, Token, lane, local};

/// Why [`dial`] gave up.
#[derive(Debug, Error)]
pub enum DialError {
    /// The name stands for no address.
    #[error("{address}: {source}")]
    Unresolved {
        /// The name.
        address: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The connection was refused: no process listens there (any more).
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
    /// The listener says that it belongs to another job.
    #[error("{address} belongs to another job: the token is not its run's")]
    OtherJob {
        /// The address dialed.
        address: SocketAddr,
    },
    /// The listener says that the run's token names another cipher.
    #[error("{address} uses another cipher than this token names, so the token is not its run's")]
    OtherCipher {
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

/// Connects to a listener of this run; both sides prove that they belong to it.
///
/// A listener of the same user on the same machine is reached over its Unix socket, any other over TCP, encrypted. One
/// that is busy is dialed again until the deadline. The stream is blocking, without time limits, and does not delay
/// small writes.
///
/// # Errors
///
/// See [`DialError`].
pub fn dial(
    address: SocketAddr,
    hello: &Hello,
    token: &Token,
    deadline: Instant,
) -> Result<Stream, DialError> {
    const PAUSE: Duration = Duration::from_millis(20);
    if let Some(stream) = local::connect(token.job_tag(), address)
        && let Ok(stream) = (Call { address, hello, token, deadline }).local(stream)
    {
        return Ok(stream);
    }
    loop {
        let error = match (Call { address, hello, token, deadline }).remote() {
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

/// One attempt to reach a listener.
pub(super) struct Call<'a> {
    pub(super) address: SocketAddr,
    pub(super) hello: &'a Hello,
    pub(super) token: &'a Token,
    pub(super) deadline: Instant,
}

impl Call<'_> {
    fn fault(&self, reason: RefusalReason) -> DialError {
        let address = self.address;
        match reason {
            RefusalReason::HungUp => DialError::HungUp { address },
            RefusalReason::TimedOut => DialError::TimedOut { address },
            other => self.system(io::Error::other(other.to_string())),
        }
    }

    fn system(&self, source: io::Error) -> DialError {
        DialError::System { address: self.address, source }
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        header(self.hello.kind as u8, self.token.cipher(), self.token.job_tag())
    }

    fn local(&self, stream: Socket) -> Result<Stream, DialError> {
        let said = [&self.header()[..], &rest(self.hello)].concat();
        write_until(&stream, &said, self.deadline).map_err(|reason| self.fault(reason))?;
        self.welcomed(&stream)?;
        let lane = match self.hello.kind {
            ConnectionKind::Mesh | ConnectionKind::Probe => {
                lane::offer(&stream, self.deadline).map_err(|reason| self.fault(reason))?
            }
            _ => None,
        };
        limitless(&stream).map_err(|source| self.system(source))?;
        Ok(Stream::local(stream, lane))
    }

    fn remote(&self) -> Result<Stream, DialError> {
        let (address, deadline) = (self.address, self.deadline);
        let left = time_left(deadline).ok_or(DialError::TimedOut { address })?;
        let stream = TcpStream::connect_timeout(&address, left).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => DialError::TimedOut { address },
            _ => DialError::Connect { address, source },
        })?;
        let stream = Socket::from(stream);
        let tended = stream.set_tcp_nodelay(true).and_then(|()| limit_silence(&stream, PATIENCE));
        tended.map_err(|source| self.system(source))?;
        self.greet(stream)
    }

    /// The dialing side of the handshake.
    pub(super) fn greet(&self, stream: Socket) -> Result<Stream, DialError> {
        let (address, deadline) = (self.address, self.deadline);
        let header = self.header();
        let mut noise = noise(self.token, &header, true);
        let mut said = [0; HEADER_BYTES + REST_BYTES + NOISE_BYTES];
        said[..HEADER_BYTES].copy_from_slice(&header);
        let written = noise.write_message(&rest(self.hello), &mut said[HEADER_BYTES..]);
        written.map_err(|error| self.system(io::Error::other(error.to_string())))?;
        write_until(&stream, &said, deadline).map_err(|reason| self.fault(reason))?;
        self.welcomed(&stream)?;
        let mut message = [0; NOISE_BYTES];
        read_until(&stream, &mut message, deadline).map_err(|reason| self.fault(reason))?;
        noise.read_message(&message, &mut [0; NOISE_BYTES]).map_err(|_| DialError::WrongToken { address })?;
        let cipher = self.token.cipher();
        let (mut send, receive) = directions(cipher, noise, true);
        write_until(&stream, &empty_record(&mut send), deadline).map_err(|reason| self.fault(reason))?;
        limitless(&stream).map_err(|source| self.system(source))?;
        Ok(protected(stream, cipher, (send, receive)))
    }

    /// Reads the listener's first word.
    fn welcomed(&self, stream: &Socket) -> Result<(), DialError> {
        let address = self.address;
        let mut word = [0; PREFIX_BYTES];
        read_until(stream, &mut word, self.deadline).map_err(|reason| self.fault(reason))?;
        if word[0..4] != MAGIC {
            return Err(DialError::OtherProtocol { address, version: None });
        }
        let version = u16::from_le_bytes([word[4], word[5]]);
        match word[6] {
            _ if version != PROTOCOL_VERSION => {
                Err(DialError::OtherProtocol { address, version: Some(version) })
            }
            s if s == Status::Welcome as u8 => Ok(()),
            s if s == Status::OtherJob as u8 => Err(DialError::OtherJob { address }),
            s if s == Status::OtherCipher as u8 => Err(DialError::OtherCipher { address }),
            _ => Err(DialError::HungUp { address }),
        }
    }
}
