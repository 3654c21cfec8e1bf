//! The way that bytes take to one peer: a socket, or beside it a lane of shared memory.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bellwether_core::record::LinkKind;
use bellwether_memory::{Arena, Interest, Lane, View};

use crate::channel::Stream;
use crate::channel::passing::{PASSED, pass, receive};

/// Wakes the other end of a lane.
const WAKE: u8 = PASSED;

/// Says to the other end of a lane that this one has mapped the vectors that it passed on.
const MAPPED: u8 = 2;

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
/// Between processes of one machine that have a lane the socket carries no frames. It wakes a process that sleeps, it
/// ends when the other process does, and each end passes its vectors over it and says whether it could map the other's.
/// Vectors are lent only to an end that has said so; one without a descriptor or address space to spare is sent copies.
#[derive(Debug)]
pub(crate) struct Conduit {
    pub(crate) stream: Stream,
    pub(crate) lane: Option<Lane>,
    /// What carries the frames.
    pub(crate) kind: LinkKind,
    /// The vectors of the other end, if it lets this one read them.
    view: Option<View>,
    /// Whether the other end has mapped those of this one.
    viewed: bool,
    /// Whether the other end of the socket beside a lane is closed; the lane may still hold bytes.
    closed: bool,
}

impl Conduit {
    /// With a lane, the other end may read the vectors of `arena` where they lie.
    pub(crate) fn new(stream: Stream, arena: Option<&Arena>) -> Conduit {
        let lane = stream.take_lane();
        if let (Some(_), Some(arena)) = (&lane, arena) {
            // Without a descriptor to spare nothing is lent, and a broken connection is met by the first exchange.
            let _ = pass(&stream, arena.descriptor());
        }
        let kind = if lane.is_some() { LinkKind::SharedMemory } else { stream.kind() };
        Conduit { stream, lane, kind, view: None, viewed: false, closed: false }
    }

    /// The vectors of the other end, which it passed on when the two met.
    pub(crate) fn view(&mut self) -> Option<&View> {
        if self.view.is_none() {
            self.hear();
        }
        self.view.as_ref()
    }

    /// Whether the other end has said that it can read this end's vectors. Answers what that end has passed on, too.
    pub(crate) fn is_viewed(&mut self) -> bool {
        if self.lane.is_some() && !(self.viewed && self.view.is_some()) {
            self.hear();
        }
        self.viewed
    }

    /// Reads what there is.
    pub(crate) fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let Some(lane) = &mut self.lane else { return moved((&self.stream).read_vectored(slices)) };
        let count = lane.read(slices).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(if self.closed { Moved::Closed } else { Moved::NotReady });
        }
        if lane.owes_wake(Interest { reads: true, writes: false }) {
            self.say(WAKE);
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
            self.say(WAKE);
        }
        Ok(Moved::Bytes(count))
    }

    /// Says something to the other end of a lane, which wakes it.
    fn say(&mut self, what: u8) {
        match (&self.stream).write(&[what]) {
            Ok(_) => {}
            // A full buffer holds wakes enough, and who is not told that its vectors were mapped sends copies.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Who waits for something from there learns it from the next read.
            Err(_) => self.closed = true,
        }
    }

    /// Takes in what the other end of a lane has said over the socket: that this one is to wake, where its vectors are,
    /// that it has mapped this end's, or that it is gone. Says whether it is gone.
    pub(crate) fn hear(&mut self) -> bool {
        let mut said = [0; 64];
        while !self.closed {
            match receive(&self.stream, &mut said) {
                Ok((0, _)) => self.closed = true,
                Ok((count, descriptor)) => {
                    self.viewed |= said[..count].contains(&MAPPED);
                    if let Some(descriptor) = descriptor {
                        self.view = View::open(&descriptor).ok();
                        if self.view.is_some() {
                            self.say(MAPPED);
                        }
                    }
                }
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
