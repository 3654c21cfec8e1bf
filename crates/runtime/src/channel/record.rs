//! Records: what is written to an encrypted connection, cut into pieces that are sealed one by one.
//!
//! A record is its length (2 bytes, big-endian, of what follows), the encrypted bytes, and a tag of 16 bytes. Both
//! sides keep one buffer of a fixed size, whatever a peer claims.

use std::io::{self, IoSlice};

use super::cipher::{Direction, TAG_BYTES};

const LENGTH_BYTES: usize = 2;

/// Bytes that a record adds to what is in it.
const RECORD_OVERHEAD_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// Most bytes in a record; with its frame it fills 64 KiB.
pub(super) const RECORD_BYTES_MAX: usize = 65_536 - RECORD_OVERHEAD_BYTES;

/// Most records that are sealed before they are sent, in one system call: the other side is woken once.
pub(super) const RECORDS_PER_WRITE: usize = 4;

/// What is received and not yet taken: two of the longest records.
const RECEIVED_BYTES: usize = 2 * (RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES);

/// A record with nothing in it, which only shows who sends it.
pub(super) type EmptyRecord = [u8; RECORD_OVERHEAD_BYTES];

/// Seals the next record with nothing in it.
pub(super) fn empty_record(direction: &mut Direction) -> EmptyRecord {
    let mut record = EmptyRecord::default();
    record[..LENGTH_BYTES].copy_from_slice(&claim(0));
    record[LENGTH_BYTES..].copy_from_slice(&direction.seal(&mut []));
    record
}

/// Whether this is the other side's next record, with nothing in it.
pub(super) fn is_empty_record(mut record: EmptyRecord, direction: &mut Direction) -> bool {
    record[..LENGTH_BYTES] == claim(0) && direction.open(&mut record[LENGTH_BYTES..]).is_ok()
}

/// The header of a record with this many bytes.
fn claim(length: usize) -> [u8; LENGTH_BYTES] {
    u16::try_from(length + TAG_BYTES).expect("a record has a limit").to_be_bytes()
}

/// Makes records, some at a time.
pub(super) struct Sealer {
    direction: Direction,
    /// The records that are being sent: `sent..end` of them is still here.
    buffer: Vec<u8>,
    sent: usize,
    end: usize,
    /// Bytes of the caller in these records.
    held: usize,
}

impl Sealer {
    pub(super) fn new(direction: Direction) -> Sealer {
        Sealer { direction, buffer: Vec::new(), sent: 0, end: 0, held: 0 }
    }

    /// Seals as many bytes of `slices` as [`RECORDS_PER_WRITE`] take; says how many.
    ///
    /// # Panics
    ///
    /// If the last ones were not sent whole.
    pub(super) fn seal(&mut self, slices: &[IoSlice<'_>]) -> usize {
        assert!(self.unsent().is_empty(), "what is sealed is sent first");
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let held = offered.min(RECORDS_PER_WRITE * RECORD_BYTES_MAX);
        let records = held.div_ceil(RECORD_BYTES_MAX).max(1);
        let end = held + records * RECORD_OVERHEAD_BYTES;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let mut rest = slices.iter().map(|slice| &slice[..]);
        let mut slice = rest.next().unwrap_or_default();
        for (index, record) in
            self.buffer[..end].chunks_mut(RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES).enumerate()
        {
            let length = (held - index * RECORD_BYTES_MAX).min(RECORD_BYTES_MAX);
            let (head, body) = record.split_at_mut(LENGTH_BYTES);
            head.copy_from_slice(&claim(length));
            let (body, tag) = body.split_at_mut(length);
            let mut room = &mut body[..];
            while !room.is_empty() {
                if slice.is_empty() {
                    slice = rest.next().expect("at most the bytes on offer are taken");
                    continue;
                }
                let count = slice.len().min(room.len());
                let (now, later) = room.split_at_mut(count);
                now.copy_from_slice(&slice[..count]);
                (slice, room) = (&slice[count..], later);
            }
            tag.copy_from_slice(&self.direction.seal(body));
        }
        (self.sent, self.end, self.held) = (0, end, held);
        held
    }

    /// What is left to be sent of the records.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.end]
    }

    /// Bytes of the caller in the records.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Takes note that this many bytes of [`unsent`](Sealer::unsent) were sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        debug_assert!(self.sent <= self.end);
    }
}

/// Opens records as their bytes come.
pub(super) struct Opener {
    direction: Direction,
    buffer: Vec<u8>,
    /// What has come and is still encrypted.
    start: usize,
    end: usize,
    /// What is open and not yet taken.
    plain: std::ops::Range<usize>,
    broken: bool,
}

impl Opener {
    pub(super) fn new(direction: Direction) -> Opener {
        Opener { direction, buffer: Vec::new(), start: 0, end: 0, plain: 0..0, broken: false }
    }

    /// What is open and not yet taken; opens the next record that is there whole.
    ///
    /// # Errors
    ///
    /// Returns `InvalidData` from the first record on that is not the next one of the other side.
    pub(super) fn plain(&mut self) -> io::Result<&[u8]> {
        while self.plain.is_empty() && self.open()? {}
        Ok(&self.buffer[self.plain.clone()])
    }

    /// The first `count` bytes of [`plain`](Opener::plain) were taken.
    pub(super) fn take(&mut self, count: usize) {
        self.plain.start += count;
        debug_assert!(self.plain.start <= self.plain.end);
    }

    /// Room for more bytes; never empty, since a whole record would have been opened.
    pub(super) fn room(&mut self) -> &mut [u8] {
        debug_assert!(self.plain.is_empty());
        if self.buffer.is_empty() {
            self.buffer.resize(RECEIVED_BYTES, 0);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end > RECEIVED_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Takes note that this many bytes of [`room`](Opener::room) were filled.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// Opens the next record if it is there whole.
    fn open(&mut self) -> io::Result<bool> {
        if self.broken {
            return Err(damaged());
        }
        let waiting = &mut self.buffer[self.start..self.end];
        let Some(claim) = waiting.first_chunk::<LENGTH_BYTES>() else { return Ok(false) };
        let length = usize::from(u16::from_be_bytes(*claim));
        if !(TAG_BYTES..=RECORD_BYTES_MAX + TAG_BYTES).contains(&length) {
            self.broken = true;
            return Err(damaged());
        }
        let Some(sealed) = waiting.get_mut(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(false) };
        let Ok(opened) = self.direction.open(sealed) else {
            self.broken = true;
            return Err(damaged());
        };
        let begin = self.start + LENGTH_BYTES;
        self.plain = begin..begin + opened;
        self.start = begin + length;
        Ok(true)
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "what came was not sent by the other side, or was changed on its way",
    )
}
