//! How stale the updates of an asynchronous phase were.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Staleness that is counted exactly; larger ones share one place.
const EXACT: u64 = 63;

/// A histogram of staleness: the updates that were applied to a piece of the parameters between the moment a worker
/// pulled it and the moment the gradient that the worker computed from it was applied.
///
/// ```
/// use bellwether_core::record::Staleness;
/// let mut staleness = Staleness::default();
/// [0, 1, 1, 2].map(|updates| staleness.add(updates));
/// let mut other = Staleness::default();
/// other.add(100);
/// staleness.merge(&other);
/// assert_eq!((staleness.updates(), staleness.mean(), staleness.largest), (5, Some(20.8), 100));
/// assert_eq!([0.2, 0.5, 0.9].map(|share| staleness.quantile(share)), [Some(0), Some(1), Some(64)]);
/// assert_eq!(staleness.to_string(), "5 updates, staleness: mean 20.8, median 1, 95 % at most 100, largest 100");
/// assert_eq!(Staleness::default().to_string(), "no updates");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Staleness {
    /// Updates of staleness 0, 1, … 63, and of 64 or more; trailing zeros may be left out.
    pub counts: Vec<u64>,
    /// Sum of the staleness of all updates.
    pub sum: u64,
    /// The largest staleness.
    pub largest: u64,
}

impl Staleness {
    /// Counts one update.
    pub fn add(&mut self, staleness: u64) {
        let place = staleness.min(EXACT + 1) as usize;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] = self.counts[place].saturating_add(1);
        self.sum = self.sum.saturating_add(staleness);
        self.largest = self.largest.max(staleness);
    }

    /// Counts all updates of `other` too.
    pub fn merge(&mut self, other: &Staleness) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own = own.saturating_add(*more);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.largest = self.largest.max(other.largest);
    }

    /// Number of updates.
    pub fn updates(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Mean staleness; none without updates.
    pub fn mean(&self) -> Option<f64> {
        let updates = self.updates();
        (updates > 0).then(|| self.sum as f64 / updates as f64)
    }

    /// The smallest staleness that at least this share (0…1) of the updates do not exceed, 64 standing for 64 or more;
    /// none without updates.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let updates = self.updates();
        // At least one: the quantile of share 0 is the smallest staleness there is.
        let wanted = ((share * updates as f64).ceil() as u64).clamp(1, updates.max(1));
        let mut below = 0u64;
        self.counts.iter().zip(0..).find_map(|(count, staleness)| {
            below = below.saturating_add(*count);
            (below >= wanted).then_some(staleness)
        })
    }
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(mean), Some(median), Some(high)) = (self.mean(), self.quantile(0.5), self.quantile(0.95))
        else {
            return f.write_str("no updates");
        };
        // The last place of the histogram has no other bound than the largest value.
        let bound = |place: u64| if place > EXACT { self.largest } else { place };
        let (median, high, largest) = (bound(median), bound(high), self.largest);
        let updates = self.updates();
        let noun = if updates == 1 { "update" } else { "updates" };
        write!(
            f,
            "{updates} {noun}, staleness: mean {mean:.1}, median {median}, 95 % at most {high}, largest {largest}"
        )
    }
}
