//! Frames over a blocking connection: big reads with a little read ahead, and writes of header and payload at once.

use std::io::{self, IoSlice, Write};
use std::sync::{Mutex, MutexGuard};

use super::wire::{HEADER_BYTES, Header};
use crate::channel::Stream;
use crate::mesh::{Link, Moved};

/// Bytes that may be read beyond the current frame.
const AHEAD_BYTES: usize = 4096;

/// Bytes that the system may hold for a connection before a write waits: what is written cannot be overtaken any more,
/// and what is in flight within a host should stay in its cache.
const WRITTEN_BYTES: u32 = 128 << 10;

/// Makes a connection of the handshake one for pieces.
pub(super) fn prepare(stream: &Stream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    // Only speed and the order of what is sent depend on these. Between hosts, what is in flight depends on the delay:
    // there only what was not sent yet is limited.
    let _ = match stream.is_local() {
        true => stream.set_send_buffer_bytes(WRITTEN_BYTES as usize),
        false => stream.set_unsent_bytes(WRITTEN_BYTES),
    };
    Ok(())
}

/// The reading half of a connection.
pub(super) struct Source(Link);

impl Source {
    pub(super) fn new(stream: Stream) -> Source {
        Source(Link::new(stream, None))
    }

    /// The next header; `None` when the other side has closed between two frames.
    pub(super) fn header(&mut self) -> io::Result<Option<Header>> {
        let mut bytes = [0; HEADER_BYTES];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            HEADER_BYTES => Header::decode(&bytes).map(Some).map_err(invalid),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A payload of the length that is due.
    pub(super) fn payload(&mut self, values: &mut [f32]) -> io::Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
        if self.fill(bytes)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads until `target` is full or the other side closes.
    fn fill(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < target.len() {
            match self.0.read_into(&mut target[filled..], AHEAD_BYTES)?.0 {
                Moved::Bytes(count) => filled += count,
                // A signal came between.
                Moved::NotReady => {}
                Moved::Closed => break,
            }
        }
        Ok(filled)
    }
}

/// Writes headers and the payload of the last of them.
pub(super) fn send(stream: &mut Stream, mut headers: &[u8], values: &[f32]) -> io::Result<()> {
    let mut payload: &[u8] = bytemuck::cast_slice(values);
    while !(headers.is_empty() && payload.is_empty()) {
        let count = match stream.write_vectored(&[IoSlice::new(headers), IoSlice::new(payload)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let of_headers = count.min(headers.len());
        headers = &headers[of_headers..];
        payload = &payload[count - of_headers..];
    }
    Ok(())
}

/// An error of the protocol as one of the connection.
pub(super) fn invalid(error: super::wire::WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A lock whose holders do not panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock has panicked")
}
