//! Measures the all-reduce between processes of this machine, beside what its TCP can do at best.
//!
//! There is one process per worker. They build the same meshes as a training job, one for each way between them, and
//! measure size after size: in turns each way, gloo, and what no exchange can do without, the copies and additions
//! themselves. Before and after every size the first two processes measure the limits: round trip of 4 bytes and
//! one-way copies over a plain TCP connection. A ratio always uses what was measured next to it, so that a machine
//! whose speed drifts does not flatter or slander the result.
//!
//! A sample is the mean over a batch that lasts about a millisecond (or one all-reduce, if longer), so
//! that workers that run ahead of each other do not hide time; reported are quantiles over the samples
//! of all workers.

use std::process::Child;

use super::gloo;
use super::member::{Command, SHARED, TCP, WAYS};
use crate::failure::Failure;
use crate::members::{self, MemberArguments};
use crate::report::Bar;
use crate::statistics::Spread;

const MIB: u64 = 1 << 20;

/// Sizes measured unless others are asked for, in bytes.
pub(super) const SIZES_BYTES: [u64; 10] =
    [4, 64, 1 << 10, 16 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];

/// Writes of the small one-way copy.
const COPY_BYTES: u64 = MIB;

/// Writes of the large one-way copy, which leave every cache.
const LARGE_COPY_BYTES: u64 = 256 * MIB;

/// The large copy is only measured when a vector of at least this many bytes is.
const LARGE_BYTES: u64 = 16 * MIB;

/// Turns of each size.
const TURNS: u32 = 5;

/// Wall-clock time a batch of all-reduces should last.
const BATCH_SECONDS: f64 = 1e-3;

/// What to measure.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Number of processes, at least 2.
    pub(super) workers: u32,
    /// Sizes of the vectors in bytes, multiples of 4.
    pub(super) sizes_bytes: Vec<u64>,
    /// Wall-clock time to spend on each size (a size is measured at least five times).
    pub(super) seconds_per_size: f64,
    /// Whether to measure PyTorch's gloo beside it, if Python has it.
    pub(super) gloo: bool,
}

/// What plain TCP does between two of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Limits {
    /// Round trip of 4 bytes in seconds.
    pub(super) round_trip_s: f64,
    /// One way, in writes of 1 MiB.
    pub(super) copy_1mib_bytes_per_s: f64,
    /// One way, in writes of 256 MiB from and to memory; only when large vectors are measured.
    pub(super) copy_256mib_bytes_per_s: Option<f64>,
}

/// One size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Size of the vector.
    pub(super) bytes: u64,
    /// All-reduces measured, of all ways together.
    pub(super) repetitions: u64,
    /// Duration of one all-reduce, by way.
    pub(super) latency_s: [Spread; WAYS.len()],
    /// Duration of the copies and additions alone, by as many processes at the same time.
    pub(super) copy_and_add_s: Spread,
    /// The same all-reduce by PyTorch's gloo, including its Python call.
    pub(super) gloo_latency_s: Option<Spread>,
    /// Limits measured just before and after this size (means of the two).
    pub(super) limits: Limits,
}

impl Row {
    /// `2(W-1)/W * bytes / time`: the rate at which each process must send for a ring to be as fast.
    pub(super) fn bus_bytes_per_s(&self, workers: u32, seconds: f64) -> f64 {
        let workers = f64::from(workers);
        2.0 * (workers - 1.0) / workers * self.bytes as f64 / seconds
    }

    /// Bus bandwidth over plain TCP, over the rate of one way (of the large copy from 16 MiB).
    pub(super) fn of_one_way(&self, workers: u32) -> f64 {
        let one_way = match self.limits.copy_256mib_bytes_per_s {
            Some(rate) if self.bytes >= LARGE_BYTES => rate,
            _ => self.limits.copy_1mib_bytes_per_s,
        };
        self.bus_bytes_per_s(workers, self.latency_s[TCP].median) / one_way
    }
}

/// What came out.
#[derive(Debug)]
pub(super) struct Measured {
    /// One row per size, in the order asked for.
    pub(super) rows: Vec<Row>,
    /// The bars that apply to the sizes and the number of processes measured.
    pub(super) bars: Vec<Bar>,
    /// Why gloo was not measured.
    pub(super) gloo_missing: Option<String>,
}

