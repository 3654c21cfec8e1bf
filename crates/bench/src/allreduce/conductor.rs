//! Measures the all-reduce between processes of this machine, beside what its TCP can do at best.
//!
//! There is one process per worker. They build the same mesh as a training job, and measure size after size.
//! Before and after every size the first two processes measure the limits: round trip of 4 bytes and one-way
//! copies over a plain TCP connection. A ratio always uses the limits measured next to it, so that a machine
//! whose speed drifts does not flatter or slander the result.
//!
//! A sample is the mean over a batch that lasts about a millisecond (or one all-reduce, if longer), so
//! that workers that run ahead of each other do not hide time; reported are quantiles over the samples
//! of all workers.

use std::process::Child;

use super::gloo;
use super::member::Command;
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
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// All-reduces measured.
    pub(super) repetitions: u64,
    /// Duration of one all-reduce.
    pub(super) latency_s: Spread,
    /// `2(W-1)/W * bytes / median`: the rate at which each process must send for a ring to be as fast.
    pub(super) bus_bytes_per_s: f64,
    /// Limits measured just before and after this size (means of the two).
    pub(super) limits: Limits,
    /// Median over the round trip.
    pub(super) in_round_trips: f64,
    /// Median over the time that the bytes which a process sends and receives take one way (large copy
    /// from 16 MiB, else in writes of 1 MiB).
    pub(super) in_copy_times: f64,
    /// Bus bandwidth over the one-way rate.
    pub(super) of_one_way: f64,
    /// The same all-reduce by PyTorch's gloo, including its Python call.
    pub(super) gloo_latency_s: Option<Spread>,
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
        let (repetitions, latency_s) = group.all_reduce(*bytes, options.seconds_per_size)?;
        let gloo_latency_s = gloo.as_mut().and_then(|gloo| {
            let samples = gloo.measure(*bytes, repetitions.clamp(5, 200)).ok()?;
            Spread::of(&samples).ok()
        });
        let after = group.limits(large)?;
        let row = row(options.workers, *bytes, repetitions, latency_s, before.mean(&after), gloo_latency_s);
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

fn row(
    workers: u32,
    bytes: u64,
    repetitions: u64,
    latency_s: Spread,
    limits: Limits,
    gloo_latency_s: Option<Spread>,
) -> Row {
    let workers = f64::from(workers);
    let sent = 2.0 * (workers - 1.0) / workers * bytes as f64;
    let one_way = match limits.copy_256mib_bytes_per_s {
        Some(rate) if bytes >= LARGE_BYTES => rate,
        _ => limits.copy_1mib_bytes_per_s,
    };
    Row {
        bytes,
        repetitions,
        latency_s,
        bus_bytes_per_s: sent / latency_s.median,
        in_round_trips: latency_s.median / limits.round_trip_s,
        // As many bytes come as go.
        in_copy_times: latency_s.median / (2.0 * sent / one_way),
        of_one_way: sent / latency_s.median / one_way,
        limits,
        gloo_latency_s,
    }
}

fn bars(workers: u32, rows: &[Row]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut bar = |bytes: u64, name: &str, measured: fn(&Row) -> f64, bound: f64, at_most: bool| {
        if let Some(row) = rows.iter().find(|row| row.bytes == bytes) {
            let measured = measured(row);
            let met = if at_most { measured <= bound } else { measured >= bound };
            bars.push(Bar::ratio(name, measured, bound, met));
        }
    };
    let (round_trips, one_way) = match workers {
        2 => (5.0, 0.6),
        4 => (12.0, 0.35),
        _ => return bars,
    };
    bar(4, "4 B: at most this many TCP round trips", |row| row.in_round_trips, round_trips, true);
    bar(MIB, "1 MiB: at most this many times the copy of the bytes", |row| row.in_copy_times, 2.5, true);
    bar(256 * MIB, "256 MiB: bus bandwidth over one-way TCP, at least", |row| row.of_one_way, one_way, false);
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

    /// Measures one size: first a few to warm up and to see how long it takes.
    fn all_reduce(&mut self, bytes: u64, seconds: f64) -> Result<(u64, Spread), Failure> {
        self.epoch += 1;
        self.everyone(&Command::Connect { epoch: self.epoch })?;
        self.everyone(&Command::AllReduce { bytes, batches: 1, batch: 1 })?;
        let trial = self.everyone(&Command::AllReduce { bytes, batches: 2, batch: 1 })?;
        let once = Spread::of(&trial)?.median.max(1e-7);
        let batch = (BATCH_SECONDS / once).clamp(1.0, 1000.0) as u64;
        let batches = (seconds / (once * batch as f64)).clamp(5.0, 2000.0) as u64;
        let samples = self.everyone(&Command::AllReduce { bytes, batches, batch })?;
        Ok((batches * batch, Spread::of(&samples)?))
    }
}

#[cfg(test)]
mod tests;
