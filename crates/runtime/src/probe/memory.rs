//! Measures a lane of shared memory as a collective uses it: one thread at each end, which writes and reads in turn and
//! looks again where it can do neither.
//!
//! No clock ends the bulk, since a lane has no end that could be closed: both ends send the same bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::Instant;

use bellwether_core::profile::Network;
use bellwether_memory::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{BLOCK, ECHOES, PATIENCE, WORD};
use crate::channel::Stream;

/// Bytes that each end sends.
const BULK_BYTES: usize = 256 << 20;

/// The first of them, which do not count: pages are touched for the first time.
const SETTLING_BYTES: usize = 16 << 20;

/// Looks at the lane between two looks at the clock and the socket.
const LOOKS: u32 = 1024;

/// Measures the lane beside `stream`, whose other end is [`serve`]d.
///
/// # Errors
///
/// Returns an error if the other end breaks the lane, hangs up, or stands still.
pub(super) fn measure(lane: Lane, stream: &Stream) -> io::Result<Network> {
    let mut end = End { lane, stream, looks: 0, stands_since: Instant::now() };
    let mut round_trips_s = Vec::with_capacity(ECHOES);
    for number in 0..ECHOES {
        let began = Instant::now();
        end.write((number as u64).to_le_bytes())?;
        end.read()?;
        round_trips_s.push(began.elapsed().as_secs_f64());
    }
    round_trips_s.sort_by(f64::total_cmp);
    let here_bytes_per_s = end.bulk()?;
    let bandwidth_bytes_per_s = here_bytes_per_s.min(f64::from_le_bytes(end.read()?));
    if !(bandwidth_bytes_per_s.is_finite() && bandwidth_bytes_per_s > 0.0) {
        return Err(io::Error::other("the peer measured no rate of the shared memory"));
    }
    Ok(Network { bandwidth_bytes_per_s, latency_s: round_trips_s[ECHOES / 2] / 2.0 })
}

/// Answers one [`measure`].
///
/// # Errors
///
/// Same errors as [`measure`].
pub(super) fn serve(lane: Lane, stream: &Stream) -> io::Result<()> {
    let mut end = End { lane, stream, looks: 0, stands_since: Instant::now() };
    for _ in 0..ECHOES {
        let word = end.read()?;
        end.write(word)?;
    }
    let bytes_per_s = end.bulk()?;
    end.write(bytes_per_s.to_le_bytes())
}

/// One end of a lane that is measured.
struct End<'s> {
    lane: Lane,
    stream: &'s Stream,
    /// Looks since the last bytes moved, and when the first of them was.
    looks: u32,
    stands_since: Instant,
}

impl End<'_> {
    fn write(&mut self, word: [u8; WORD]) -> io::Result<()> {
        let mut sent = 0;
        while sent < WORD {
            let count = self.lane.write(&[IoSlice::new(&word[sent..])]).map_err(io::Error::other)?;
            sent += count;
            self.note(count)?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<[u8; WORD]> {
        let (mut word, mut came) = ([0; WORD], 0);
        while came < WORD {
            let into = &mut [IoSliceMut::new(&mut word[came..])];
            let count = self.lane.read(into).map_err(io::Error::other)?;
            came += count;
            self.note(count)?;
        }
        Ok(word)
    }

    /// Sends and takes as much as the other end; the rate at which bytes came, per second.
    fn bulk(&mut self) -> io::Result<f64> {
        let (block, mut room) = (vec![0x5a; BLOCK], vec![0; BLOCK]);
        let (mut sent, mut came) = (0, 0);
        let (mut settled, mut last) = (None, Instant::now());
        while sent < BULK_BYTES || came < BULK_BYTES {
            let out = &block[..BLOCK.min(BULK_BYTES - sent)];
            let written = self.lane.write(&[IoSlice::new(out)]).map_err(io::Error::other)?;
            let into = &mut room[..BLOCK.min(BULK_BYTES - came)];
            let read = self.lane.read(&mut [IoSliceMut::new(into)]).map_err(io::Error::other)?;
            (sent, came) = (sent + written, came + read);
            if read > 0 {
                last = Instant::now();
            }
            if came >= SETTLING_BYTES && settled.is_none() {
                settled = Some((last, came));
            }
            self.note(written + read)?;
        }
        let (from, before) = settled.expect("more bytes than those came");
        Ok((BULK_BYTES - before) as f64 / last.duration_since(from).as_secs_f64())
    }

    /// Takes in how many bytes a look moved; gives the processor away where it was none.
    fn note(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > 0 {
            self.looks = 0;
            return Ok(());
        }
        std::thread::yield_now();
        self.looks += 1;
        if self.looks == 1 {
            self.stands_since = Instant::now();
        }
        if !self.looks.is_multiple_of(LOOKS) {
            return Ok(());
        }
        // Nothing is said over the socket meanwhile: what makes it readable is its end.
        let mut ends = [PollFd::new(self.stream, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ends, Some(&now))? > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.stands_since.elapsed() > PATIENCE { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}