/// Runs the whole measurement; `spawn` starts one process that runs [`member`](super::member::member).
pub(super) fn run(
    options: &Options,
    spawn: impl FnMut(MemberArguments) -> Result<Child, Failure>,
) -> Result<Measured, Failure> {
    check(options)?;
    let mut group = Group::gather(options.workers, spawn)?;
    let gloo = match options.gloo {
        true => gloo::Group::start(options.workers),
        false => Err("not asked for".to_owned()),
    };
    let (mut gloo, gloo_missing) = match gloo {
        Ok(group) => (Some(group), None),
        Err(reason) => (None, Some(reason)),
    };
    let large = options.sizes_bytes.iter().any(|bytes| *bytes >= LARGE_BYTES);
    let mut rows = Vec::new();
    let mut before = group.limits(large)?;
    for bytes in &options.sizes_bytes {
        let mut row = group.size(*bytes, options.seconds_per_size, gloo.as_mut())?;
        let after = group.limits(large)?;
        row.limits = before.mean(&after);
        rows.push(row);
        before = after;
    }
    Ok(Measured { bars: bars(options.workers, &rows), rows, gloo_missing })
}

fn check(options: &Options) -> Result<(), Failure> {
    if options.workers < 2 {
        return Err(Failure::at("--workers", "an all-reduce needs at least 2 workers"));
    }
    if let Some(bytes) = options.sizes_bytes.iter().find(|bytes| **bytes % 4 != 0 || **bytes == 0) {
        return Err(Failure::at("--bytes", format!("{bytes} bytes are not a positive multiple of 4")));
    }
    Ok(())
}

/// The bounds of two and of four processes; others have none.
fn bars(workers: u32, rows: &[Row]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let shortest_s = match workers {
        2 => 2e-6,
        4 => 15e-6,
        _ => return bars,
    };
    let mut at_least = |name: &str, measured: Option<f64>, bound: f64| {
        bars.extend(measured.map(|measured| Bar::ratio(name, measured, bound, measured >= bound)));
    };
    let row = |bytes: u64| rows.iter().find(|row| row.bytes == bytes);
    let over = |bytes: u64, way: usize| {
        let row = row(bytes)?;
        Some(row.gloo_latency_s?.median / row.latency_s[way].median)
    };
    let shortest = row(4).map(|row| shortest_s / row.latency_s[SHARED].median);
    at_least("4 B, shared memory: the bound of 2 us (2 workers) or 15 us (4) over the time", shortest, 1.0);
    at_least("1 MiB, shared memory: times as fast as gloo", over(MIB, SHARED), 5.0);
    at_least("256 MiB, shared memory: times as fast as gloo", over(256 * MIB, SHARED), 3.0);
    let of_limit = row(256 * MIB).map(|row| row.copy_and_add_s.median / row.latency_s[SHARED].median);
    at_least("256 MiB, shared memory: rate over that of the copies and additions alone", of_limit, 0.7);
    at_least("256 MiB, plain TCP: times as fast as gloo", over(256 * MIB, TCP), 1.3);
    bars
}

impl Limits {
    fn mean(&self, other: &Limits) -> Limits {
        let rates = self.copy_256mib_bytes_per_s.zip(other.copy_256mib_bytes_per_s);
        Limits {
            round_trip_s: f64::midpoint(self.round_trip_s, other.round_trip_s),
            copy_1mib_bytes_per_s: f64::midpoint(self.copy_1mib_bytes_per_s, other.copy_1mib_bytes_per_s),
            copy_256mib_bytes_per_s: rates.map(|(a, b)| f64::midpoint(a, b)),
        }
    }
}

/// All processes, by rank.
struct Group {
    members: members::Group,
    workers: usize,
    /// Counts the connections that were made again.
    epoch: u64,
}

impl Group {
    fn gather(
        workers: u32,
        spawn: impl FnMut(MemberArguments) -> Result<Child, Failure>,
    ) -> Result<Group, Failure> {
        let members = members::Group::gather(workers, spawn)?;
        let setup = Command::Setup(members.addresses.clone());
        let mut group = Group { members, workers: workers as usize, epoch: 0 };
        group.everyone(&setup)?;
        Ok(group)
    }

