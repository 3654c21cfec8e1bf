//! Measures a parameter server and its workers between processes of this machine, beside what its TCP can do at best.
//!
//! [`run`] spawns one process for the server, one per worker and one for a replica, each of which runs
//! [`member`](super::member::member). Round after round it measures plain TCP between the
//! server's process and the first worker's, units of all workers at once (each pulls all parameters and pushes a gradient
//! of each), and pulls of 4 KiB. A ratio uses the limits measured just before and after. Then the same with the replica.
//!
//! Every unit is counted: at the end each parameter must have got each unit's gradient exactly once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::Child;
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{Cipher, Token};
use serde::{Deserialize, Serialize};

use super::member::{Command, Greeting, Model, Reply};
use crate::allreduce::conductor::{Bar, BenchError, Children, Spread, load_average, spread, system};
use crate::allreduce::member::Conversation;
use crate::allreduce::member::MemberOptions;

/// Bytes of one write of the one-way copy.
const COPY_BYTES: u64 = 1 << 20;

/// Bytes of the small pull.
const SMALL_BYTES: u64 = 4 << 10;

/// Time for all processes to start.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone)]
pub(crate) struct BenchOptions {
    /// Number of workers, at least 1.
    pub(crate) workers: u32,
    /// Bytes of all parameters, a multiple of 4 times `tensors`.
    pub(crate) parameter_bytes: u64,
    /// Tensors of equal size.
    pub(crate) tensors: u64,
    /// Rounds, at least 1.
    pub(crate) rounds: u32,
    /// Units of each worker in a round.
    pub(crate) units: u64,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions { workers: 4, parameter_bytes: 64 << 20, tensors: 16, rounds: 7, units: 3 }
    }
}

/// What was measured with or without a replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Whether a replica followed.
    pub(crate) replica: bool,
    /// Bytes of gradients pushed and parameters pulled over the time of a round, per second.
    pub(crate) bytes_per_s: Spread,
    /// One-way TCP in writes of 1 MiB, per second.
    pub(crate) one_way_bytes_per_s: Spread,
    /// Their ratio, round by round.
    pub(crate) of_one_way: Spread,
    /// A pull of 4 KiB.
    pub(crate) pull_s: Spread,
    /// Plain TCP to and fro with 64 bytes.
    pub(crate) round_trip_s: Spread,
    /// Plain TCP: 64 bytes to, 4 KiB fro.
    pub(crate) round_trip_4kib_s: Spread,
    /// The pull over the round trip of 64 bytes, round by round.
    pub(crate) in_round_trips: Spread,
    /// The pull over the round trip with 4 KiB, round by round.
    pub(crate) in_4kib_round_trips: Spread,
}

/// Result of [`run`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Number of workers.
    pub(crate) workers: u32,
    /// Cores of the machine that the processes may use.
    pub(crate) cores: usize,
    /// Load averages (1, 5, 15 minutes) when it began, if the system tells.
    pub(crate) load_average_before: Option<[f64; 3]>,
    /// Load averages when it ended.
    pub(crate) load_average_after: Option<[f64; 3]>,
    /// Without a replica, then with one.
    pub(crate) rows: Vec<Row>,
    /// The bars, where 4 workers share 64 MiB.
    pub(crate) bars: Vec<Bar>,
}

/// Runs the whole measurement.
///
/// `spawn` starts one member, a process that calls [`member`](super::member::member); standard output of the child is not
/// used.
///
/// # Errors
///
/// See [`BenchError`]. All children are ended in any case.
pub(crate) fn run(
    options: &BenchOptions,
    mut spawn: impl FnMut(MemberOptions) -> io::Result<Child>,
) -> Result<Report, BenchError> {
    check(options)?;
    let load_average_before = load_average();
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(system("cannot listen"))?;
    let control = listener.local_addr().map_err(system("cannot listen"))?;
    let mut children = Children(Vec::new());
    for rank in 0..options.workers + 2 {
        children.0.push(spawn(MemberOptions { control, rank }).map_err(system("cannot start a process"))?);
    }
    let mut group = Group::gather(&listener, options, &mut children)?;
    let mut rows = vec![group.row(options, false)?];
    group.one(0, &Command::Replicate { replica: group.addresses[options.workers as usize + 1] })?;
    rows.push(group.row(options, true)?);
    let units = group.next;
    group.one(0, &Command::Check { units })?;
    group.one(options.workers as usize + 1, &Command::Check { units })?;
    group.all(&Command::Stop)?;
    Ok(Report {
        workers: options.workers,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load_average_before,
        load_average_after: load_average(),
        bars: bars(options, &rows),
        rows,
    })
}

