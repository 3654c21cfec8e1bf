//! The way that bytes take to one peer: a socket, or beside it a lane of shared memory.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bellwether_memory::{Interest, Lane};

use crate::channel::Stream;

/// What one attempt to read or write moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This many bytes, at least one.
    Bytes(usize),
    /// The way is not ready.
    NotReady,
    /// The peer closed its side (reading only).
    Closed,
}

/// A nonblocking way to one peer.
///
/// Between processes of one machine that have a lane the socket carries no frames. It wakes a process that sleeps, and
/// it ends when the other process does.
#[derive(Debug)]
pub(crate) struct Conduit {
    pub(crate) stream: Stream,
    pub(crate) lane: Option<Lane>,
    /// Whether the other end of the socket beside a lane is closed; the lane may still hold bytes.
    closed: bool,
}

impl Conduit {
    pub(crate) fn new(stream: Stream) -> Conduit {
        let lane = stream.take_lane();
        Conduit { stream, lane, closed: false }
    }

    /// Reads what there is.
    pub(crate) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let Some(lane) = &mut self.lane else { return moved((&self.stream).read_vectored(slices)) };
        let count = lane.read(slices).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(if self.closed { Moved::Closed } else { Moved::NotReady });
        }
        if lane.owes_wake(Interest { reads: true, writes: false }) {
            self.wake();
        }
        Ok(Moved::Bytes(count))
    }

    /// Writes what goes at once of the slices.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        let Some(lane) = &mut self.lane else { return moved((&self.stream).write_vectored(slices)) };
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = lane.write(slices).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(Moved::NotReady);
        }
        if lane.owes_wake(Interest { reads: false, writes: true }) {
            self.wake();
        }
        Ok(Moved::Bytes(count))
    }

    /// Wakes the other end of a lane.
    fn wake(&mut self) {
        match (&self.stream).write(&[1]) {
            Ok(_) => {}
            // A full buffer holds wakes enough.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Who waits for something from there learns it from the next read.
            Err(_) => self.closed = true,
        }
    }

    /// Takes in what the other end of a lane has said over the socket: that this one is to wake, or that it is gone.
    /// Says whether it is gone.
    pub(crate) fn hear(&mut self) -> bool {
        let mut wakes = [0; 64];
        while !self.closed {
            match (&self.stream).read(&mut wakes) {
                Ok(0) => self.closed = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        self.closed
    }
}

fn moved(result: io::Result<usize>) -> io::Result<Moved> {
    match result {
        Ok(0) => Ok(Moved::Closed),
        Ok(count) => Ok(Moved::Bytes(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Moved::NotReady),
        // Nonblocking calls are restarted by the caller's next attempt.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Moved::NotReady),
        Err(error) => Err(error),
    }
}
