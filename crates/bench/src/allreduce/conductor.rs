//! Measures the all-reduce between processes of this machine, beside what its TCP can do at best.
//!
//! [`run`] spawns one process per worker, each of which runs [`member`](super::member::member). They meet over a control connection, build the same mesh as
//! a training job, and measure size after size. Before and after every size the first two processes
//! measure the limits: round trip of 4 bytes and one-way copies over a plain TCP connection. A ratio
//! always uses the limits measured next to it, so that a machine whose speed drifts does not flatter
//! or slander the result.
//!
//! A sample is the mean over a batch that lasts about a millisecond (or one all-reduce, if longer), so
//! that workers that run ahead of each other do not hide time; reported are quantiles over the samples
//! of all workers.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{Cipher, Token};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::gloo;
use super::member::{Command, Conversation, Greeting, MemberOptions, Reply};

const MIB: u64 = 1 << 20;

/// Sizes measured unless others are asked for, in bytes.
pub(crate) const SIZES_BYTES: [u64; 10] =
    [4, 64, 1 << 10, 16 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];

/// Writes of the small one-way copy.
const COPY_BYTES: u64 = MIB;

/// Writes of the large one-way copy, which leave every cache.
const LARGE_COPY_BYTES: u64 = 256 * MIB;

/// The large copy is only measured when a vector of at least this many bytes is.
const LARGE_BYTES: u64 = 16 * MIB;

/// Wall-clock time a batch of all-reduces should last.
const BATCH_SECONDS: f64 = 1e-3;

/// Time for all processes to start and connect.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone)]
pub(crate) struct BenchOptions {
    /// Number of processes, at least 2.
    pub(crate) workers: u32,
    /// Sizes of the vectors in bytes, multiples of 4.
    pub(crate) sizes_bytes: Vec<u64>,
    /// Wall-clock time to spend on each size (a size is measured at least five times).
    pub(crate) seconds_per_size: f64,
    /// Whether to measure PyTorch's gloo beside it, if Python has it.
    pub(crate) gloo: bool,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions { workers: 2, sizes_bytes: SIZES_BYTES.to_vec(), seconds_per_size: 1.0, gloo: true }
    }
}

/// Why there is no report.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// The options make no sense.
    #[error("{0}")]
    Options(String),
    /// A process could not be started, or the control connection broke.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A member reported a fault.
    #[error("worker {rank}: {what}")]
    Member {
        /// Its rank.
        rank: u32,
        /// What it said.
        what: String,
    },
}

/// Quantiles of a time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// Half of the samples are below.
    pub(crate) median: f64,
    /// A tenth of the samples is below.
    pub(crate) p10: f64,
    /// Nine tenths of the samples are below.
    pub(crate) p90: f64,
}

/// What plain TCP does between two of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Round trip of 4 bytes in seconds.
    pub(crate) round_trip_s: f64,
    /// One way, in writes of 1 MiB.
    pub(crate) copy_1mib_bytes_per_s: f64,
    /// One way, in writes of 256 MiB from and to memory; only when large vectors are measured.
    pub(crate) copy_256mib_bytes_per_s: Option<f64>,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Size of the vector.
    pub(crate) bytes: u64,
    /// All-reduces measured.
    pub(crate) repetitions: u64,
    /// Duration of one all-reduce.
    pub(crate) latency_s: Spread,
    /// `2(W-1)/W * bytes / median`: the rate at which each process must send for a ring to be as fast.
    pub(crate) bus_bytes_per_s: f64,
    /// Limits measured just before and after this size (means of the two).
    pub(crate) limits: Limits,
    /// Median over the round trip.
    pub(crate) in_round_trips: f64,
    /// Median over the time that the bytes which a process sends and receives take one way (large copy
    /// from 16 MiB, else in writes of 1 MiB).
    pub(crate) in_copy_times: f64,
    /// Bus bandwidth over the one-way rate.
    pub(crate) of_one_way: f64,
    /// The same all-reduce by PyTorch's gloo, including its Python call.
    pub(crate) gloo_latency_s: Option<Spread>,
}

/// A bound that a ratio should keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bar {
    /// What is bounded.
    pub(crate) name: String,
    /// The ratio measured.
    pub(crate) measured: f64,
    /// Its bound.
    pub(crate) bound: f64,
    /// Whether the ratio keeps the bound.
    pub(crate) met: bool,
}

/// Result of [`run`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Number of processes.
    pub(crate) workers: u32,
    /// Cores of the machine that the processes may use.
    pub(crate) cores: usize,
    /// Load averages (1, 5, 15 minutes) when it began, if the system tells.
    pub(crate) load_average_before: Option<[f64; 3]>,
    /// Load averages when it ended.
    pub(crate) load_average_after: Option<[f64; 3]>,
    /// One row per size, in the order asked for.
    pub(crate) rows: Vec<Row>,
    /// The bars that apply to the sizes and the number of processes measured.
    pub(crate) bars: Vec<Bar>,
    /// Why gloo was not measured.
    pub(crate) gloo_missing: Option<String>,
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
    for rank in 0..options.workers {
        children.0.push(spawn(MemberOptions { control, rank }).map_err(system("cannot start a worker"))?);
    }
    let mut group = Group::gather(&listener, options.workers, &mut children)?;
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
            spread(samples)
        });
        let after = group.limits(large)?;
        let row = row(options.workers, *bytes, repetitions, latency_s, before.mean(&after), gloo_latency_s);
        rows.push(row);
        before = after;
    }
    group.stop()?;
    Ok(Report {
        workers: options.workers,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load_average_before,
        load_average_after: load_average(),
        bars: bars(options.workers, &rows),
        rows,
        gloo_missing,
    })
}

