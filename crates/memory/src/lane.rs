//! Two rings of bytes, one each way.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use thiserror::Error;

use crate::region::{Access, Region};

/// What the other end must have written first.
const MAGIC: u64 = u64::from_le_bytes(*b"BWlane\0\x01");

/// Counters lie this far apart: two cache lines, since processors fetch them in pairs.
const LINE_BYTES: usize = 128;

/// Where the rings begin: behind a page of counters.
const RINGS: usize = 4096;

/// A longer write is published in strides: the other end copies one while this end copies the next.
const STRIDE_BYTES: usize = 16 * 1024;

/// Fewest and most bytes of a ring.
const CAPACITY_BYTES: std::ops::RangeInclusive<usize> = 4096..=1 << 26;

/// The other end has broken the lane: its counters make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the counters of the shared memory make no sense")]
pub struct Broken;

/// What one end waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Bytes to read.
    pub reads: bool,
    /// Room to write.
    pub writes: bool,
}

impl Interest {
    const READS: u32 = 1;
    const WRITES: u32 = 2;

    fn bits(self) -> u32 {
        u32::from(self.reads) * Interest::READS + u32::from(self.writes) * Interest::WRITES
    }
}

/// One end of a connection through shared memory.
///
/// It never waits. An end that finds nothing to do [says that it will sleep](Lane::will_sleep), looks once more, and
/// sleeps on something else, a socket for example; the other end learns from [`owes_wake`](Lane::owes_wake) after its
/// reads and writes that it has to wake it.
#[derive(Debug)]
pub struct Lane {
    region: Region,
    /// Bytes of each ring, a power of two.
    capacity: usize,
    /// 0 for the end that created it, 1 for the other.
    end: usize,
    /// What this end has written, and what of it the other had read when this was last looked up.
    written: u64,
    freed: u64,
    /// What this end has read, and what the other had written when this was last looked up.
    read: u64,
    filled: u64,
}

impl Lane {
    /// Makes a lane whose rings have this many bytes each, rounded up to a power of two from 4 KiB to 64 MiB; the
    /// descriptor is for the other process. Memory is taken as it is first used.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no memory.
    pub fn create(ring_bytes: usize) -> io::Result<(Lane, OwnedFd)> {
        let capacity = ring_bytes.clamp(*CAPACITY_BYTES.start(), *CAPACITY_BYTES.end()).next_power_of_two();
        let (region, descriptor) = Region::create(RINGS + 2 * capacity, Access::OthersWrite)?;
        region.counter(0).store(MAGIC, Ordering::Release);
        Ok((Lane::new(region, capacity, 0), descriptor))
    }

    /// The other end of the lane behind a descriptor.
    ///
    /// # Errors
    ///
    /// Returns an error if the descriptor stands for anything but a lane.
    pub fn open(descriptor: &OwnedFd) -> io::Result<Lane> {
        let capacity = |bytes: usize| {
            let capacity = bytes.checked_sub(RINGS)? / 2;
            let fits = capacity.is_power_of_two() && bytes == RINGS + 2 * capacity;
            (fits && CAPACITY_BYTES.contains(&capacity)).then_some(capacity)
        };
        let region = Region::open(descriptor, Access::OthersWrite, |bytes| capacity(bytes).is_some())?;
        if region.counter(0).load(Ordering::Acquire) != MAGIC {
            return Err(io::Error::other("the shared memory is not a lane of this version"));
        }
        let capacity = capacity(region.bytes()).expect("it was just accepted");
        Ok(Lane::new(region, capacity, 1))
    }

    fn new(region: Region, capacity: usize, end: usize) -> Lane {
        Lane { region, capacity, end, written: 0, freed: 0, read: 0, filled: 0 }
    }

    /// What the end `end` has written so far.
    fn written_by(&self, end: usize) -> &AtomicU64 {
        self.region.counter((1 + 4 * end) * LINE_BYTES)
    }

    /// What of the bytes of end `end` the other has read so far.
    fn read_from(&self, end: usize) -> &AtomicU64 {
        self.region.counter((2 + 4 * end) * LINE_BYTES)
    }

    /// What the end `end` sleeps for.
    fn sleep_of(&self, end: usize) -> &AtomicU32 {
        self.region.word((3 + 4 * end) * LINE_BYTES)
    }

    fn other(&self) -> usize {
        1 - self.end
    }

    /// Bytes between two counters of which the other end moves one.
    fn between(&self, later: u64, earlier: u64) -> Result<usize, Broken> {
        let bytes = later.wrapping_sub(earlier);
        if bytes <= self.capacity as u64 { Ok(bytes as usize) } else { Err(Broken) }
    }

