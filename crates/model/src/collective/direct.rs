//! The exchange of this project's runtime: partial sums travel to the owners of pieces, everyone's to everyone, or in
//! groups and then between them.
//!
//! Gradients are summed along one canonical tree over virtual nodes, so a worker whose range is not one complete
//! subtree sends several partial sums, and the exchange then carries more than a ring would. Small vectors skip the
//! owners: every worker sends everything to every owner of its group, in one hop, and every owner the sum of its group
//! to those of the other groups.
//!
//! The groups are those of the runtime ([`bellwether_core::groups`]) up to [`CHOSEN_MAX`] workers; beyond, groups of
//! equal size stand for them. The link is the one that is given, whatever carries it: between workers of one machine
//! the one that a profile measured there, over shared memory as in a run. The runtime tells small vectors by what they
//! take in memory, so where gradients travel in 16 bits some need a hop more than here. Every worker is on a host of
//! its own here: that the workers of a host add up their sums first is left to [`super::hierarchical_s`].

use std::ops::Range;

use bellwether_core::InputError;
use bellwether_core::groups::Groups;
use bellwether_core::prediction::Link;
use bellwether_core::profile::CollectiveCost;
use bellwether_core::tree::{maximal_nodes, ranges};

use super::{Bucket, PLACE, overlap};
use crate::common::check;

/// Partial sums of up to this many bytes per worker go to all owners, ...
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// ... if a worker sends no more than this in all. (Both are the runtime's own sizes.)
const SMALL_BYTES_TOTAL_MAX: u64 = 96 * 1024;

/// Bytes of a bucket, at least, ...
const BUCKET_BYTES: u64 = 1 << 20;

/// ... and for every owner; ...
const PIECE_BYTES: u64 = 128 * 1024;

/// ... and buckets of a vector, at most. (All are the runtime's own.)
const BUCKETS_MAX: u64 = 64;

/// Virtual nodes up to which partial sums are counted.
const VIRTUAL_NODES_MAX: u32 = 1 << 20;

/// Workers up to which the groups are chosen as the runtime does. To choose them takes milliseconds there.
const CHOSEN_MAX: usize = 1024;

/// What every worker sends and receives in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectExchange {
    /// The most that one worker has.
    peers: u32,
    /// The most that one worker sends or receives.
    link_bytes: f64,
    /// Half of the most that one worker sends and receives together: with two workers, the vector.
    handled_bytes: f64,
    hops: f64,
    /// Parts of the vector that travel as soon as they are computed.
    buckets: u64,
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
            return Ok(DirectExchange {
                peers: 0,
                link_bytes: 0.0,
                handled_bytes: 0.0,
                hops: 0.0,
                buckets: 1,
            });
        }
        let shares = Shares::new(virtual_nodes, &ranges(virtual_nodes, workers), partial_sums);
        let peers = shares.groups.peers_max(0);
        let most = shares.partial_sums.iter().chain(&shares.sums_of_groups).copied().max().unwrap_or(1);
        let small_bytes_max = SMALL_BYTES_MAX.min(SMALL_BYTES_TOTAL_MAX / peers as u64);
        let is_small = bytes.saturating_mul(u64::from(most)) <= small_bytes_max;
        let mut exchange = DirectExchange {
            peers: u32::try_from(peers).unwrap_or(u32::MAX),
            link_bytes: 0.0,
            handled_bytes: 0.0,
            hops: shares.hops(is_small),
            buckets: if is_small { 1 } else { buckets(bytes, shares.groups.columns() as u64) },
        };
        for rank in 0..workers as usize {
            let (sent, received) = if is_small { shares.small(rank) } else { shares.bulk(rank) };
            let (sent, received) = (sent * bytes as f64, received * bytes as f64);
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
        let fixed_s = cost.fixed_s * f64::from(self.peers);
        Ok(wire_s.max(handling_s) + self.hops * link.latency_s + fixed_s)
    }

    /// What is left of an exchange of `exchange_s` when all is computed, if gradients get ready at a steady rate for
    /// `tail_s` before that.
    ///
    /// # Errors
    ///
    /// Returns an error for negative times.
    pub fn exposed_s(&self, exchange_s: f64, tail_s: f64) -> Result<f64, InputError> {
        check::negative(PLACE, "the exchange in seconds", exchange_s)?;
        check::negative(PLACE, "the time in which gradients get ready in seconds", tail_s)?;
        let buckets = self.buckets as f64;
        let ready_s = |bucket: u64| tail_s * bucket as f64 / (buckets - 1.0).max(1.0);
        let each = |bucket| Bucket { ready_s: ready_s(bucket), exchange_s: exchange_s / buckets };
        Ok(overlap(&(0..self.buckets).map(each).collect::<Vec<_>>(), ready_s(self.buckets - 1))?.exposed_s)
    }
}

