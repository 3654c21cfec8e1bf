//! Streams of training state over a data-plane connection: to a newcomer, to the coordinator's
//! checkpoint, and from a checkpoint back.
//!
//! A stream is a sequence of messages with a fixed header: `Begin` with a step, chunks (see
//! [`TrainingState::read_chunk`]) each with the step at which it was copied, and `End`. To a newcomer the
//! chunks are copied one by one while the sender trains on, so their steps rise along the stream; the
//! newcomer applies every later result to what it has, and nothing grows stale. Chunks to a checkpoint
//! are all of one step: the sender's next update waits for them. `Begin` also carries the noise that was measured.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::channel::Stream;
use crate::noise::Noise;
use crate::sharding::SlotShards;
use crate::state::TrainingState;

const MAGIC: u32 = 0x4257_7374;
const HEADER_BYTES: usize = 32;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The stream begins; its sender had applied `step` steps.
    Begin,
    /// A chunk, copied when `step` steps were applied.
    Chunk,
    /// All chunks of this stream were sent.
    End,
    /// Asks for the checkpoint of `step`.
    Fetch,
    /// A part of the state after `step` steps follows, as a stream of its own; the receiver knows which.
    Part,
    /// Slots of virtual shards after `step` steps follow: each a chunk with the shard's number.
    Shards,
}

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// See [`Kind`].
    pub step: u64,
    /// Which chunk; of `Begin`, the bits of the noise's signal.
    pub chunk: u64,
    /// Number of `f32` that follow a chunk; of `Begin`, the bits of the noise.
    pub values: u64,
}

impl Header {
    /// The `Begin` of a stream.
    pub fn begin(step: u64, noise: Noise) -> Header {
        Header { kind: Kind::Begin, step, chunk: noise.signal.to_bits(), values: noise.noise.to_bits() }
    }

