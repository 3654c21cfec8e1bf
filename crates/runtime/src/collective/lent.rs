//! Memory that is lent: a peer of this machine reads partial sums and results where they lie.
//!
//! A worker whose vectors lie in an [`Arena`] tells such a peer once where they are, and of each piece of the result
//! that it is there; the peer copies a piece when it adds it up, or takes it over. It lends to peers that have said
//! that they mapped its arena, which it passed on when the two met; others are sent copies. So the lender alone
//! decides, before a collective begins, and its frames say so. A collective ends when all that was lent has been
//! returned, so what comes after may write there. One that fails revokes all that it lent: a peer that still reads
//! finds that out before it uses what it read.

use std::io;

use bellwether_memory::{Arena, Broken, View};

use crate::bfloat;
use crate::frame::ProtocolError;
use crate::mesh::Link;

/// Where a worker's vectors lie in its arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lent {
    generation: u64,
    out: u64,
    partials: Vec<u64>,
}

impl Lent {
    /// What this worker can lend: `out`, if it lies in the arena, and partial sums that lie at these places.
    pub(super) fn of(arena: &Arena, partials: Vec<u64>, out: &[f32]) -> Option<Lent> {
        Some(Lent { generation: arena.generation(), out: arena.offset_of(out)?, partials })
    }

    /// Bytes of a frame that names this many partial sums.
    pub(super) fn bytes(partials: usize) -> usize {
        8 * (2 + partials)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let words = [self.generation, self.out].into_iter().chain(self.partials.iter().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads what [`encode`](Lent::encode) wrote; the plan has checked the length.
    pub(super) fn decode(bytes: &[u8]) -> Option<Lent> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let (generation, out) = (words.next()?, words.next()?);
        Some(Lent { generation, out, partials: words.collect() })
    }

    /// Copies a part of the sum, whose first `halves` values are bfloat16 numbers.
    pub(super) fn read_sum(
        &self,
        view: &View,
        start: usize,
        into: &mut [f32],
        halves: usize,
    ) -> io::Result<()> {
        self.read(view, self.out.wrapping_add(start as u64), into, halves)
    }

    /// Copies the same part of all partial sums, one after another.
    pub(super) fn read_partials(
        &self,
        view: &View,
        start: usize,
        into: &mut [f32],
        halves: usize,
    ) -> io::Result<()> {
        let length = into.len() / self.partials.len().max(1);
        for (partial, into) in self.partials.iter().zip(into.chunks_mut(length.max(1))) {
            self.read(view, partial.wrapping_add(start as u64), into, halves)?;
        }
        Ok(())
    }

    fn read(&self, view: &View, offset: u64, into: &mut [f32], halves: usize) -> io::Result<()> {
        view.read(self.generation, offset, into).map_err(broken)?;
        // What came in frames cannot be anything else.
        if bfloat::are_rounded(&into[..halves]) {
            return Ok(());
        }
        Err(io::Error::other("it lends values that are not rounded to bfloat16"))
    }
}

fn broken(_: Broken) -> io::Error {
    io::Error::other("what it lent was revoked")
}

/// What a peer lends, and how far this worker is with it.
#[derive(Debug, Default)]
pub(super) struct Borrowed {
    bytes: Vec<u8>,
    pub(super) lent: Option<Lent>,
    /// Pieces of its partial sums that were copied.
    pub(super) copied: usize,
    pub(super) return_queued: bool,
}

impl Borrowed {
    /// Room for the rest of the frame that says what is lent, of `length` bytes, from the byte `filled` on.
    pub(super) fn target(&mut self, filled: usize, length: usize) -> &mut [u8] {
        self.bytes.resize(length, 0);
        &mut self.bytes[filled..]
    }

    /// The frame is whole.
    pub(super) fn came(&mut self) -> Result<(), ProtocolError> {
        let bytes = std::mem::take(&mut self.bytes);
        self.lent = Lent::decode(&bytes);
        let wrong = ProtocolError::Length { expected: Lent::bytes(0) as u64, found: bytes.len() as u64 };
        self.lent.is_some().then_some(()).ok_or(wrong)
    }
}

/// The memory of a peer that lends it.
pub(super) fn view(link: &mut Link) -> io::Result<&View> {
    link.conduit.view().ok_or_else(|| io::Error::other("it lends memory that it has not passed on"))
}
