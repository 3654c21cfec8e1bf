//! Memory of a worker, by its micro-batch and its virtual nodes.
//!
//! # Model
//!
//! ```text
//! bytes(m, V, W) = peak(m) + S (k(V, W) - k(V0, 1)) - H (1 - min(r, W) / W)
//! k(V, W)        = most partial sums that one of W workers holds at a time; with peers at least 2
//! ```
//!
//! | symbol  | meaning                                                                     | unit |
//! |---------|-----------------------------------------------------------------------------|------|
//! | m       | samples of a micro-batch: the batch over V                                  | 1    |
//! | V, V0   | virtual nodes; those of the profile                                         | 1    |
//! | W       | workers that share them                                                     | 1    |
//! | S       | bytes of a vector as long as parameters and state                           | B    |
//! | H       | bytes of the optimizer's slots and of one reduced gradient, where workers   | B    |
//! |         | share them, and else 0                                                      |      |
//! | r       | workers that hold each part of what they share                              | 1    |
//! | peak(m) | largest resident memory of a lone worker, k(V0, 1) sums among it           | B    |
//!
//! `peak` goes in straight pieces between the measured sizes, each a fixed part and a part per sample, as
//! [`crate::batch_times`] has it for seconds. Each worker adds up along the canonical tree of
//! [`bellwether_core::tree`], so that few sums are alive at a time: log2(V/W) + 1 of an aligned range. The reduced sum
//! is kept by a lone worker, too. Virtual shards are held evenly, up to one of 1,024.
//!
//! # Source
//!
//! The number of sums: `runtime::tree::Accumulator`, which keeps them.
//!
//! # Assumes
//!
//! All-reduce. What the exchange of messages buffers is small against a vector. Memory of a device of its own (a GPU)
//! is not resident memory of a process, and not in it.
//!
//! # Valid
//!
//! Between the measured sizes. Where only the profile's own was measured, smaller micro-batches are said to need as
//! much, and nothing is said of larger ones.
//!
//! # Checked by
//!
//! `tests/it/memory.rs`: the sums against the runtime's rule, the closed form; live by `docs/accuracy.md`.

use std::fmt;

use bellwether_core::profile::{Profile, SharedState};
use bellwether_core::tree::{children, maximal_nodes, ranges};
use bellwether_core::units::Bytes;

use crate::common::pieces::Pieces;

/// More virtual nodes than this are not tried.
const VIRTUAL_NODES_MAX: u32 = 1 << 16;

/// Memory of a worker of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryLaw {
    /// Samples of the smallest measured micro-batch, and bytes of a lone worker.
    smallest: (f64, f64),
    /// Through all that were measured, where there are several.
    pieces: Option<Pieces>,
    virtual_nodes: u32,
    vector_bytes: f64,
    /// What workers share.
    shared: Option<SharedState>,
}

/// What a worker needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// Bytes of resident memory at its peak.
    pub bytes: f64,
    /// Whether a micro-batch of this size lies within the measured ones.
    pub inside: bool,
}

/// Why a worker does not fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shortfall {
    /// Bytes that it needs.
    pub needed: f64,
    /// Bytes that there are.
    pub room: f64,
    /// The fewest virtual nodes, more than those that were asked for, with which the same batch would fit.
    pub virtual_nodes: Option<u32>,
}

impl MemoryLaw {
    /// The law of a profile; `None` where no memory was measured, or a worker has no virtual nodes of a shared batch.
    pub fn of(profile: &Profile) -> Option<MemoryLaw> {
        let measured = profile.batches.iter();
        let mut peaks: Vec<(f64, f64)> = measured
            .filter_map(|batch| Some((batch.samples as f64, batch.peak_resident_bytes? as f64)))
            .collect();
        let vector_bytes = profile.parameter_bytes as f64;
        if peaks.is_empty() {
            // The largest of two workers was the first one, which was alone before.
            peaks.push((profile.micro_batch(), profile.peak_resident_bytes? as f64));
        }
        let pieces = Pieces::new(&peaks);
        Some(MemoryLaw {
            smallest: *peaks.first()?,
            pieces,
            virtual_nodes: profile.virtual_nodes,
            vector_bytes,
            shared: profile.sharding,
        })
    }

