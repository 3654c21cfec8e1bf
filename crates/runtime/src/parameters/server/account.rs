//! What a server counts: staleness, updates, bytes, and which units are complete.

use std::collections::BTreeMap;
use std::ops::Range;

use bellwether_core::record::Staleness;

/// Which units are complete: applied (or, of a step that is not, received) on all pieces of a server. Units that no
/// worker does, such as those without samples, cost the memory of a gap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Begin and end of each range of complete units; none touches another.
    ranges: BTreeMap<u64, u64>,
}

impl Progress {
    /// All units below `end`.
    pub fn below(end: u64) -> Progress {
        let mut progress = Progress::default();
        progress.insert(0..end);
        progress
    }

    /// Whether a unit is complete.
    pub fn has(&self, unit: u64) -> bool {
        self.ranges.range(..=unit).next_back().is_some_and(|(_, end)| unit < *end)
    }

    /// The first unit that is not complete.
    pub fn watermark(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// Begin and end of each range of complete units, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(begin, end)| *begin..*end)
    }

    /// Counts units as complete.
    pub fn insert(&mut self, units: Range<u64>) {
        if units.is_empty() {
            return;
        }
        let (mut begin, mut end) = (units.start, units.end);
        // Those that overlap or touch become one.
        while let Some((first, last)) = self.ranges.range(..=end).next_back().map(|(a, b)| (*a, *b)) {
            if last < begin {
                break;
            }
            (begin, end) = (begin.min(first), end.max(last));
            self.ranges.remove(&first);
        }
        self.ranges.insert(begin, end);
    }

    /// Units that are complete here and not in `before`, ascending.
    pub fn since(&self, before: &Progress) -> Vec<u64> {
        let mut units = Vec::new();
        for range in self.ranges() {
            let mut next = range.start;
            while next < range.end {
                match before.ranges.range(..=next).next_back().filter(|(_, end)| next < **end) {
                    Some((_, end)) => next = *end,
                    None => {
                        units.push(next);
                        next += 1;
                    }
                }
            }
        }
        units
    }
}

/// Counts pieces until units are complete.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) progress: Progress,
    counts: BTreeMap<u64, usize>,
}

impl Ledger {
    pub(super) fn begin(&mut self, progress: Progress) {
        *self = Ledger { progress, ..Ledger::default() };
    }

    /// Counts one of a unit's `pieces`.
    pub(super) fn note(&mut self, unit: u64, pieces: usize) {
        if self.progress.has(unit) {
            return;
        }
        let count = self.counts.entry(unit).or_default();
        *count += 1;
        if *count == pieces {
            self.counts.remove(&unit);
            self.progress.insert(unit..unit + 1);
        }
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_watermark_follows_the_complete_units() {
        let mut ledger = Ledger::default();
        ledger.begin(Progress::below(10));
        ledger.note(11, 2);
        assert!(!ledger.progress.has(11));
        ledger.note(11, 2);
        assert!(ledger.progress.has(11) && !ledger.progress.has(10) && ledger.progress.has(9));
        ledger.note(10, 2);
        assert_eq!(ledger.progress.watermark(), 10);
        ledger.note(10, 2);
        ledger.note(10, 2);
        assert_eq!(ledger.progress, Progress::below(12));
        assert!(ledger.counts.is_empty());
    }

    proptest! {
        #[test]
        fn ranges_are_a_set(inserted in proptest::collection::vec((0u64..60, 0u64..6), 0..20), more in 0usize..20) {
            let (mut progress, mut before) = (Progress::default(), Progress::default());
            let mut set = BTreeSet::new();
            for (number, (begin, length)) in inserted.iter().enumerate() {
                progress.insert(*begin..begin + length);
                set.extend(*begin..begin + length);
                if number < more {
                    before = progress.clone();
                }
            }
            let units: Vec<u64> = (0..70).filter(|unit| progress.has(*unit)).collect();
            prop_assert_eq!(&units, &set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(progress.since(&Progress::default()), units.clone());
            let since: Vec<u64> = units.into_iter().filter(|unit| !before.has(*unit)).collect();
            prop_assert_eq!(progress.since(&before), since);
            let ranges: Vec<Range<u64>> = progress.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(progress.watermark(), (0..).find(|unit| !set.contains(unit)).unwrap_or(0));
        }
    }
}
