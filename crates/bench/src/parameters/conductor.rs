//! Measures a parameter server and its workers between processes of this machine, beside what its TCP can do at best.
//!
//! There is one process for the server, one per worker and one for a replica. Round after round they measure
//! plain TCP between the server's process and the first worker's, units of all workers at once (each pulls
//! all parameters and pushes a gradient of each), and pulls of 4 KiB. A ratio uses the limits measured just
//! before and after. Then the same with the replica.
//!
//! Every unit is counted: at the end each parameter must have got each unit's gradient exactly once.

use std::process::Child;

use super::member::{Command, Model};
use crate::failure::Failure;
use crate::members::{self, MemberArguments};
use crate::report::Bar;
use crate::statistics::Spread;

/// Bytes of one write of the one-way copy.
const COPY_BYTES: u64 = 1 << 20;

/// Bytes of the small pull.
const SMALL_BYTES: u64 = 4 << 10;

/// What to measure.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Number of workers, at least 1.
    pub(super) workers: u32,
    /// Bytes of all parameters, a multiple of 4 times `tensors`.
    pub(super) parameter_bytes: u64,
    /// Tensors of equal size.
    pub(super) tensors: u64,
    /// Rounds, at least 1.
    pub(super) rounds: u32,
    /// Units of each worker in a round.
    pub(super) units: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 4, parameter_bytes: 64 << 20, tensors: 16, rounds: 7, units: 3 }
    }
}

/// What was measured with or without a replica.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Whether a replica followed.
    pub(super) replica: bool,
    /// Bytes of gradients pushed and parameters pulled over the time of a round, per second.
    pub(super) bytes_per_s: Spread,
    /// One-way TCP in writes of 1 MiB, per second.
    pub(super) one_way_bytes_per_s: Spread,
    /// Their ratio, round by round.
    pub(super) of_one_way: Spread,
    /// A pull of 4 KiB.
    pub(super) pull_s: Spread,
    /// Plain TCP to and fro with 64 bytes.
    pub(super) round_trip_s: Spread,
    /// Plain TCP: 64 bytes to, 4 KiB fro.
    pub(super) round_trip_4kib_s: Spread,
    /// The pull over the round trip of 64 bytes, round by round.
    pub(super) in_round_trips: Spread,
    /// The pull over the round trip with 4 KiB, round by round.
    pub(super) in_4kib_round_trips: Spread,
}

/// Runs the whole measurement; `spawn` starts one process that runs [`member`](super::member::member). There is a row
/// without a replica, then one with.
pub(super) fn run(
    options: &Options,
    spawn: impl FnMut(MemberArguments) -> Result<Child, Failure>,
) -> Result<Vec<Row>, Failure> {
    check(options)?;
    let mut group = Group::gather(options, spawn)?;
    let mut rows = vec![group.row(options, false)?];
    let replica = group.replica();
    group.one(0, &Command::Replicate { replica: group.members.addresses[replica][0] })?;
    rows.push(group.row(options, true)?);
    let units = group.next;
    group.one(0, &Command::Check { units })?;
    group.one(replica, &Command::Check { units })?;
    Ok(rows)
}

fn check(options: &Options) -> Result<(), Failure> {
    let Options { workers, parameter_bytes, tensors, rounds, units } = *options;
    if workers == 0 || rounds == 0 || units == 0 {
        return Err(Failure::at("parameters", "workers, rounds and units are at least 1"));
    }
    if tensors == 0 || parameter_bytes == 0 || parameter_bytes % (4 * tensors) != 0 {
        let what =
            format!("{parameter_bytes} bytes are not a whole number of values in each of {tensors} tensors");
        return Err(Failure::at("--parameters", what));
    }
    // Every parameter counts the units, exactly.
    if u64::from(rounds) * units * u64::from(workers) >= 1 << 22 {
        return Err(Failure::at("--rounds", "this many units cannot be counted in a value"));
    }
    Ok(())
}

/// The bars, where 4 workers share 64 MiB.
pub(super) fn bars(options: &Options, rows: &[Row]) -> Vec<Bar> {
    if options.workers != 4 || options.parameter_bytes != 64 << 20 {
        return Vec::new();
    }
    let alone = rows.iter().filter(|row| !row.replica);
    let pair = |row: &Row| {
        let (share, trips) = (row.of_one_way.median, row.in_round_trips.median);
        [
            Bar::ratio("pushed and pulled bytes over one-way TCP, at least", share, 0.7, share >= 0.7),
            Bar::ratio("4 KiB pull: at most this many TCP round trips", trips, 8.0, trips <= 8.0),
        ]
    };
    alone.flat_map(pair).collect()
}

