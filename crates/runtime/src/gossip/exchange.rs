//! Both sides of an exchange, over one connection: chunks go one way, what was taken of them comes back.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use super::shared::Shared;
use crate::channel::Stream;

const MAGIC: u32 = 0x4257_676f;
const HEADER_BYTES: usize = 12;

/// Chunks that are lent at once: one is added to, one travels, one is waited for.
const UNDER_WAY: usize = 2;

/// What an exchange moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchanged {
    /// Chunks of the vector.
    pub chunks: u32,
    /// Chunks of them that were averaged: the peer leaves out those that it averages with too many others.
    pub averaged: u32,
    /// Bytes sent, and as many received when all chunks were averaged.
    pub bytes: u64,
}

/// What goes before the values of a chunk. The other side knows how many there are; their number only tells that it is
/// the same model. 0 values in an answer: nothing was taken; in an offer: the other side is to send its own.
fn header(chunk: usize, values: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (place, word) in [MAGIC, chunk as u32, values as u32].iter().enumerate() {
        bytes[4 * place..4 * place + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Reads a header: chunk and values.
fn read_header(mut stream: &Stream) -> io::Result<(usize, usize)> {
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if word(0) != MAGIC {
        return Err(bad("not a header of an exchange"));
    }
    Ok((word(4) as usize, word(8) as usize))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Averages the whole vector with the peer at the other end, which [follows](follow).
///
/// # Errors
///
/// Returns the connection's error, or one if the answers make no sense; the connection is then of no use any more. A
/// chunk whose answer got lost has been averaged on the other side only.
pub(super) fn lead(stream: &Stream, shared: &Shared) -> io::Result<Exchanged> {
    // The writer lends no further chunk before there is room here.
    let (lent, answers_due) = mpsc::sync_channel(UNDER_WAY);
    let outcome = std::thread::scope(|scope| {
        let writer = scope.spawn(move || offer(stream, shared, &lent));
        let read = settle(stream, shared, &answers_due);
        if read.is_err() {
            // The writer may be waiting for a peer that hears no more, or for room.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(answers_due);
        let written = writer.join().map_err(|_| io::Error::other("the writing thread panicked"))?;
        // What went wrong first is told by the writer when it could not write, else by the reader.
        written.and(read)
    });
    if outcome.is_err() {
        shared.settle_all();
    }
    outcome
}

fn offer(mut stream: &Stream, shared: &Shared, lent: &mpsc::SyncSender<usize>) -> io::Result<()> {
    let mut values = Vec::new();
    for chunk in 0..shared.chunks() {
        shared.lend(chunk, &mut values);
        if lent.send(chunk).is_err() {
            // The reader gave up, and says why.
            return Ok(());
        }
        stream.write_all(&header(chunk, values.len()))?;
        stream.write_all(bytemuck::cast_slice(&values))?;
    }
    Ok(())
}

fn settle(
    mut stream: &Stream,
    shared: &Shared,
    answers_due: &mpsc::Receiver<usize>,
) -> io::Result<Exchanged> {
    let mut exchanged = Exchanged::default();
    let mut taken = Vec::new();
    for chunk in answers_due {
        let len = shared.chunk_len(chunk);
        taken.clear();
        match read_header(stream)? {
            (of, 0) if of == chunk => {}
            (of, values) if of == chunk && values == len => {
                taken.resize(len, 0.0f32);
                stream.read_exact(bytemuck::cast_slice_mut(&mut taken))?;
                exchanged.averaged += 1;
            }
            _ => return Err(bad("an answer for another chunk")),
        }
        shared.settle(chunk, &taken);
        exchanged.chunks += 1;
        exchanged.bytes += (HEADER_BYTES + 4 * len) as u64;
    }
    Ok(exchanged)
}

/// Replaces the whole vector by that of the peer at the other end, which [follows](follow).
///
/// # Errors
///
/// Same errors as [`lead`].
pub(super) fn copy(mut stream: &Stream, shared: &Shared) -> io::Result<()> {
    let mut values = Vec::new();
    for chunk in 0..shared.chunks() {
        stream.write_all(&header(chunk, 0))?;
        if read_header(stream)? != (chunk, shared.chunk_len(chunk)) {
            return Err(bad("an answer for another chunk"));
        }
        values.resize(shared.chunk_len(chunk), 0.0f32);
        stream.read_exact(bytemuck::cast_slice_mut(&mut values))?;
        shared.write(chunk, &values);
    }
    Ok(())
}

/// Answers every chunk that the peer at the other end offers, until the connection ends or makes no sense.
pub(super) fn follow(stream: &Stream, shared: &Shared) {
    // No process has to be told: the peer sees that the connection ended.
    while answer(stream, shared).is_ok() {}
    let _ = stream.shutdown(Shutdown::Both);
}

fn answer(mut stream: &Stream, shared: &Shared) -> io::Result<()> {
    let (chunk, values) = read_header(stream)?;
    if chunk >= shared.chunks() || ![0, shared.chunk_len(chunk)].contains(&values) {
        return Err(bad("a chunk that the model does not have"));
    }
    let mut lent = vec![0.0f32; values];
    stream.read_exact(bytemuck::cast_slice_mut(&mut lent))?;
    if values == 0 {
        shared.copy(chunk, &mut lent);
        stream.write_all(&header(chunk, lent.len()))?;
        stream.write_all(bytemuck::cast_slice(&lent))
    } else if shared.take(chunk, &mut lent) {
        stream.write_all(&header(chunk, values))?;
        stream.write_all(bytemuck::cast_slice(&lent))
    } else {
        stream.write_all(&header(chunk, 0))
    }
}
