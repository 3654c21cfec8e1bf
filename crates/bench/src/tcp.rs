//! What plain TCP does between two processes of this machine at best: the yardstick of what runs over it.

use std::io::{self, Read, Write};
use std::time::Instant;

use bellwether_runtime::channel::Stream;

/// Bounces bytes: who `asks` sends `there` of them, gets `back` of them and takes the time. Seconds of a round trip.
pub(crate) fn round_trips(
    stream: &mut Stream,
    asks: bool,
    (there, back): (usize, usize),
    (batches, batch): (u64, u64),
) -> io::Result<Vec<f64>> {
    let (mut request, mut answer) = (vec![7; there], vec![7; back]);
    sample(batches, batch, asks, || {
        if asks {
            stream.write_all(&request)?;
            stream.read_exact(&mut answer)
        } else {
            stream.read_exact(&mut request)?;
            stream.write_all(&answer)
        }
    })
}

/// Sends writes of `bytes` one way; the receiver confirms each batch with a byte. Seconds of a write.
pub(crate) fn copies(
    stream: &mut Stream,
    sends: bool,
    bytes: usize,
    (batches, batch): (u64, u64),
) -> io::Result<Vec<f64>> {
    let (mut buffer, mut done) = (vec![1u8; bytes], [0; 1]);
    let samples = sample(batches, 1, sends, || {
        for _ in 0..batch {
            if sends {
                stream.write_all(&buffer)?;
            } else {
                stream.read_exact(&mut buffer)?;
            }
        }
        if sends { stream.read_exact(&mut done) } else { stream.write_all(&done) }
    })?;
    Ok(samples.into_iter().map(|seconds| seconds / batch as f64).collect())
}

/// Runs `batches` batches of `operation`: seconds per operation, one sample per batch.
///
/// Without `timed` it only takes part.
pub(crate) fn sample(
    batches: u64,
    batch: u64,
    timed: bool,
    mut operation: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let mut samples = Vec::new();
    for _ in 0..batches {
        let begin = Instant::now();
        for _ in 0..batch {
            operation()?;
        }
        if timed {
            samples.push(begin.elapsed().as_secs_f64() / batch as f64);
        }
    }
    Ok(samples)
}