    /// Gives the first `count` members a command and collects their samples.
    fn first(&mut self, count: usize, command: &Command) -> Result<Vec<f64>, Failure> {
        let commands: Vec<_> = (0..count).map(|rank| (rank, command)).collect();
        self.members.tell(&commands)
    }

    fn everyone(&mut self, command: &Command) -> Result<Vec<f64>, Failure> {
        self.first(self.workers, command)
    }

    /// What the first two measure of plain TCP.
    fn median(&mut self, command: &Command) -> Result<f64, Failure> {
        // Only rank 0 takes the time; its first batch warms up.
        let samples = self.first(2, command)?;
        Ok(Spread::of(samples.get(1..).unwrap_or_default())?.median)
    }

    fn limits(&mut self, large: bool) -> Result<Limits, Failure> {
        let round_trip_s = self.median(&Command::RoundTrips { batches: 31, batch: 50 })?;
        let seconds = self.median(&Command::Copies { bytes: COPY_BYTES, batches: 6, batch: 24 })?;
        let large = match large {
            true => Some(self.median(&Command::Copies { bytes: LARGE_COPY_BYTES, batches: 3, batch: 1 })?),
            false => None,
        };
        Ok(Limits {
            round_trip_s,
            copy_1mib_bytes_per_s: COPY_BYTES as f64 / seconds,
            copy_256mib_bytes_per_s: large.map(|seconds| LARGE_COPY_BYTES as f64 / seconds),
        })
    }

    /// Measures one size: each way, the copies and additions alone, and gloo, in turns.
    fn size(&mut self, bytes: u64, seconds: f64, mut gloo: Option<&mut gloo::Group>) -> Result<Row, Failure> {
        let mut counts = [(1, 1); WAYS.len()];
        for (way, counts) in counts.iter_mut().enumerate() {
            self.epoch += 1;
            self.everyone(&Command::Connect { way, bytes, epoch: self.epoch })?;
            *counts = self.counts(way, bytes, seconds / f64::from(TURNS))?;
        }
        let (mut ways, mut limit, mut peer) = ([const { Vec::new() }; WAYS.len()], Vec::new(), Vec::new());
        let mut repetitions = 0;
        for _ in 0..TURNS {
            for (way, samples) in ways.iter_mut().enumerate() {
                let (batches, batch) = counts[way];
                samples.extend(self.everyone(&Command::AllReduce { way, bytes, batches, batch })?);
                repetitions += batches * batch;
            }
            let (batches, batch) = counts[SHARED];
            limit.extend(self.everyone(&Command::CopyAndAdd { bytes, batches, batch })?);
            if let Some(gloo) = gloo.as_mut() {
                let repetitions = (counts[TCP].0 * counts[TCP].1).clamp(2, 100);
                peer.extend(gloo.measure(bytes, repetitions).unwrap_or_default());
            }
        }
        let mut latency_s = [Spread::default(); WAYS.len()];
        for (spread, samples) in latency_s.iter_mut().zip(&ways) {
            *spread = Spread::of(samples)?;
        }
        Ok(Row {
            bytes,
            repetitions,
            latency_s,
            copy_and_add_s: Spread::of(&limit)?,
            gloo_latency_s: Spread::of(&peer).ok(),
            limits: Limits::default(),
        })
    }

    /// How many batches of how many all-reduces take so long; a few to warm up come first.
    fn counts(&mut self, way: usize, bytes: u64, seconds: f64) -> Result<(u64, u64), Failure> {
        self.everyone(&Command::AllReduce { way, bytes, batches: 1, batch: 1 })?;
        let trial = self.everyone(&Command::AllReduce { way, bytes, batches: 2, batch: 1 })?;
        let once = Spread::of(&trial)?.median.max(1e-7);
        let batch = (BATCH_SECONDS / once).clamp(1.0, 1000.0) as u64;
        let batches = (seconds / (once * batch as f64)).clamp(2.0, 1000.0) as u64;
        Ok((batches, batch))
    }
}

#[cfg(test)]
mod tests;