fn check(options: &BenchOptions) -> Result<(), BenchError> {
    let BenchOptions { workers, parameter_bytes, tensors, rounds, units } = *options;
    if workers == 0 || rounds == 0 || units == 0 {
        return Err(BenchError::Options("workers, rounds and units are at least 1".into()));
    }
    if tensors == 0 || parameter_bytes == 0 || parameter_bytes % (4 * tensors) != 0 {
        let what =
            format!("{parameter_bytes} bytes are no whole number of values in each of {tensors} tensors");
        return Err(BenchError::Options(what));
    }
    // Every parameter counts the units, exactly.
    if u64::from(rounds) * units * u64::from(workers) >= 1 << 22 {
        return Err(BenchError::Options("so many units cannot be counted in a value".into()));
    }
    Ok(())
}

fn bars(options: &BenchOptions, rows: &[Row]) -> Vec<Bar> {
    if options.workers != 4 || options.parameter_bytes != 64 << 20 {
        return Vec::new();
    }
    let alone = rows.iter().filter(|row| !row.replica);
    let pair = |row: &Row| {
        let (share, trips) = (row.of_one_way.median, row.in_round_trips.median);
        let bar = |name: &str, measured, bound, met| Bar { name: name.to_owned(), measured, bound, met };
        [
            bar("pushed and pulled bytes over one-way TCP, at least", share, 0.7, share >= 0.7),
            bar("4 KiB pull: at most so many TCP round trips", trips, 8.0, trips <= 8.0),
        ]
    };
    alone.flat_map(pair).collect()
}

