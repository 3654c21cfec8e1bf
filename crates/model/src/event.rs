//! Training through parameter servers, simulated operation by operation.
//!
//! # Model
//!
//! ```text
//! X = b n / (t_n - t_0)
//! ```
//!
//! | symbol | meaning                                                    | unit | type  |
//! |--------|------------------------------------------------------------|------|-------|
//! | X      | throughput of all workers                                  | 1/s  | `f64` |
//! | b      | samples of one worker's step ([`Profile::batch`])          | 1    | `u64` |
//! | n      | steps that all workers completed after the warm-up         | 1    | `u32` |
//! | t_i    | time of the i-th completion after the warm-up              | s    | `f64` |
//!
//! Each worker repeats the graph of operations of a profiled step. Every iteration it draws one of the measured
//! steps at random, and computes as long as was measured there. What was measured of a transfer is its bytes;
//! its time comes out of the simulation:
//!
//! - Each worker has one connection per server and direction. A connection serves its parts first come first
//!   served, round-robin with a window, or by priority ([`TransmissionOrder`]).
//! - Each worker and each server has a link per direction. Busy connections share them max-min fairly.
//! - A part that has arrived is parsed, one after another in each process ([`Profile::parsing`]).
//! - A gradient that has arrived is applied: one after another at each server, or in parallel per part.
//! - A worker computes one operation at a time in the recorded order, or on several slots whatever is ready.
//! - The protocol says who waits: none, all for all (a part is then updated once, when all its gradients are there), or
//!   those who are more than K steps ahead of the slowest.
//!
//! The interval of X is Student's, from the means of at least 20 batches of consecutive completions.
//!
//! # Source
//!
//! After the abstract of Li, Yan, Paolieri and Golubchik, "Throughput prediction of asynchronous SGD in
//! TensorFlow", ICPE 2020: profiled steps of one worker, contention for links, dependencies between received
//! parts and computations, a synthetic trace. The algorithm itself is ours. The window stands for what gRPC lets
//! a stream send before the next one's turn. Priorities: [`priority`].
//!
//! # Assumes
//!
//! Durations of computing do not depend on how many workers there are. Links are full duplex, and fair at once
//! (no slow start, no loss). A request of a part takes one latency to the server; data and the news that a
//! gradient was applied take another each. Parts are whole at one server. Servers and workers are different
//! machines. Throughput never exceeds that of W undisturbed workers where parts are served first come first
//! served, operations run in recorded order, and parts of different servers meet in no narrow worker link and no
//! parser. Elsewhere a delay can by chance let a more urgent part pass, as it can in reality.
//!
//! # Valid
//!
//! Asynchronous, synchronous and stale-synchronous training through servers, of models whose profile has at
//! least some tens of measured steps: identical steps lock workers into the same phase.
//!
//! # Checked by
//!
//! Hand-made schedules, mean-value analysis and an independent simulation (`tests/it/event.rs`); laws over random
//! graphs (`tests/it/event_laws.rs`).
//!
//! ```
//! # use bellwether_core::prediction::Protocol;
//! # use bellwether_core::profile::*;
//! # use bellwether_model::event::{Setting, simulate};
//! // One part of 10 MB over 10 MB/s: 1 s down, 2 s of computing, 1 s up. 8 samples in 4 s: 2 per second.
//! # let operation = |name: &str, kind, after| Operation { name: String::from(name), kind, after };
//! # let profile = Profile {
//! #     version: PROFILE_VERSION, job: "doc".into(), source: "hand".into(), computation: None,
//! #     device: "any".into(), batch: 8,
//! #     virtual_nodes: 1, parameter_bytes: 10_000_000,
//! #     parts: vec![Part { name: "w".into(), bytes: 10_000_000, server: None }],
//! #     operations: vec![operation("get", OperationKind::Download(0), vec![]),
//! #         operation("compute", OperationKind::Compute, vec![0]), operation("put", OperationKind::Upload(0), vec![1])],
//! #     steps: vec![MeasuredStep { step_s: 4.0, operations_s: vec![0.0, 2.0, 0.0], data_wait_s: 0.0 }],
//! #     collective: None, network: None, shared_memory: None, parsing: None, checkpoint_s: None,
//! #     tail_s: None, sharding: None,
//! #     peak_resident_bytes: None,
//! #     processor_wait: None, boot: None, apart: None, batches: vec![],
//! # };
//! let setting = Setting { server_link_bytes_per_s: 10e6, worker_link_bytes_per_s: 10e6, ..Setting::default() };
//! let outcome = simulate(&profile, &setting)?;
//! assert!((outcome.examples_per_s - 2.0).abs() < 1e-9);
//! # Ok::<(), bellwether_core::error::InputError>(())
//! ```