    /// Bytes that can be written now, as far as was known or, if that is nothing, as is known now.
    fn room(&mut self) -> Result<usize, Broken> {
        let taken = self.between(self.written, self.freed)?;
        if taken < self.capacity {
            return Ok(self.capacity - taken);
        }
        self.look_for_room()
    }

    fn look_for_room(&mut self) -> Result<usize, Broken> {
        self.freed = self.read_from(self.end).load(Ordering::Acquire);
        Ok(self.capacity - self.between(self.written, self.freed)?)
    }

    /// Bytes that can be read now, as far as was known or, if that is nothing, as is known now.
    fn content(&mut self) -> Result<usize, Broken> {
        if self.filled == self.read {
            self.filled = self.written_by(self.other()).load(Ordering::Acquire);
        }
        self.between(self.filled, self.read)
    }

    /// Writes what fits of the slices, in turn; returns how many bytes that was, 0 where there is no room.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the other end makes no sense.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Broken> {
        let before = self.written;
        for slice in slices {
            let taken = self.append(slice)?;
            if taken < slice.len() {
                break;
            }
        }
        self.written_by(self.end).store(self.written, Ordering::Release);
        Ok(self.written.wrapping_sub(before) as usize)
    }

    /// Copies what fits of the bytes; small ones are not published yet.
    fn append(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut taken = 0;
        while taken < bytes.len() {
            let room = self.room()?;
            if room == 0 {
                break;
            }
            let at = self.written as usize & (self.capacity - 1);
            let count = (bytes.len() - taken).min(room).min(self.capacity - at).min(STRIDE_BYTES);
            self.region.put(self.ring(self.end) + at, &bytes[taken..taken + count]);
            self.written = self.written.wrapping_add(count as u64);
            taken += count;
            if count == STRIDE_BYTES {
                self.written_by(self.end).store(self.written, Ordering::Release);
            }
        }
        Ok(taken)
    }

    /// Reads what there is into the slices, in turn; returns how many bytes that was, 0 where there is nothing.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the other end makes no sense.
    pub fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, Broken> {
        let mut total = 0;
        for slice in slices {
            let mut left = &mut slice[..];
            while !left.is_empty() {
                let content = self.content()?;
                if content == 0 {
                    return Ok(total);
                }
                let at = self.read as usize & (self.capacity - 1);
                let count = left.len().min(content).min(self.capacity - at).min(STRIDE_BYTES);
                let (now, later) = left.split_at_mut(count);
                self.region.get(self.ring(self.other()) + at, now);
                self.read = self.read.wrapping_add(count as u64);
                self.read_from(self.other()).store(self.read, Ordering::Release);
                (left, total) = (later, total + count);
            }
        }
        Ok(total)
    }

    fn ring(&self, end: usize) -> usize {
        RINGS + end * self.capacity
    }

    /// Whether something that is waited for can be done. There counts as room what is worth a wake: half of a ring.
    /// A lane that is broken is ready to say so.
    pub fn is_ready(&mut self, interest: Interest) -> bool {
        let half = self.capacity / 2;
        interest.reads && self.content() != Ok(0)
            || interest.writes && self.look_for_room().map_or(true, |room| room >= half)
    }

    /// This end sleeps from now on until it is woken, unless what it waits for [is there](Lane::is_ready): then it
    /// returns false, and does not sleep.
    pub fn will_sleep(&mut self, interest: Interest) -> bool {
        self.sleep_of(self.end).store(interest.bits(), Ordering::Relaxed);
        // Either this end sees what the other did, or the other sees that this one sleeps.
        fence(Ordering::SeqCst);
        let sleeps = !self.is_ready(interest);
        if !sleeps {
            self.is_awake();
        }
        sleeps
    }

    /// This end sleeps no longer.
    pub fn is_awake(&mut self) {
        self.sleep_of(self.end).store(0, Ordering::Relaxed);
    }

    /// Whether the other end sleeps for what this end has done: then it is to be woken, by the caller, once.
    pub fn owes_wake(&mut self, done: Interest) -> bool {
        // As in `will_sleep`: either this end sees that the other sleeps, or the other sees what this one did.
        fence(Ordering::SeqCst);
        let sleep = self.sleep_of(self.other());
        let waits_for = sleep.load(Ordering::Relaxed);
        if waits_for == 0 {
            return false;
        }
        // What was written is there to be read, and what was read makes room.
        let reads = done.writes && waits_for & Interest::READS != 0;
        let unread = self.written_by(self.other()).load(Ordering::Relaxed).wrapping_sub(self.read);
        let writes = done.reads && waits_for & Interest::WRITES != 0 && unread <= self.capacity as u64 / 2;
        (reads || writes) && sleep.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests;