/// The conversations with all processes, by rank: the server, the workers, the replica.
struct Group {
    members: Vec<Conversation>,
    addresses: Vec<SocketAddr>,
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
        listener: &TcpListener,
        options: &BenchOptions,
        children: &mut Children,
    ) -> Result<Group, BenchError> {
        let ranks = options.workers as usize + 2;
        let deadline = Instant::now() + START_DEADLINE;
        let token = Token::random().map_err(system("no randomness"))?.with_cipher(Cipher::Unencrypted);
        listener.set_nonblocking(true).map_err(system("cannot listen"))?;
        let mut greeted: Vec<Option<(Conversation, SocketAddr)>> = (0..ranks).map(|_| None).collect();
        while greeted.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let greet = || -> io::Result<(Conversation, Greeting)> {
                        let mut member = Conversation::new(stream)?;
                        member.say(&token.to_text())?;
                        let greeting = member.hear()?;
                        Ok((member, greeting))
                    };
                    let (member, greeting) = greet().map_err(system("cannot talk to a process"))?;
                    if let Some(place) = greeted.get_mut(greeting.rank as usize) {
                        *place = Some((member, greeting.address));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ended =
                        children.0.iter_mut().position(|child| matches!(child.try_wait(), Ok(Some(_))));
                    if let Some(rank) = ended {
                        let what = "ended before it could be measured".to_owned();
                        return Err(BenchError::Member { rank: rank as u32, what });
                    }
                    if Instant::now() > deadline {
                        return Err(BenchError::Options("the processes did not start in time".into()));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(system("cannot talk to a process")(error)),
            }
        }
        let (members, addresses) = greeted.into_iter().flatten().unzip();
        let mut group = Group { members, addresses, workers: options.workers as usize, next: 0 };
        let model = Model { tensors: options.tensors, values: options.parameter_bytes / 4 / options.tensors };
        let server = group.addresses[0];
        group.one(0, &Command::Host { model, follows: false })?;
        group.one(ranks - 1, &Command::Host { model, follows: true })?;
        for rank in 1..=group.workers {
            group.one(rank, &Command::Connect { model, server })?;
        }
        Ok(group)
    }

    /// Gives some processes each a command at the same time; their samples.
    fn some(&mut self, commands: &[(usize, Command)]) -> Result<Vec<Vec<f64>>, BenchError> {
        let fault = |rank: usize| {
            move |error: io::Error| BenchError::Member { rank: rank as u32, what: error.to_string() }
        };
        for (rank, command) in commands {
            self.members[*rank].say(command).map_err(fault(*rank))?;
        }
        let mut all = Vec::new();
        for (rank, _) in commands {
            match self.members[*rank].hear().map_err(fault(*rank))? {
                Reply::Samples(samples) => all.push(samples),
                Reply::Fault(what) => return Err(BenchError::Member { rank: *rank as u32, what }),
            }
        }
        Ok(all)
    }

    fn one(&mut self, rank: usize, command: &Command) -> Result<Vec<f64>, BenchError> {
        Ok(self.some(&[(rank, command.clone())])?.concat())
    }

    fn all(&mut self, command: &Command) -> Result<(), BenchError> {
        let commands: Vec<_> = (0..self.members.len()).map(|rank| (rank, command.clone())).collect();
        self.some(&commands).map(|_| ())
    }

    /// Median of what the first worker and the server's process measure of plain TCP; the first batch warms up.
    fn plain(&mut self, command: &Command) -> Result<f64, BenchError> {
        let samples = self.some(&[(0, command.clone()), (1, command.clone())])?.concat();
        spread_of(samples.into_iter().skip(1).collect()).map(|spread| spread.median)
    }

    fn limits(&mut self) -> Result<Limits, BenchError> {
        let seconds = self.plain(&Command::Copies { bytes: COPY_BYTES, batches: 6, batch: 64 })?;
        let echo = |back| Command::RoundTrips { there: 64, back, batches: 21, batch: 50 };
        Ok(Limits {
            one_way: COPY_BYTES as f64 / seconds,
            round_trip: self.plain(&echo(64))?,
            round_trip_4kib: self.plain(&echo(SMALL_BYTES))?,
        })
    }

    /// Lets all workers do units; bytes per second until the last has ended.
    fn units(&mut self, options: &BenchOptions) -> Result<f64, BenchError> {
        let mut commands = Vec::new();
        for rank in 1..=self.workers {
            commands.push((rank, Command::Units { first: self.next, count: options.units }));
            self.next += options.units;
        }
        let slowest = self.some(&commands)?.concat().into_iter().fold(0.0, f64::max);
        let units = options.units * u64::from(options.workers);
        Ok((2 * options.parameter_bytes * units) as f64 / slowest)
    }

    fn row(&mut self, options: &BenchOptions, replica: bool) -> Result<Row, BenchError> {
        // Once to warm up: the first use of memory is slow.
        self.units(options)?;
        let mut columns: [Vec<f64>; 8] = Default::default();
        let mut before = self.limits()?;
        for _ in 0..options.rounds {
            let rate = self.units(options)?;
            let pull = spread_of(self.one(1, &Command::Pulls { batches: 21, batch: 50 })?)?.median;
            let after = self.limits()?;
            let mean = |of: fn(&Limits) -> f64| f64::midpoint(of(&before), of(&after));
            let (one_way, echo) = (mean(|limits| limits.one_way), mean(|limits| limits.round_trip));
            let large = mean(|limits| limits.round_trip_4kib);
            let row = [rate, one_way, rate / one_way, pull, echo, large, pull / echo, pull / large];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
            before = after;
        }
        let mut spreads = columns.into_iter().map(spread_of);
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

fn spread_of(samples: Vec<f64>) -> Result<Spread, BenchError> {
    spread(samples).ok_or_else(|| BenchError::Options("no sample was taken".into()))
}

#[cfg(test)]
mod tests;
