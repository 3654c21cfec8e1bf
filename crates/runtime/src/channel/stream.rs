//! A connection whose two ends know each other.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::record::LinkKind;
use bellwether_memory::Lane;
use rustix::net::{RecvFlags, recv};
use socket2::{SockAddr, Socket};

use super::cipher::Direction;
use super::descriptors::Noted;
use super::patience::limit_silence;
use super::record::{Opener, Sealer};

/// A connection between two processes of a run, read and written like a socket.
///
/// Clones are the same connection. One thread may read while another writes; the connection ends with the last clone,
/// or when it is [shut down](Stream::shutdown).
///
/// After [`io::ErrorKind::WouldBlock`], the writer to a nonblocking stream must offer the same bytes again, because
/// they may be encrypted already; it may offer more behind them.
#[derive(Clone)]
pub struct Stream {
    socket: Arc<Known>,
    /// Absent where bytes travel as they are.
    secrets: Option<Arc<Secrets>>,
}

/// A socket that processes forked from this one know to close.
struct Known {
    /// Goes first.
    _noted: Noted,
    socket: Socket,
    /// Until its user takes it.
    lane: Mutex<Option<Lane>>,
}

impl Known {
    fn new(socket: Socket, lane: Option<Lane>) -> Arc<Known> {
        Arc::new(Known { _noted: Noted::of(&socket), socket, lane: Mutex::new(lane) })
    }
}

impl std::ops::Deref for Known {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

struct Secrets {
    sealer: Mutex<Sealer>,
    opener: Mutex<Opener>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between left a connection that no longer makes sense, which the other side will notice.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// A connection over TCP as it is, for measurements of what protection costs.
    pub fn unprotected(stream: TcpStream) -> Stream {
        Stream::plain(stream.into())
    }

    /// A connection on which bytes travel as they are.
    pub(super) fn plain(socket: Socket) -> Stream {
        Stream::local(socket, None)
    }

    /// A connection within one machine, with the shared memory that both ends have agreed on.
    pub(super) fn local(socket: Socket, lane: Option<Lane>) -> Stream {
        Stream { socket: Known::new(socket, lane), secrets: None }
    }

    /// The shared memory that belongs to the connection, once; both ends take it or neither does. Who takes it uses the
    /// socket only to wake the other end, and to see that it ends.
    pub fn take_lane(&self) -> Option<Lane> {
        lock(&self.socket.lane).take()
    }

    /// A connection whose handshake left these keys: for what is sent, and for what comes.
    pub(super) fn encrypted(socket: Socket, send: Direction, receive: Direction) -> Stream {
        let (sealer, opener) = (Mutex::new(Sealer::new(send)), Mutex::new(Opener::new(receive)));
        Stream { socket: Known::new(socket, None), secrets: Some(Arc::new(Secrets { sealer, opener })) }
    }

    /// Whether both ends are on one machine, over whatever kind of socket.
    pub fn is_local(&self) -> bool {
        let Ok(here) = self.socket.local_addr() else { return false };
        let host = |address: SockAddr| address.as_socket().map(|address| address.ip());
        here.is_unix() || self.socket.peer_addr().is_ok_and(|there| host(there) == host(here))
    }

    /// What carries the bytes, where no shared memory does.
    pub(crate) fn kind(&self) -> LinkKind {
        let is_unix = self.socket.local_addr().is_ok_and(|here| here.is_unix());
        match (&self.secrets, is_unix) {
            (Some(_), _) => LinkKind::EncryptedTcp,
            (None, true) => LinkKind::UnixSocket,
            (None, false) => LinkKind::Tcp,
        }
    }

    /// How long what was sent may stay unanswered, where the system counts it: not on one machine.
    pub(crate) fn limit_silence(&self, patience: Duration) -> io::Result<()> {
        match self.socket.local_addr()?.is_unix() {
            true => Ok(()),
            false => limit_silence(&self.socket.socket, patience),
        }
    }

    /// Makes reads and writes return at once when they cannot go on.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    /// Ends one read after this time; without one it waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses, as it does for no time at all.
    pub fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(patience)
    }