mod check;
mod connection;
mod engine;
mod graph;
mod measure;
mod pieces;
pub mod priority;
pub mod trace;
mod transfer;

use bellwether_core::error::InputError;
use bellwether_core::prediction::{Bottleneck, Protocol};
use bellwether_core::profile::Profile;

pub use bellwether_core::plan::TransmissionOrder;
pub(crate) use check::FEWEST_STEPS;
pub use graph::{place_parts, with_downloads};
pub(crate) use pieces::server_bytes;
pub use pieces::with_pieces;
pub use trace::TraceRow;

/// How connections share a server's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSharing {
    /// All at once, max-min fairly.
    MaxMin,
    /// One part at a time, in the transmission order over the parts of all workers.
    OneAtATime,
}

/// How a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeDiscipline {
    /// One operation at a time, in the order of the profile, as a device's stream does; an operation that is
    /// not ready holds up those after it.
    InOrder,
    /// This many operations at a time; of those that are ready, the first of the profile first.
    Slots(u32),
}

/// How a server applies gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateDiscipline {
    /// One after another.
    Serial,
    /// Those of different parts in parallel, those of one part one after another.
    PerPart,
}

/// When a worker's step is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// When it knows that its last gradient was applied.
    Applied,
    /// When its last gradient was sent. Not for [`Protocol::Bsp`], whose next step needs what was applied.
    Sent,
}

/// How large transfers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// As large as their part.
    Fixed,
    /// Exponential with the part's size as mean, drawn again for each transfer: the case that queueing theory solves.
    Exponential,
}

/// Where and how the job runs, and how long to simulate it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Workers.
    pub workers: u32,
    /// Parameter servers.
    pub servers: u32,
    /// Bytes per second of a server's link, in each direction.
    pub server_link_bytes_per_s: f64,
    /// Bytes per second of a worker's link, in each direction.
    pub worker_link_bytes_per_s: f64,
    /// Seconds that a byte takes from a worker to a server or back, beside its turn on the link.
    pub latency_s: f64,
    /// Who waits for whom; not [`Protocol::Gossip`], which has no servers.
    pub protocol: Protocol,
    /// Which waiting part a connection serves next.
    pub order: TransmissionOrder,
    /// How connections share a server's link.
    pub link_sharing: LinkSharing,
    /// Speed of each worker, relative to the profiled device; empty when all are as fast as that.
    pub speeds: Vec<f64>,
    /// How a worker computes.
    pub compute: ComputeDiscipline,
    /// How a server applies gradients.
    pub updates: UpdateDiscipline,
    /// When a worker's step is over.
    pub step_end: StepEnd,
    /// How large transfers are.
    pub sizes: Sizes,
    /// Whether each worker begins somewhere within the first mean step, and not all at once.
    pub random_start: bool,
    /// Steps to simulate at most, of all workers together. The first twentieth of them, and at least two of
    /// each worker where that is not more than half, is warm-up.
    pub steps: u32,
    /// Ends earlier once half the interval is at most this part of the throughput; 0 to simulate all steps.
    pub relative_half_width: f64,
    /// Seed of all randomness. Equal seeds give workers equal luck in different settings.
    pub seed: u64,
    /// Rows of the trace to keep, from the beginning; 0 for none.
    pub trace_rows: usize,
}

impl Default for Setting {
    /// One worker, one server, 10 Gbit/s, asynchronous, first come first served, 2,000 steps or 1 %.
    fn default() -> Self {
        Setting {
            workers: 1,
            servers: 1,
            server_link_bytes_per_s: 1.25e9,
            worker_link_bytes_per_s: 1.25e9,
            latency_s: 0.0,
            protocol: Protocol::Asp,
            order: TransmissionOrder::Fifo,
            link_sharing: LinkSharing::MaxMin,
            speeds: Vec::new(),
            compute: ComputeDiscipline::InOrder,
            updates: UpdateDiscipline::Serial,
            step_end: StepEnd::Applied,
            sizes: Sizes::Fixed,
            random_start: true,
            steps: 2_000,
            relative_half_width: 0.01,
            seed: 0,
            trace_rows: 0,
        }
    }
}

