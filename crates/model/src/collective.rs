//! Time of one all-reduce, and how much of it the backward pass hides.
//!
//! # Model
//!
//! ```text
//! ring                2 (W-1)/W S/B + 2 (W-1) l
//! tree                2 ceil(log2 W) (S/B + l)                reduce up a binary tree, then broadcast down it
//! recursive doubling  ceil(log2 W) (S/B + l)                  whole vectors between pairs
//! direct              2 (W-1)/W S/B + 2 l                     every worker owns 1/W of the vector
//! hierarchical        2 (g-1)/g S/B_local + 2 (g-1) l_local + ring over the N nodes
//! overlap             f_k = max(ready_k, f_(k-1)) + t_k,      exposed = max(0, f_last - backward_end)
//! on one processor    the same, where exchange k takes h_k / t_k of the backward pass's processor, half at most
//! all are 0 for one worker
//! ```
//!
//! | symbol       | meaning                                                 | unit |
//! |--------------|---------------------------------------------------------|------|
//! | W            | workers                                                 | 1    |
//! | N, g         | nodes; workers of the node that has most                | 1    |
//! | S            | bytes of the vector                                     | B    |
//! | B            | bandwidth of a worker's (a node's) link, each direction | B/s  |
//! | l            | seconds that the first byte takes one way               | s    |
//! | t_k, ready_k | seconds of bucket k's exchange; when it may begin       | s    |
//! | f_k          | when bucket k's exchange ends                           | s    |
//! | h_k          | processor time of bucket k's exchange                   | s    |
//!
//! # Source
//!
//! R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005, for trees and
//! recursive doubling; P. Patarasuk and X. Yuan, J. Parallel Distrib. Comput. 69(2), 2009, for the ring. The
//! direct exchange is what this project's runtime does: [`DirectExchange`] counts the bytes of its protocol. The
//! recursion of buckets is exact for exchanges one after another.
//!
//! # Assumes
//!
//! Links carry both directions at once and nothing else; the links of different workers do not slow each
//! other (a full mesh, or a switch that is faster than its ports). Adding up is hidden behind transfers, but in
//! [`DirectExchange`], where handling may be what bounds it. Workers begin together: waiting for the slowest is
//! not in here, see [`crate::compute::Durations::expected_maximum_s`].
//!
//! # Valid
//!
//! Any vector, any number of workers up to a million.
//!
//! # Checked by
//!
//! Limits (one worker, two workers, very many workers, no latency) and laws in `tests/it/coarse_laws.rs`;
//! partial sums and groups by hand in `tests/it/coarse_reference.rs`; the bytes of the runtime's own exchange, with and
//! without groups, in the tests of the command (`exchange_model.rs`).
//!
//! ```
//! use bellwether_core::prediction::Link;
//! use bellwether_model::collective::{Algorithm, all_reduce_s};
//! // 4 workers, 400 MB, 10 us, 10 GB/s: 2 * 3/4 * 0.04 s + 6 * 10 us = 0.06006 s.
//! let link = Link { bandwidth_bytes_per_s: 1e10, latency_s: 1e-5 };
//! let seconds = all_reduce_s(Algorithm::Ring, 4, 400_000_000, &link).expect("a link");
//! assert!((seconds - 0.06006).abs() < 1e-12);
//! ```

use bellwether_core::InputError;
use bellwether_core::prediction::Link;

use crate::common::check;

mod direct;
mod shared;

pub use direct::{DirectExchange, partial_sums};
pub use shared::overlap_on_one_processor;

const PLACE: &str = "collective";

/// How the sum is formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Reduce-scatter and all-gather around a ring.
    Ring,
    /// Reduce up a binary tree, then broadcast down it.
    Tree,
    /// Pairs exchange whole vectors, at doubling distance.
    RecursiveDoubling,
    /// Every worker sends every owner its piece, and every owner its sum to all.
    Direct,
}

impl Algorithm {
    /// All of them; this project's own first.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Direct, Algorithm::Ring, Algorithm::Tree, Algorithm::RecursiveDoubling];

    /// Bytes that pass a worker's link in each direction, per byte of the vector.
    pub fn link_bytes_per_byte(self, workers: u32) -> f64 {
        let count = f64::from(workers.max(1));
        match self {
            Algorithm::Ring | Algorithm::Direct => 2.0 * (count - 1.0) / count,
            Algorithm::Tree => 2.0 * f64::from(levels(workers)),
            Algorithm::RecursiveDoubling => f64::from(levels(workers)),
        }
    }

