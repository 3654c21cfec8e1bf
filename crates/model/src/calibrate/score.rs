//! How good intervals were, once the truth is known.

use super::LEVEL;

/// The interval score of Gneiting and Raftery at level [`LEVEL`]: the width, and what the truth lies outside, times
/// `2/(1 - level)`, which is 40. Smaller is better; in the unit of its arguments.
pub fn interval_score(low: f64, high: f64, measured: f64) -> f64 {
    (high - low) + 2.0 / (1.0 - LEVEL) * ((low - measured).max(0.0) + (measured - high).max(0.0))
}

/// Scores of many intervals, gathered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IntervalScore {
    count: u32,
    covered: u32,
    width: f64,
    score: f64,
}

impl IntervalScore {
    /// Adds an interval and what was measured, all in the same unit.
    pub fn add(&mut self, low: f64, high: f64, measured: f64) {
        self.count += 1;
        self.covered += u32::from((low..=high).contains(&measured));
        self.width += high - low;
        self.score += interval_score(low, high, measured);
    }

    /// Number of intervals.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Share of the intervals that hold what was measured.
    pub fn coverage(&self) -> f64 {
        f64::from(self.covered) / f64::from(self.count)
    }

    /// Mean width.
    pub fn mean_width(&self) -> f64 {
        self.width / f64::from(self.count)
    }

    /// Mean interval score.
    pub fn mean_score(&self) -> f64 {
        self.score / f64::from(self.count)
    }
}