/// What can be busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The device of a worker.
    Compute(u32),
    /// The parser of a worker.
    WorkerParser(u32),
    /// The link to a worker.
    WorkerDownlink(u32),
    /// The link from a worker.
    WorkerUplink(u32),
    /// The link from a server, which carries downloads.
    ServerDownlink(u32),
    /// The link to a server, which carries uploads.
    ServerUplink(u32),
    /// The parser of a server.
    ServerParser(u32),
    /// The updates of a server.
    ServerUpdate(u32),
}

/// How busy a resource was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilisation {
    /// The resource.
    pub resource: Resource,
    /// Work done over what could have been done, after the warm-up; from 0 to 1.
    pub busy: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Samples per second, all workers together.
    pub examples_per_s: f64,
    /// Lower end of the 95 % interval of `examples_per_s`.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Mean seconds from one step of a worker to its next.
    pub step_s: f64,
    /// Steps of all workers after the warm-up.
    pub steps: u32,
    /// Seconds that were simulated.
    pub simulated_s: f64,
    /// Events that it took: operations begun or done, windows sent.
    pub events: u64,
    /// How busy each resource was.
    pub utilisation: Vec<Utilisation>,
    /// Updates after the warm-up by their staleness 0, 1, 2, …: the updates of the same part between the moment a
    /// server heard that a worker wanted it and the moment the gradient from it was applied. Empty for
    /// [`Protocol::Bsp`].
    pub staleness: Vec<u64>,
    /// The beginning of the synthetic trace, in the order in which things ended.
    pub trace: Vec<TraceRow>,
}

impl Outcome {
    /// Half the interval over the throughput.
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.examples_per_s)
    }

    /// Mean staleness of an update; `None` where none was counted.
    pub fn mean_staleness(&self) -> Option<f64> {
        let updates: u64 = self.staleness.iter().sum();
        let sum: f64 = self.staleness.iter().zip(0u32..).map(|(count, y)| *count as f64 * f64::from(y)).sum();
        (updates > 0).then(|| sum / updates as f64)
    }

    /// What bounds the throughput: the busiest of the workers' devices on average, the links, and the
    /// servers' work. Of servers the busiest counts, of workers the mean.
    pub fn bottleneck(&self) -> Bottleneck {
        let of = |counts: fn(&Resource) -> bool| {
            self.utilisation.iter().filter(move |row| counts(&row.resource)).map(|row| row.busy)
        };
        let mean = |counts| of(counts).sum::<f64>() / of(counts).count().max(1) as f64;
        let most = |counts| of(counts).fold(0.0, f64::max);
        let compute =
            mean(|r| matches!(r, Resource::Compute(_))).max(mean(|r| matches!(r, Resource::WorkerParser(_))));
        let link = most(|r| matches!(r, Resource::ServerDownlink(_) | Resource::ServerUplink(_)))
            .max(mean(|r| matches!(r, Resource::WorkerDownlink(_))))
            .max(mean(|r| matches!(r, Resource::WorkerUplink(_))));
        let server = most(|r| matches!(r, Resource::ServerUpdate(_) | Resource::ServerParser(_)));
        if compute >= link && compute >= server {
            Bottleneck::Compute
        } else if link >= server {
            Bottleneck::Link
        } else {
            Bottleneck::Server
        }
    }
}

/// Simulates the training that `profile` measured one worker of.
///
/// A profile without downloads (of synchronous training without servers) is completed by [`with_downloads`].
///
/// # Errors
///
/// Returns an error on any of these: what [`Profile::check`] complains of; a setting without workers or servers, with a
/// bandwidth that carries nothing, whose numbers of speeds or levels differ from those of workers or parts; a part on a
/// server that does not exist; gossip; a step that takes no time, or more than a trillion seconds.
pub fn simulate(profile: &Profile, setting: &Setting) -> Result<Outcome, InputError> {
    profile.check()?;
    check::check(profile, setting)?;
    let graph = graph::Graph::new(profile, setting)?;
    engine::Engine::new(&graph, setting).run(profile)
}