/// All processes, by rank: the server, the workers, the replica.
struct Group {
    members: members::Group,
    workers: usize,
    /// Number of the next unit.
    next: u64,
}

/// The limits of plain TCP, once.
struct Limits {
    one_way: f64,
    round_trip: f64,
    round_trip_4kib: f64,
}

impl Group {
    fn gather(
        options: &Options,
        spawn: impl FnMut(MemberArguments) -> Result<Child, Failure>,
    ) -> Result<Group, Failure> {
        let members = members::Group::gather(options.workers + 2, spawn)?;
        let server = members.addresses[0][0];
        let mut group = Group { members, workers: options.workers as usize, next: 0 };
        let model = Model { tensors: options.tensors, values: options.parameter_bytes / 4 / options.tensors };
        group.one(0, &Command::Host { model, follows: false })?;
        group.one(group.replica(), &Command::Host { model, follows: true })?;
        for rank in 1..=group.workers {
            group.one(rank, &Command::Connect { model, server })?;
        }
        Ok(group)
    }

    fn replica(&self) -> usize {
        self.workers + 1
    }

    fn one(&mut self, rank: usize, command: &Command) -> Result<Vec<f64>, Failure> {
        self.members.tell(&[(rank, command)])
    }

    /// Median of what the first worker and the server's process measure of plain TCP; the first batch warms up.
    fn plain(&mut self, command: &Command) -> Result<f64, Failure> {
        let samples = self.members.tell(&[(0, command), (1, command)])?;
        Ok(Spread::of(samples.get(1..).unwrap_or_default())?.median)
    }

    fn limits(&mut self) -> Result<Limits, Failure> {
        let seconds = self.plain(&Command::Copies { bytes: COPY_BYTES, batches: 6, batch: 64 })?;
        let echo = |back| Command::RoundTrips { there: 64, back, batches: 21, batch: 50 };
        Ok(Limits {
            one_way: COPY_BYTES as f64 / seconds,
            round_trip: self.plain(&echo(64))?,
            round_trip_4kib: self.plain(&echo(SMALL_BYTES))?,
        })
    }

    /// Lets all workers do units; bytes per second until the last has ended.
    fn units(&mut self, options: &Options) -> Result<f64, Failure> {
        let mut commands = Vec::new();
        for rank in 1..=self.workers {
            commands.push((rank, Command::Units { first: self.next, count: options.units }));
            self.next += options.units;
        }
        let slowest = self.members.tell(&commands)?.into_iter().fold(0.0, f64::max);
        let units = options.units * u64::from(options.workers);
        Ok((2 * options.parameter_bytes * units) as f64 / slowest)
    }

    fn row(&mut self, options: &Options, replica: bool) -> Result<Row, Failure> {
        // Once to warm up: the first use of memory is slow.
        self.units(options)?;
        let mut columns: [Vec<f64>; 8] = Default::default();
        let mut before = self.limits()?;
        for _ in 0..options.rounds {
            let rate = self.units(options)?;
            let pull = Spread::of(&self.one(1, &Command::Pulls { batches: 21, batch: 50 })?)?.median;
            let after = self.limits()?;
            let mean = |of: fn(&Limits) -> f64| f64::midpoint(of(&before), of(&after));
            let (one_way, echo) = (mean(|limits| limits.one_way), mean(|limits| limits.round_trip));
            let large = mean(|limits| limits.round_trip_4kib);
            let row = [rate, one_way, rate / one_way, pull, echo, large, pull / echo, pull / large];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
            before = after;
        }
        let mut spreads = columns.iter().map(|column| Spread::of(column));
        let mut next = || spreads.next().expect("there are eight columns");
        Ok(Row {
            replica,
            bytes_per_s: next()?,
            one_way_bytes_per_s: next()?,
            of_one_way: next()?,
            pull_s: next()?,
            round_trip_s: next()?,
            round_trip_4kib_s: next()?,
            in_round_trips: next()?,
            in_4kib_round_trips: next()?,
        })
    }
}

#[cfg(test)]
mod tests;
