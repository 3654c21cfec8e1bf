//! A worker's slices of a checkpoint, to and from the wire.

use crate::control::generated as wire;
use crate::membership::SlicesWritten;
use crate::noise::Noise;
use crate::slices::Slice;
use crate::state::hex;

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// The most that one worker writes: a terabyte.
const SLICES_MAX: usize = 1 << 10;

pub(super) fn write_slices(written: &SlicesWritten) -> wire::SlicesWritten {
    let slice = |slice: &Slice| wire::Slice {
        index: slice.index,
        offset: slice.offset,
        bytes: slice.bytes,
        digest: bytes(&slice.digest),
    };
    wire::SlicesWritten {
        epoch: written.epoch,
        step: written.step,
        count: written.count,
        slices: written.slices.iter().map(slice).collect(),
        noise_signal: written.noise.signal.to_bits(),
        noise: written.noise.noise.to_bits(),
        stall_s: written.stall_s,
    }
}

pub(super) fn read_slices(m: wire::SlicesWritten) -> Option<SlicesWritten> {
    let slice = |slice: wire::Slice| {
        let is_digest = slice.digest.len() == DIGEST_BYTES;
        is_digest.then(|| Slice {
            index: slice.index,
            offset: slice.offset,
            bytes: slice.bytes,
            digest: hex(&slice.digest),
        })
    };
    if m.slices.len() > SLICES_MAX {
        return None;
    }
    let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| value.is_finite()).unwrap_or(0.0);
    Some(SlicesWritten {
        epoch: m.epoch,
        step: m.step,
        count: m.count,
        slices: m.slices.into_iter().map(slice).collect::<Option<_>>()?,
        noise: Noise { signal: number(m.noise_signal), noise: number(m.noise) },
        stall_s: m.stall_s,
    })
}

/// Of hexadecimal digits.
fn bytes(digest: &str) -> Vec<u8> {
    let pairs = digest.as_bytes().as_chunks::<2>().0;
    pairs.iter().filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
