//! Step time as a sequence of phases: synchronous through servers, synchronous all-reduce, and gossip.
//!
//! # Model
//!
//! ```text
//! synchronous, servers     T = C_W + L + L + A - hidden,   L = max( W S p_max / B_server, S / B_worker ) + l
//! synchronous, all-reduce  T = C_W + A + max(0, t_exchange - hidden)
//! gossip                   T = max( c + S/B + l, (1 + q) S/B )
//! gossip, overlapped       T = max( c, S/B + l, (1 + q) S/B )
//! throughput               X = W b / T
//! ```
//!
//! | symbol   | meaning                                                             | unit |
//! |----------|---------------------------------------------------------------------|------|
//! | C_W, c   | mean seconds of the slowest of W workers' computing; of one's       | s    |
//! | A        | seconds of the update                                               | s    |
//! | S        | bytes of the parameters                                             | B    |
//! | p_max    | share of the bytes on the fullest server                            | 1    |
//! | B, l     | bandwidth of a link in each direction; its latency                  | B/s, s |
//! | hidden   | seconds of transfers that computing hides, at most all of them      | s    |
//! | q        | exchanges per step that others begin with a worker                  | 1    |
//! | b        | samples that one worker computes in a step                          | 1    |
//!
//! # Source
//!
//! Z. Li et al., Predicting throughput of distributed stochastic gradient descent, IEEE Trans. Parallel Distrib. Syst.
//! 33(11), 2022, names the settings and the class of model (a step is a sequence of phases; abstract only); the
//! formulas are ours.
//!
//! # Assumes
//!
//! In the synchronous phases all workers begin a phase together, and share a server's link evenly. In gossip a
//! worker averages with one peer per step and both links carry the parameters both ways; with peers drawn
//! independently each worker is also drawn once per step on average (q = 1), with perfect matchings never
//! (q = 0). Waiting of exchanges for each other below saturation is left out, so gossip is an upper bound of
//! the throughput around the point where links saturate.
//!
//! # Valid
//!
//! Steps of similar length; links that carry nothing else. Asynchronous training through servers is in
//! [`crate::queueing`].
//!
//! # Checked by
//!
//! Hand-computed cases in `tests/it/coarse_reference.rs`, limits and laws in `tests/it/coarse_laws.rs`.
//!
//! ```
//! use bellwether_core::prediction::Link;
//! use bellwether_model::phase::{Servers, synchronous_servers};
//! use bellwether_model::queueing::Shares;
//! // 4 workers, 100 MB on one server at 1 GB/s: 0.5 + 2 * 0.4 + 0.01 = 1.31 s.
//! let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
//! let servers = Servers {
//!     shares: Shares::equal(1).expect("one server"),
//!     server_link: link,
//!     worker_link: link,
//!     update_s: 0.01,
//! };
//! let step = synchronous_servers(0.5, 4, 100_000_000, &servers, 0.0).expect("a step");
//! assert!((step.step_s - 1.31).abs() < 1e-12);
//! ```

use bellwether_core::InputError;
use bellwether_core::prediction::{Bottleneck, Link};

use crate::common::check;
use crate::queueing::Shares;

const PLACE: &str = "phase";

/// A step, and what takes the largest part of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseTime {
    /// Seconds from one step to the next.
    pub step_s: f64,
    /// What takes the largest part of its time.
    pub bottleneck: Bottleneck,
}

impl PhaseTime {
    /// Samples per second of `workers`, of which each computes `samples` in a step.
    pub fn examples_per_s(&self, workers: u32, samples: u64) -> f64 {
        f64::from(workers) * samples as f64 / self.step_s
    }
}

/// Parameter servers, each with a link of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Servers {
    /// How the bytes are spread over them.
    pub shares: Shares,
    /// The link of one server.
    pub server_link: Link,
    /// The link of one worker.
    pub worker_link: Link,
    /// Seconds in which all servers have applied a step's update.
    pub update_s: f64,
}

