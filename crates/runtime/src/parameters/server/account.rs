//! What a server counts: staleness, updates, bytes, and which units are complete.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::record::Staleness;

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