    /// Latencies one after another.
    pub fn hops(self, workers: u32) -> f64 {
        if workers <= 1 {
            return 0.0;
        }
        match self {
            Algorithm::Ring => 2.0 * (f64::from(workers) - 1.0),
            Algorithm::Tree => 2.0 * f64::from(levels(workers)),
            Algorithm::RecursiveDoubling => f64::from(levels(workers)),
            Algorithm::Direct => 2.0,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::RecursiveDoubling => "recursive_doubling",
            Algorithm::Direct => "direct",
        }
    }

    /// The algorithm of this name.
    pub fn of_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// Levels of a binary tree over the workers: the logarithm of base 2, rounded up.
fn levels(workers: u32) -> u32 {
    u32::BITS - workers.saturating_sub(1).leading_zeros()
}

/// Seconds of one all-reduce of `bytes` over `workers`, each behind a link like `link`.
///
/// # Errors
///
/// Returns an error on any of these: no worker, or more than a million; a link without bandwidth or with negative
/// latency.
pub fn all_reduce_s(algorithm: Algorithm, workers: u32, bytes: u64, link: &Link) -> Result<f64, InputError> {
    check::workers(PLACE, workers)?;
    check::link(PLACE, "the link", link)?;
    let wire_s = algorithm.link_bytes_per_byte(workers) * bytes as f64 / link.bandwidth_bytes_per_s;
    Ok(wire_s + algorithm.hops(workers) * link.latency_s)
}

/// Seconds of an all-reduce in two levels: the workers of each node around `local`, and a ring over nodes
/// around `link` for each piece, all pieces at once, so that a node's link carries the whole vector.
///
/// `workers_of_nodes` says how many workers each node has; nodes with none do not count.
///
/// # Errors
///
/// Returns an error on any of these: no worker, or more than a million; a link without bandwidth or with negative
/// latency.
pub fn hierarchical_s(
    workers_of_nodes: &[u32],
    bytes: u64,
    local: &Link,
    link: &Link,
) -> Result<f64, InputError> {
    let nodes = workers_of_nodes.iter().filter(|&&workers| workers > 0).count();
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let most = workers_of_nodes.iter().copied().max().unwrap_or(0);
    let within_s = all_reduce_s(Algorithm::Ring, most, bytes, local)?;
    Ok(within_s + all_reduce_s(Algorithm::Ring, nodes, bytes, link)?)
}

/// Gradients that are exchanged together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Seconds from the begin of the backward pass until the bucket is complete.
    pub ready_s: f64,
    /// Seconds of its exchange.
    pub exchange_s: f64,
}

/// A backward pass whose buckets are exchanged while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// Seconds from the begin of the backward pass until it and the last exchange are done.
    pub finish_s: f64,
    /// Seconds of the exchange that the backward pass does not hide.
    pub exposed_s: f64,
    /// Seconds of the exchange that it hides.
    pub hidden_s: f64,
}

/// Exchanges `buckets` one after another in this order, each as soon as it is ready, beside a backward pass
/// that ends at `backward_end_s`.
///
/// # Errors
///
/// Returns an error on any of these: negative seconds; a bucket that is ready only after the end of the backward pass.
pub fn overlap(buckets: &[Bucket], backward_end_s: f64) -> Result<Overlap, InputError> {
    check::negative(PLACE, "the end of the backward pass in seconds", backward_end_s)?;
    let mut free_s: f64 = 0.0;
    let mut exchange_s = 0.0;
    for (index, bucket) in buckets.iter().enumerate() {
        if !(bucket.ready_s >= 0.0 && bucket.ready_s <= backward_end_s) {
            let what = format!(
                "it is ready after {} s, the backward pass ends after {backward_end_s} s",
                bucket.ready_s
            );
            return Err(InputError::new(format!("{PLACE}, bucket {index}"), what)
                .hint("a bucket is ready within the backward pass"));
        }
        check::negative(
            format_args!("{PLACE}, bucket {index}"),
            "its exchange in seconds",
            bucket.exchange_s,
        )?;
        free_s = free_s.max(bucket.ready_s) + bucket.exchange_s;
        exchange_s += bucket.exchange_s;
    }
    let finish_s = free_s.max(backward_end_s);
    let exposed_s = finish_s - backward_end_s;
    Ok(Overlap { finish_s, exposed_s, hidden_s: (exchange_s - exposed_s).max(0.0) })
}