    /// Ends one write after this time; without one it waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses, as it does for no time at all.
    pub fn set_write_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(patience)
    }

    /// Closes one direction or both, for all clones; wakes who reads or writes.
    ///
    /// # Errors
    ///
    /// Returns an error if it was closed before.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Sizes the buffer for what is sent, in bytes.
    pub(crate) fn set_send_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_send_buffer_size(bytes)
    }

    /// Lets a write wait while this many bytes are not sent yet, where that is counted.
    pub(crate) fn set_unsent_bytes(&self, bytes: u32) -> io::Result<()> {
        self.socket.set_tcp_notsent_lowat(bytes)
    }

    /// Encrypts and keeps what a write takes of what is offered, whatever the socket takes at once; says how much.
    ///
    /// For writers that cannot promise to offer the same bytes again. What is kept goes out with the next call, or with
    /// [`flush_kept`](Stream::flush_kept).
    pub(super) fn write_kept(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(secrets) = &self.secrets else { return (&self.socket.socket).write(bytes) };
        let mut sealer = lock(&secrets.sealer);
        self.send(&mut sealer)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = sealer.seal(&[IoSlice::new(bytes)]);
        match self.send(&mut sealer) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what is kept.
    pub(super) fn flush_kept(&self) -> io::Result<()> {
        match &self.secrets {
            Some(secrets) => self.send(&mut lock(&secrets.sealer)),
            None => Ok(()),
        }
    }

    /// Sends what is left of what is sealed.
    fn send(&self, sealer: &mut Sealer) -> io::Result<()> {
        while !sealer.unsent().is_empty() {
            match (&self.socket.socket).write(sealer.unsent()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sealer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Seals and sends some records at a time; counts those that went out whole.
    fn write_sealed(&self, secrets: &Secrets, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut sealer = lock(&secrets.sealer);
        let mut written = 0;
        while written < offered {
            if sealer.unsent().is_empty() {
                match written {
                    0 => sealer.seal(slices),
                    _ => sealer.seal(&behind(slices, written)),
                };
            }
            match self.send(&mut sealer) {
                Ok(()) => written += sealer.held(),
                // What is done is done; the next call meets the error again.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Opens record by record. Waits for the first byte only (if the socket waits at all), and takes what more there
    /// is.
    fn read_opened(&self, secrets: &Secrets, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut opener = lock(&secrets.opener);
        let mut total = 0;
        for slice in slices {
            let mut filled = 0;
            while filled < slice.len() {
                let plain = match opener.plain() {
                    Err(_) if total > 0 => return Ok(total),
                    plain => plain?,
                };
                if plain.is_empty() {
                    match self.receive(&mut opener, total > 0) {
                        Ok(0) => return Ok(total),
                        Ok(_) => continue,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(_) if total > 0 => return Ok(total),
                        Err(error) => return Err(error),
                    }
                }
                let count = plain.len().min(slice.len() - filled);
                slice[filled..filled + count].copy_from_slice(&plain[..count]);
                opener.take(count);
                (filled, total) = (filled + count, total + count);
            }
        }
        Ok(total)
    }

    /// Reads once from the socket.
    fn receive(&self, opener: &mut Opener, at_once: bool) -> io::Result<usize> {
        let flags = if at_once { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let (count, _) = recv(self, opener.room(), flags)?;
        opener.filled(count);
        Ok(count)
    }
}

/// What is left of the slices behind their first `skip` bytes.
fn behind<'a>(slices: &'a [IoSlice<'_>], mut skip: usize) -> Vec<IoSlice<'a>> {
    let mut left = Vec::with_capacity(slices.len());
    for slice in slices {
        let skipped = skip.min(slice.len());
        skip -= skipped;
        left.push(IoSlice::new(&slice[skipped..]));
    }
    left
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(bytes)])
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &self.secrets {
            Some(secrets) => self.read_opened(secrets, slices),
            None => (&self.socket.socket).read_vectored(slices),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.secrets {
            Some(secrets) => self.write_sealed(secrets, slices),
            None => (&self.socket.socket).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(slices)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Two ends of a connection with a lane of such rings, within one process: for what feeds decoders.
    ///
    /// # Panics
    ///
    /// If the system gives no descriptors, or no memory.
    pub(crate) fn pair_with_lane(ring_bytes: usize) -> (Stream, Stream) {
        let (one, other) = UnixStream::pair().expect("descriptors");
        let (lane, descriptor) = Lane::create(ring_bytes).expect("memory");
        let there = Lane::open(&descriptor).expect("the same memory");
        (Stream::local(one.into(), Some(lane)), Stream::local(other.into(), Some(there)))
    }
}

/// Between processes of one machine, or threads of one process.
impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::plain(stream.into())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.secrets.is_some() { "encrypted" } else { "plain" };
        f.debug_struct("Stream").field("kind", &kind).field("descriptor", &self.as_raw_fd()).finish()
    }
}