/// A synchronous step through servers: all compute, all send, the servers update, all receive.
///
/// `hidden_s` of the transfers run beside computing.
///
/// # Errors
///
/// Returns an error on any of these: no worker, negative seconds, a link without bandwidth, or a step without any time.
pub fn synchronous_servers(
    slowest_compute_s: f64,
    workers: u32,
    bytes: u64,
    servers: &Servers,
    hidden_s: f64,
) -> Result<PhaseTime, InputError> {
    check::workers(PLACE, workers)?;
    check::negative(PLACE, "the slowest worker's computing in seconds", slowest_compute_s)?;
    check::negative(PLACE, "the update in seconds", servers.update_s)?;
    check::negative(PLACE, "what is hidden, in seconds,", hidden_s)?;
    check::link(PLACE, "a server", &servers.server_link)?;
    check::link(PLACE, "a worker", &servers.worker_link)?;
    let vector = bytes as f64;
    let at_server_s =
        f64::from(workers) * vector * servers.shares.largest() / servers.server_link.bandwidth_bytes_per_s;
    let at_worker_s = vector / servers.worker_link.bandwidth_bytes_per_s;
    let latency_s = servers.server_link.latency_s.max(servers.worker_link.latency_s);
    let transfers_s = (2.0 * (at_server_s.max(at_worker_s) + latency_s) - hidden_s).max(0.0);
    phase_time(slowest_compute_s, transfers_s, servers.update_s, Bottleneck::Server)
}

/// A synchronous step with an all-reduce of `exchange_s`, of which `hidden_s` run beside computing.
///
/// # Errors
///
/// Returns an error for negative seconds, or a step without any time.
pub fn synchronous_all_reduce(
    slowest_compute_s: f64,
    update_s: f64,
    exchange_s: f64,
    hidden_s: f64,
) -> Result<PhaseTime, InputError> {
    check::negative(PLACE, "the slowest worker's computing in seconds", slowest_compute_s)?;
    check::negative(PLACE, "the update in seconds", update_s)?;
    check::negative(PLACE, "the exchange in seconds", exchange_s)?;
    check::negative(PLACE, "what is hidden, in seconds,", hidden_s)?;
    let exposed_s = (exchange_s - hidden_s).max(0.0);
    // Here the update is the worker's own work.
    phase_time(slowest_compute_s + update_s, exposed_s, 0.0, Bottleneck::Compute)
}

/// The sum of the phases; `updater` is who applies the update.
fn phase_time(
    compute_s: f64,
    transfers_s: f64,
    update_s: f64,
    updater: Bottleneck,
) -> Result<PhaseTime, InputError> {
    let step_s = compute_s + transfers_s + update_s;
    check::not_positive(PLACE, "the step in seconds", step_s)?;
    let bottleneck = if compute_s >= transfers_s.max(update_s) {
        Bottleneck::Compute
    } else if transfers_s >= update_s {
        Bottleneck::Link
    } else {
        updater
    };
    Ok(PhaseTime { step_s, bottleneck })
}

/// Asynchronous training without servers: after each step a worker averages its parameters with one peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gossip {
    /// Mean seconds of a step's computing.
    pub compute_s: f64,
    /// Bytes of the parameters.
    pub bytes: u64,
    /// The link of one worker.
    pub link: Link,
    /// Whether the exchange runs beside the next step's computing.
    pub overlapped: bool,
    /// Exchanges per step that others begin with a worker: 1 with peers drawn at random, 0 with perfect
    /// matchings.
    pub begun_by_others: f64,
}

impl Gossip {
    /// A worker's step. A lone worker has no peer to exchange with.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no worker, negative seconds, a link without bandwidth, or a step without any
    /// time.
    pub fn step(&self, workers: u32) -> Result<PhaseTime, InputError> {
        check::workers(PLACE, workers)?;
        check::negative(PLACE, "computing in seconds", self.compute_s)?;
        check::negative(PLACE, "exchanges that others begin", self.begun_by_others)?;
        check::link(PLACE, "a worker", &self.link)?;
        if workers == 1 {
            return phase_time(self.compute_s, 0.0, 0.0, Bottleneck::Compute);
        }
        let transfer_s = self.bytes as f64 / self.link.bandwidth_bytes_per_s;
        let exchange_s = transfer_s + self.link.latency_s;
        let own_s =
            if self.overlapped { self.compute_s.max(exchange_s) } else { self.compute_s + exchange_s };
        let step_s = own_s.max((1.0 + self.begun_by_others) * transfer_s);
        check::not_positive(PLACE, "the step in seconds", step_s)?;
        let bottleneck = if 2.0 * self.compute_s >= step_s { Bottleneck::Compute } else { Bottleneck::Link };
        Ok(PhaseTime { step_s, bottleneck })
    }
}