fn check(options: &BenchOptions) -> Result<(), BenchError> {
    if options.workers < 2 {
        return Err(BenchError::Options("an all-reduce needs at least 2 workers".into()));
    }
    if let Some(bytes) = options.sizes_bytes.iter().find(|bytes| **bytes % 4 != 0 || **bytes == 0) {
        return Err(BenchError::Options(format!("{bytes} bytes are not a positive multiple of 4")));
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
            bars.push(Bar { name: name.to_owned(), measured, bound, met });
        }
    };
    let (round_trips, one_way) = match workers {
        2 => (5.0, 0.6),
        4 => (12.0, 0.35),
        _ => return bars,
    };
    bar(4, "4 B: at most so many TCP round trips", |row| row.in_round_trips, round_trips, true);
    bar(MIB, "1 MiB: at most so many times the copy of the bytes", |row| row.in_copy_times, 2.5, true);
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

/// The spawned processes; ended when the measurement is over, however it ends.
pub(crate) struct Children(pub(crate) Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended cannot be killed, which is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn greet(stream: TcpStream, token: &Token) -> io::Result<(Conversation, Greeting)> {
    let mut member = Conversation::new(stream)?;
    member.say(&token.to_text())?;
    let greeting = member.hear()?;
    Ok((member, greeting))
}

/// The conversations with all members, by rank.
struct Group {
    members: Vec<Conversation>,
    /// Counts the connections made anew.
    epoch: u64,
}

impl Group {
    fn gather(listener: &TcpListener, workers: u32, children: &mut Children) -> Result<Group, BenchError> {
        let deadline = Instant::now() + START_DEADLINE;
        let token = Token::random().map_err(system("no randomness"))?.with_cipher(Cipher::Unencrypted);
        listener.set_nonblocking(true).map_err(system("cannot listen"))?;
        let mut greeted: Vec<Option<(Conversation, Greeting)>> = (0..workers).map(|_| None).collect();
        while greeted.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (member, greeting) =
                        greet(stream, &token).map_err(system("cannot talk to a worker"))?;
                    if let Some(place) = greeted.get_mut(greeting.rank as usize) {
                        *place = Some((member, greeting));
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
                        return Err(BenchError::Options("the workers did not start in time".into()));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(system("cannot talk to a worker")(error)),
            }
        }
        let (members, greetings): (Vec<_>, Vec<_>) = greeted.into_iter().flatten().unzip();
        let addresses = greetings.iter().map(|greeting| greeting.address).collect();
        let mut group = Group { members, epoch: 0 };
        group.everyone(&Command::Setup(addresses))?;
        Ok(group)
    }

    /// Gives all members a command and collects their samples.
    fn everyone(&mut self, command: &Command) -> Result<Vec<f64>, BenchError> {
        let all = 0..self.members.len();
        self.some(all, command)
    }

    fn some(&mut self, ranks: std::ops::Range<usize>, command: &Command) -> Result<Vec<f64>, BenchError> {
        let fault = |rank: usize| {
            move |error: io::Error| BenchError::Member { rank: rank as u32, what: error.to_string() }
        };
        for rank in ranks.clone() {
            self.members[rank].say(command).map_err(fault(rank))?;
        }
        let mut samples = Vec::new();
        for rank in ranks {
            match self.members[rank].hear().map_err(fault(rank))? {
                Reply::Samples(of_member) => samples.extend(of_member),
                Reply::Fault(what) => return Err(BenchError::Member { rank: rank as u32, what }),
            }
        }
        Ok(samples)
    }

    fn median(&mut self, command: &Command) -> Result<f64, BenchError> {
        // Only rank 0 takes the time; its first batch warms up.
        let samples = self.some(0..2, command)?;
        let spread = spread(samples.into_iter().skip(1).collect());
        spread.map(|spread| spread.median).ok_or_else(|| BenchError::Options("no sample was taken".into()))
    }

    fn limits(&mut self, large: bool) -> Result<Limits, BenchError> {
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
    fn all_reduce(&mut self, bytes: u64, seconds: f64) -> Result<(u64, Spread), BenchError> {
        self.epoch += 1;
        self.everyone(&Command::Connect { epoch: self.epoch })?;
        self.everyone(&Command::AllReduce { bytes, batches: 1, batch: 1 })?;
        let trial = self.everyone(&Command::AllReduce { bytes, batches: 2, batch: 1 })?;
        let once = spread(trial).map_or(1.0, |spread| spread.median.max(1e-7));
        let batch = (BATCH_SECONDS / once).clamp(1.0, 1000.0) as u64;
        let batches = (seconds / (once * batch as f64)).clamp(5.0, 2000.0) as u64;
        let samples = self.everyone(&Command::AllReduce { bytes, batches, batch })?;
        let spread = spread(samples).ok_or_else(|| BenchError::Options("no sample was taken".into()))?;
        Ok((batches * batch, spread))
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        self.everyone(&Command::Stop).map(|_| ())
    }
}

pub(crate) fn system(what: &str) -> impl Fn(io::Error) -> BenchError + '_ {
    move |source| BenchError::System { what: what.to_owned(), source }
}

pub(crate) fn spread(mut samples: Vec<f64>) -> Option<Spread> {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().checked_sub(1)?;
    let at = |fraction: f64| samples[(fraction * last as f64).round() as usize];
    Some(Spread { median: at(0.5), p10: at(0.1), p90: at(0.9) })
}

pub(crate) fn load_average() -> Option<[f64; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([words.next()?, words.next()?, words.next()?])
}

#[cfg(test)]
mod tests;