    /// The noise in a `Begin`; values that are not finite count as 0.
    pub fn noise(&self) -> Noise {
        let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| value.is_finite()).unwrap_or(0.0);
        Noise { signal: number(self.chunk), noise: number(self.values) }
    }

    /// The header as bytes, little-endian.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind: u32 = match self.kind {
            Kind::Begin => 1,
            Kind::Chunk => 2,
            Kind::End => 3,
            Kind::Fetch => 4,
            Kind::Part => 5,
            Kind::Shards => 6,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.step.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[24..].copy_from_slice(&self.values.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` when it is none. Allocates nothing.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = match (word(0), word(4)) {
            (MAGIC, 1) => Kind::Begin,
            (MAGIC, 2) => Kind::Chunk,
            (MAGIC, 3) => Kind::End,
            (MAGIC, 4) => Kind::Fetch,
            (MAGIC, 5) => Kind::Part,
            (MAGIC, 6) => Kind::Shards,
            _ => return None,
        };
        Some(Header { kind, step: long(8), chunk: long(16), values: long(24) })
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Sends a message without values.
///
/// # Errors
///
/// Returns the connection's error.
pub fn send_mark(stream: &mut Stream, kind: Kind, step: u64) -> io::Result<()> {
    stream.write_all(&Header { kind, step, chunk: 0, values: 0 }.encode())
}

/// Reads the next header.
///
/// # Errors
///
/// Returns the connection's error, or one if the bytes are not a header.
pub fn receive_header(stream: &mut Stream) -> io::Result<Header> {
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes)?;
    Header::decode(&bytes).ok_or_else(|| bad("not a header of a state stream"))
}

/// For each second that a live stream sends, it rests this many: a newcomer can wait, training cannot.
const REST: u32 = 3;

/// Longest rest: the time of a chunk also counts waits for the receiver, which need no rest.
const REST_MAX: Duration = Duration::from_millis(5);

/// Sends the chunks `first, first + stride, …` while the state may change between them; then `End`.
/// `begin` tells the boundary at which the receiver became a shadow. It takes a quarter of the time of processor
/// and link at most, so that those who train hardly notice.
///
/// # Errors
///
/// Returns the connection's error.
pub fn send_live(
    stream: &mut Stream,
    state: &RwLock<TrainingState>,
    begin: Header,
    first: usize,
    stride: usize,
) -> io::Result<()> {
    stream.write_all(&begin.encode())?;
    let chunks = read(state).chunks();
    let mut values = Vec::new();
    for chunk in (first..chunks).step_by(stride) {
        let begin = Instant::now();
        // Copied under the lock, sent outside it: a slow receiver never delays an update.
        let step = {
            let state = read(state);
            state.read_chunk(chunk, &mut values);
            state.step
        };
        send_chunk(stream, step, chunk, &values)?;
        std::thread::sleep((begin.elapsed() * REST).min(REST_MAX));
    }
    let step = read(state).step;
    send_mark(stream, Kind::End, step)
}

/// Sends the whole state as it is; the caller keeps it from changing.
///
/// # Errors
///
/// Returns the connection's error.
pub fn send_whole(stream: &mut Stream, state: &TrainingState) -> io::Result<()> {
    stream.write_all(&Header::begin(state.step, state.noise).encode())?;
    let mut values = Vec::new();
    for chunk in 0..state.chunks() {
        state.read_chunk(chunk, &mut values);
        send_chunk(stream, state.step, chunk, &values)?;
    }
    send_mark(stream, Kind::End, state.step)
}

/// Sends the slots of these virtual shards as they are; the caller keeps them from changing.
///
/// # Errors
///
/// Returns the connection's error.
///
/// # Panics
///
/// If one of them is not here.
pub fn send_shards(stream: &mut Stream, step: u64, slots: &SlotShards, shards: &[u32]) -> io::Result<()> {
    send_mark(stream, Kind::Shards, step)?;
    for shard in shards {
        let values = slots.get(*shard).expect("a shard that is here");
        send_chunk(stream, step, *shard as usize, values)?;
    }
    send_mark(stream, Kind::End, step)
}

/// Receives the slots of virtual shards, whose mark has been read, into `slots`.
///
/// # Errors
///
/// Returns the connection's error, or one if a shard is none of the model's or has another length or step.
pub fn receive_shards(stream: &mut Stream, step: u64, slots: &mut SlotShards) -> io::Result<()> {
    let mut came = BTreeMap::new();
    loop {
        let header = receive_header(stream)?;
        match header.kind {
            Kind::Chunk if header.step == step => {
                let shard = u32::try_from(header.chunk).ok().filter(|shard| *shard < slots.cut.count());
                let shard = shard.ok_or_else(|| bad("a virtual shard that the model does not have"))?;
                if header.values != slots.length(shard) as u64 {
                    return Err(bad("a virtual shard of another length than the model's"));
                }
                let mut values = vec![0.0; slots.length(shard)];
                stream.read_exact(bytemuck::cast_slice_mut(&mut values))?;
                came.insert(shard, values);
            }
            Kind::End => {
                slots.insert(&came);
                return Ok(());
            }
            _ => return Err(bad("a message out of place in a stream of virtual shards")),
        }
    }
}

fn send_chunk(stream: &mut Stream, step: u64, chunk: usize, values: &[f32]) -> io::Result<()> {
    let header = Header { kind: Kind::Chunk, step, chunk: chunk as u64, values: values.len() as u64 };
    stream.write_all(&header.encode())?;
    stream.write_all(bytemuck::cast_slice(values))
}

/// Reads the values of a chunk whose length the receiver knows from the layout.
///
/// # Errors
///
/// Returns the connection's error, or one if the header names another chunk or length than there is.
pub fn receive_chunk(
    stream: &mut Stream,
    header: &Header,
    state: &TrainingState,
    values: &mut Vec<f32>,
) -> io::Result<usize> {
    let chunk = usize::try_from(header.chunk).ok().filter(|c| *c < state.chunks());
    let chunk = chunk.ok_or_else(|| bad("a chunk that the model does not have"))?;
    if header.values != state.chunk_len(chunk) as u64 {
        return Err(bad("a chunk of another length than the model's"));
    }
    values.resize(state.chunk_len(chunk), 0.0);
    stream.read_exact(bytemuck::cast_slice_mut(values))?;
    Ok(chunk)
}

/// Receives a whole state whose `Begin` has been read, into `state` (of the right layout).
///
/// # Errors
///
/// Returns the connection's error, or one if chunks are missing or do not belong to one step.
pub fn receive_whole(stream: &mut Stream, begin: Header, state: &mut TrainingState) -> io::Result<()> {
    receive_chunks(stream, begin, state, |stream, header, state, values| {
        let chunk = receive_chunk(stream, header, state, values)?;
        state.write_chunk(chunk, values);
        Ok(chunk)
    })
}

/// As [`receive_whole`], of a state whose slots are shared: `state` has none, and `slots` takes those of the virtual
/// shards that are here already.
///
/// # Errors
///
/// As [`receive_whole`].
pub fn receive_share(
    stream: &mut Stream,
    begin: Header,
    state: &mut TrainingState,
    slots: &mut SlotShards,
) -> io::Result<()> {
    receive_chunks(stream, begin, state, |stream, header, state, values| {
        let Some((chunk, range)) = state.parameters_of(header.chunk).filter(|_| slots.count() > 0) else {
            let chunk = receive_chunk(stream, header, state, values)?;
            state.write_chunk(chunk, values);
            return Ok(chunk);
        };
        if header.values != ((1 + slots.count()) * range.len()) as u64 {
            return Err(bad("a chunk of another length than the model's"));
        }
        values.resize((1 + slots.count()) * range.len(), 0.0);
        stream.read_exact(bytemuck::cast_slice_mut(values))?;
        let (parameters, rest) = values.split_at(range.len());
        state.parameters[range.clone()].copy_from_slice(parameters);
        for (slot, values) in rest.chunks_exact(range.len()).enumerate() {
            slots.write(slot, range.start, values);
        }
        Ok(chunk)
    })
}

/// Receives all chunks of one step, each by `take`, which says which it was.
fn receive_chunks(
    stream: &mut Stream,
    begin: Header,
    state: &mut TrainingState,
    mut take: impl FnMut(&mut Stream, &Header, &mut TrainingState, &mut Vec<f32>) -> io::Result<usize>,
) -> io::Result<()> {
    let mut missing = state.chunks();
    let mut seen = vec![false; missing];
    let mut values = Vec::new();
    loop {
        let header = receive_header(stream)?;
        match header.kind {
            Kind::Chunk if header.step == begin.step => {
                let chunk = take(stream, &header, state, &mut values)?;
                missing -= usize::from(!std::mem::replace(&mut seen[chunk], true));
            }
            Kind::End if missing == 0 => {
                (state.step, state.noise) = (begin.step, begin.noise());
                return Ok(());
            }
            Kind::End => return Err(bad("the stream ended before all chunks had come")),
            _ => return Err(bad("a message out of place in a state stream")),
        }
    }
}

/// The lock of a state, or of slots, is poisoned only by a panic in an update, after which no state is worth having.
pub(crate) fn read<T>(state: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    state.read().expect("no update has panicked")
}

/// As [`read`], for writing.
pub(crate) fn write<T>(state: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    state.write().expect("no update has panicked")
}