/// Buckets of a vector that this many workers of a group add up.
fn buckets(bytes: u64, owners: u64) -> u64 {
    let least = BUCKET_BYTES.max(PIECE_BYTES * owners).max(bytes.div_ceil(BUCKETS_MAX));
    bytes.div_ceil(least).max(1)
}

/// Who holds how many partial sums, and in which group.
struct Shares {
    groups: Groups,
    /// Of each worker.
    partial_sums: Vec<u32>,
    /// What is left of them when a group has added up its own.
    sums_of_groups: Vec<u32>,
}

impl Shares {
    fn new(virtual_nodes: u32, ranges: &[Range<u32>], partial_sums: Vec<u32>) -> Shares {
        let groups = match ranges.len() {
            ..=CHOSEN_MAX => Groups::choose(virtual_nodes, ranges),
            workers => {
                let count = workers.isqrt();
                let bounds = (0..=count).map(|group| group * workers / count).collect();
                Groups::new(bounds).expect("every group has members")
            }
        };
        let of_group = |group: usize| {
            let ranks = groups.ranks(group);
            let range = ranges[ranks.start].start..ranges[ranks.end - 1].end;
            maximal_nodes(virtual_nodes, range).len() as u32
        };
        let sums_of_groups = (0..groups.count()).map(of_group).collect();
        Shares { groups, partial_sums, sums_of_groups }
    }

    /// Messages one after another, from the first partial sum to the last result.
    fn hops(&self, is_small: bool) -> f64 {
        match (self.groups.is_one(), is_small) {
            (true, true) => 1.0,
            (true, false) => 2.0,
            // Who owns nothing gets the result from an owner.
            (false, true) => 2.0 + f64::from(u8::from(self.groups.largest() > self.groups.columns())),
            (false, false) => 4.0,
        }
    }

    /// Sums of a worker and of its whole group; those of its group as a whole, and of all groups.
    fn sums(&self, rank: usize) -> ((f64, f64), (f64, f64)) {
        let (group, _) = self.groups.place(rank);
        let of = |sums: &[u32]| -> f64 { sums.iter().map(|&sums| f64::from(sums)).sum() };
        let own = (f64::from(self.partial_sums[rank]), of(&self.partial_sums[self.groups.ranks(group)]));
        (own, (f64::from(self.sums_of_groups[group]), of(&self.sums_of_groups)))
    }

    /// Vectors that a worker sends and receives, where every owner gets all.
    fn small(&self, rank: usize) -> (f64, f64) {
        let ((own, within), (of_group, across)) = self.sums(rank);
        let (group, place) = self.groups.place(rank);
        let owners = self.groups.columns();
        if place >= owners {
            return (own * owners as f64, 1.0);
        }
        let others = self.groups.ranks(group).len() - owners;
        let handed_on = (0..others).filter(|other| other % owners == place).count() as f64;
        let other_groups = (self.groups.count() - 1) as f64;
        let sent = own * (owners - 1) as f64 + of_group * other_groups + handed_on;
        (sent, within - own + across - of_group)
    }

    /// Vectors that a worker sends and receives, where every owner adds up a segment.
    fn bulk(&self, rank: usize) -> (f64, f64) {
        let ((own, within), (of_group, across)) = self.sums(rank);
        let (group, place) = self.groups.place(rank);
        let owners = self.groups.columns() as f64;
        if place >= self.groups.columns() {
            return (own, 1.0);
        }
        // Contributions to the other segments, and the results of the own one to the whole group; and back.
        let mates = (self.groups.ranks(group).len() - 1) as f64;
        let sent = (own * (owners - 1.0) + mates) / owners;
        let received = (within - own + owners - 1.0) / owners;
        // Pieces of the segment are dealt out over the groups: the sums of the others' go there, and results come back.
        let other_groups = (self.groups.count() - 1) as f64;
        let dealt = owners * self.groups.count() as f64;
        let sent_across = other_groups * (of_group + 1.0) / dealt;
        let received_across = (across - of_group + other_groups) / dealt;
        (sent + sent_across, received + received_across)
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
