//! The exchange of this project's runtime: a full mesh, in which partial sums travel to the owners of pieces.
//!
//! Gradients are summed along one canonical tree over virtual nodes, so a worker whose range is not one complete
//! subtree sends several partial sums, and the exchange then carries more than a ring would. Small vectors skip the
//! owners: every worker sends everything to every other, in one hop.
//!
//! Valid for up to 16 workers. The runtime lets more of them exchange in groups, with fewer connections, up to twice as
//! many hops and a little more bytes; for them this model still gives the full mesh. Nor does it know that workers of
//! one machine exchange through shared memory: it takes the link that was measured between them.

use bellwether_core::InputError;
use bellwether_core::prediction::Link;
use bellwether_core::profile::CollectiveCost;
use bellwether_core::tree::{maximal_nodes, ranges};

use super::PLACE;
use crate::common::check;

/// Partial sums of up to this many bytes per worker go to all workers, ...
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// ... if a worker sends no more than this in all. (Both are the runtime's own sizes.)
const SMALL_BYTES_TOTAL_MAX: u64 = 96 * 1024;

/// Virtual nodes up to which partial sums are counted.
const VIRTUAL_NODES_MAX: u32 = 1 << 20;

/// What every worker sends and receives in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectExchange {
    workers: u32,
    /// The most that one worker sends or receives.
    link_bytes: f64,
    /// Half of the most that one worker sends and receives together: with two workers, the vector.
    handled_bytes: f64,
    hops: f64,
}

impl DirectExchange {
    /// The exchange of a vector of `bytes` by `workers` that share `virtual_nodes` as evenly as they go.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no worker; more workers than virtual nodes; more virtual nodes than a million.
    pub fn new(virtual_nodes: u32, workers: u32, bytes: u64) -> Result<DirectExchange, InputError> {
        let partial_sums = partial_sums(virtual_nodes, workers)?;
        if workers == 1 {
            return Ok(DirectExchange { workers, link_bytes: 0.0, handled_bytes: 0.0, hops: 0.0 });
        }
        let peers = u64::from(workers - 1);
        let most = partial_sums.iter().copied().max().unwrap_or(1);
        let small =
            bytes.saturating_mul(u64::from(most)) <= SMALL_BYTES_MAX.min(SMALL_BYTES_TOTAL_MAX / peers);
        let (vector, peers) = (bytes as f64, peers as f64);
        let all: f64 = partial_sums.iter().map(|&sums| f64::from(sums)).sum();
        let segment = vector / f64::from(workers);
        let mut exchange = DirectExchange {
            workers,
            link_bytes: 0.0,
            handled_bytes: 0.0,
            hops: if small { 1.0 } else { 2.0 },
        };
        for &own in &partial_sums {
            let own = f64::from(own);
            let (sent, received) = if small {
                (own * vector * peers, (all - own) * vector)
            } else {
                // Contributions to the other segments, and the results of the own one to all workers; and back.
                let result = segment * peers;
                (own * (vector - segment) + result, (all - own) * segment + (vector - segment))
            };
            exchange.link_bytes = exchange.link_bytes.max(sent).max(received);
            exchange.handled_bytes = exchange.handled_bytes.max((sent + received) / 2.0);
        }
        Ok(exchange)
    }

    /// Bytes through the busiest link in its busiest direction.
    pub fn link_bytes(&self) -> f64 {
        self.link_bytes
    }

    /// Seconds of the exchange over links like `link`, with measured costs beside the link.
    ///
    /// Pieces are handled while others travel, so the slower of link and handling counts. Handling grows with
    /// what a worker sends and receives, relative to two workers, where it was measured; the fixed cost
    /// is paid per peer, as one thread serves all connections.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: a link without bandwidth or with negative latency; negative costs.
    pub fn seconds(&self, link: &Link, cost: &CollectiveCost) -> Result<f64, InputError> {
        check::link(PLACE, "the link", link)?;
        check::negative(PLACE, "the cost of handling in seconds per byte", cost.s_per_byte)?;
        check::negative(PLACE, "the fixed cost in seconds", cost.fixed_s)?;
        let wire_s = self.link_bytes / link.bandwidth_bytes_per_s;
        let handling_s = self.handled_bytes * cost.s_per_byte;
        let fixed_s = cost.fixed_s * f64::from(self.workers - 1);
        Ok(wire_s.max(handling_s) + self.hops * link.latency_s + fixed_s)
    }
}

/// Partial sums that each worker holds after adding up what it can: the complete subtrees of the canonical tree
/// ([`bellwether_core::tree`]) in its range of virtual nodes.
///
/// # Errors
///
/// Returns an error on any of these: no worker; more workers than virtual nodes; more virtual nodes than a million.
pub fn partial_sums(virtual_nodes: u32, workers: u32) -> Result<Vec<u32>, InputError> {
    if virtual_nodes > VIRTUAL_NODES_MAX || workers == 0 || workers > virtual_nodes {
        let what = format!("{workers} workers cannot share {virtual_nodes} virtual nodes");
        let hint =
            format!("take from 1 worker to as many as virtual nodes, of which {VIRTUAL_NODES_MAX} at most");
        return Err(InputError::new(PLACE, what).hint(hint));
    }
    let count = |range| maximal_nodes(virtual_nodes, range).len() as u32;
    Ok(ranges(virtual_nodes, workers).into_iter().map(count).collect())
}
