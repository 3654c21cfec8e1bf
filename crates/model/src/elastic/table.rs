//! A table of measured steps, read between its local batches.

use std::collections::BTreeMap;

/// Measured steps by placement (replicas per node) and local batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeasuredTable {
    placements: BTreeMap<Vec<u32>, Line>,
}

/// Measured steps of one placement by ascending local batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Line(Vec<Entry>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    local_batch: f64,
    step_s: f64,
    exchange_s: f64,
}

impl Line {
    /// Adds one measurement.
    pub(crate) fn insert(&mut self, local_batch: f64, step_s: f64, exchange_s: f64) {
        let place = self.0.partition_point(|entry| entry.local_batch < local_batch);
        self.0.insert(place, Entry { local_batch, step_s, exchange_s });
    }

    /// Seconds of a step, and of its exchange, on the straight line between the neighbouring local batches.
    fn at(&self, local_batch: f64) -> Option<(f64, f64)> {
        let above = self.0.partition_point(|entry| entry.local_batch < local_batch);
        let high = self.0.get(above)?;
        if high.local_batch == local_batch {
            return Some((high.step_s, high.exchange_s));
        }
        let low = self.0.get(above.checked_sub(1)?)?;
        let part = (local_batch - low.local_batch) / (high.local_batch - low.local_batch);
        let between = |low: f64, high: f64| low + part * (high - low);
        Some((between(low.step_s, high.step_s), between(low.exchange_s, high.exchange_s)))
    }

    /// The same at any local batch, and whether it was measured around there. Below the smallest batch no step is
    /// shorter; above the largest one no sample is faster, and the exchange takes as long.
    ///
    /// # Panics
    ///
    /// When nothing was inserted.
    pub(crate) fn at_any(&self, local_batch: f64) -> (f64, f64, bool) {
        if let Some((step_s, exchange_s)) = self.at(local_batch) {
            return (step_s, exchange_s, true);
        }
        let first = &self.0[0];
        if local_batch < first.local_batch {
            return (first.step_s, first.exchange_s, false);
        }
        let last = &self.0[self.0.len() - 1];
        let gradient_s = (last.step_s - last.exchange_s) * (local_batch / last.local_batch);
        (gradient_s + last.exchange_s, last.exchange_s, false)
    }
}

impl MeasuredTable {
    /// A table without entries.
    pub fn new() -> Self {
        MeasuredTable::default()
    }

    /// Adds one measurement; `placement` holds the replicas of each node along the ring,
    /// and where the ring begins does not matter.
    pub fn insert(&mut self, placement: &[u32], local_batch: f64, step_s: f64, exchange_s: f64) {
        self.placements.entry(turned(placement)).or_default().insert(local_batch, step_s, exchange_s);
    }

    /// Seconds of a step, and of its exchange, on the straight line between the neighbouring local batches.
    ///
    /// `None` outside of what was measured: another placement, or a batch beyond the ends.
    pub fn step_s(&self, placement: &[u32], local_batch: f64) -> Option<(f64, f64)> {
        self.line(placement)?.at(local_batch)
    }

    /// What was measured of a placement.
    pub(crate) fn line(&self, placement: &[u32]) -> Option<&Line> {
        self.placements.get(&turned(placement))
    }
}

/// The smallest rotation of a ring of nodes, without empty ones.
fn turned(placement: &[u32]) -> Vec<u32> {
    let ring: Vec<u32> = placement.iter().copied().filter(|&count| count > 0).collect();
    let rotation = |first: usize| [&ring[first..], &ring[..first]].concat();
    (0..ring.len()).map(rotation).min().unwrap_or_default()
}