    /// What the largest of `workers` needs that share `batch` samples in `virtual_nodes`; `None` where nothing is known
    /// of so large a micro-batch, or the workers cannot share them.
    pub fn worker(&self, batch: f64, virtual_nodes: u32, workers: u32) -> Option<Need> {
        let samples = batch / f64::from(virtual_nodes);
        // With peers the last gradient leaves while it is computed, and has a vector beside a sum.
        let beside = if workers > 1 { 2 } else { 1 };
        let sums = vectors(virtual_nodes, workers)?.max(beside);
        let more = f64::from(sums) - f64::from(vectors(self.virtual_nodes, 1)?);
        let (lone, inside) = match &self.pieces {
            Some(pieces) => {
                let found = pieces.at(samples);
                // Most of what the smallest micro-batch needs is the program's, whatever the samples.
                let small = samples < pieces.range().0;
                (if small { found.other } else { found.value }, found.inside)
            }
            None => {
                let (known, bytes) = self.smallest;
                if samples > known * (1.0 + 1e-9) {
                    return None;
                }
                (bytes, samples > known * (1.0 - 1e-9))
            }
        };
        let elsewhere = self.shared.map_or(0.0, |shared| {
            let held = f64::from(shared.copies.min(workers)) / f64::from(workers);
            shared.bytes as f64 * (1.0 - held)
        });
        Some(Need { bytes: (lone + more * self.vector_bytes - elsewhere).max(0.0), inside })
    }

    /// Whether the largest of `workers` fits into `room` bytes, as far as it is known.
    ///
    /// # Errors
    ///
    /// Returns by how much it does not, and with how many more virtual nodes it would.
    pub fn fits(&self, batch: u64, virtual_nodes: u32, workers: u32, room: f64) -> Result<(), Shortfall> {
        let need = |nodes| self.worker(batch as f64, nodes, workers).map(|need| need.bytes);
        let Some(needed) = need(virtual_nodes).filter(|needed| *needed > room) else { return Ok(()) };
        let most = u32::try_from(batch).unwrap_or(u32::MAX).min(VIRTUAL_NODES_MAX);
        let divides = |nodes: &u32| batch.is_multiple_of(u64::from(*nodes));
        let fits = |nodes: &u32| need(*nodes).is_some_and(|needed| needed <= room);
        let more = (virtual_nodes.saturating_add(1)..=most).filter(divides).find(fits);
        Err(Shortfall { needed, room, virtual_nodes: more })
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortfall { needed, room, virtual_nodes } = *self;
        let [needed, room, more] = [needed, room, needed - room].map(bytes);
        write!(f, "a worker needs {needed} of memory and would have {room}, which is {more} too little; ")?;
        match virtual_nodes {
            Some(nodes) => write!(f, "with {nodes} virtual nodes it fits"),
            None => f.write_str("more virtual nodes do not make it fit"),
        }
    }
}

/// Bytes for people, exact to a tenth of their unit.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = UNITS.into_iter().find(|(_, unit)| bytes >= *unit as f64);
    match fits {
        Some((name, unit)) => format!("{:.1} {name}", bytes / unit as f64),
        None => Bytes(bytes.max(0.0) as u64).to_string(),
    }
}

/// Vectors as long as the parameters that the worker with most of them holds at a time for partial sums. `None` where
/// the workers cannot share the virtual nodes.
pub fn vectors(virtual_nodes: u32, workers: u32) -> Option<u32> {
    if workers == 0 || workers > virtual_nodes || virtual_nodes > VIRTUAL_NODES_MAX {
        return None;
    }
    let of_worker = |range| {
        let nodes = maximal_nodes(virtual_nodes, range);
        let sums = (0..).zip(&nodes).map(|(before, node)| before + depth(node));
        sums.max().unwrap_or(0)
    };
    let sums = ranges(virtual_nodes, workers).into_iter().map(of_worker).max()?;
    Some(sums)
}

/// Sums that are alive at a time while a complete subtree is added up.
fn depth(node: &std::ops::Range<u32>) -> u32 {
    match children(node) {
        Some((left, right)) => depth(&left).max(1 + depth(&right)),
        None => 1,
    }
}
