//! What a server counts: staleness, updates, bytes, and which units are complete.

use std::collections::{BTreeMap, BTreeSet};

/// How many updates of a piece came between the pull and the application of a gradient, counted over all updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staleness {
    /// Updates of staleness 0, 1, … 63; then 64…127, 128…255 and so on, the last without end.
    pub counts: [u64; Staleness::BUCKETS],
}

impl Staleness {
    /// Buckets of one value each.
    const SINGLE: usize = 64;

    /// Number of buckets.
    pub const BUCKETS: usize = Staleness::SINGLE + 16;

    /// Counts an update.
    pub fn add(&mut self, staleness: u64) {
        self.counts[Staleness::bucket(staleness)] += 1;
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Staleness) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }

    /// The bucket of a staleness.
    pub fn bucket(staleness: u64) -> usize {
        match usize::try_from(staleness) {
            Ok(value) if value < Staleness::SINGLE => value,
            _ => (Staleness::SINGLE + staleness.ilog2() as usize - 6).min(Staleness::BUCKETS - 1),
        }
    }

    /// The smallest staleness of a bucket.
    pub fn least(bucket: usize) -> u64 {
        match bucket.checked_sub(Staleness::SINGLE) {
            None => bucket as u64,
            Some(doublings) => (Staleness::SINGLE as u64) << doublings.min(57),
        }
    }
}

impl Default for Staleness {
    fn default() -> Self {
        Staleness { counts: [0; Staleness::BUCKETS] }
    }
}

/// Which units are complete: applied (or, of a step that is not, received) on all pieces of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// All units below it are.
    pub watermark: u64,
    /// Those above it that are.
    pub complete: BTreeSet<u64>,
}

impl Progress {
    /// Whether a unit is complete.
    pub fn has(&self, unit: u64) -> bool {
        unit < self.watermark || self.complete.contains(&unit)
    }
}

/// Counts pieces until units are complete.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) progress: Progress,
    counts: BTreeMap<u64, usize>,
}

impl Ledger {
    pub(super) fn begin(&mut self, watermark: u64) {
        *self = Ledger { progress: Progress { watermark, ..Progress::default() }, ..Ledger::default() };
    }

    /// Counts one of a unit's `pieces`; the watermark.
    pub(super) fn note(&mut self, unit: u64, pieces: usize) -> u64 {
        let progress = &mut self.progress;
        if progress.has(unit) {
            return progress.watermark;
        }
        let count = self.counts.entry(unit).or_default();
        *count += 1;
        if *count == pieces {
            self.counts.remove(&unit);
            progress.complete.insert(unit);
            while progress.complete.remove(&progress.watermark) {
                progress.watermark += 1;
            }
        }
        progress.watermark
    }
}

/// What a server did since it was started.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    /// Of the updates.
    pub staleness: Staleness,
    /// Updates of pieces.
    pub updates: u64,
    /// Gradients of pieces that had been applied before.
    pub repeated: u64,
    /// Seconds that updates took, over all threads.
    pub applying_s: f64,
    /// Bytes received from workers.
    pub bytes_in: u64,
    /// Bytes sent to workers.
    pub bytes_out: u64,
    /// Which units are complete.
    pub progress: Progress,
    /// Each piece's number, updates since it was loaded, and mean seconds of one.
    pub pieces: Vec<(u32, u64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_single_and_then_double() {
        for (staleness, bucket) in [(0, 0), (63, 63), (64, 64), (127, 64), (128, 65), (u64::MAX, 79)] {
            assert_eq!(Staleness::bucket(staleness), bucket, "{staleness}");
        }
        for bucket in 0..Staleness::BUCKETS {
            assert_eq!(Staleness::bucket(Staleness::least(bucket)), bucket);
        }
    }

    #[test]
    fn the_watermark_follows_the_complete_units() {
        let mut ledger = Ledger::default();
        ledger.begin(10);
        assert_eq!(ledger.note(11, 2), 10);
        assert_eq!(ledger.note(11, 2), 10);
        assert!(ledger.progress.has(11) && !ledger.progress.has(10) && ledger.progress.has(9));
        assert_eq!(ledger.note(10, 2), 10);
        assert_eq!(ledger.note(10, 2), 12);
        assert_eq!(ledger.note(10, 2), 12);
        assert!(ledger.progress.complete.is_empty());
    }
}
