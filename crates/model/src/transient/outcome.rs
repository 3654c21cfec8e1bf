//! What many runs of one job gave: shares, means and quantiles, with their intervals.

use bellwether_des::statistics::{Interval, Tally};

/// Confidence of all intervals here.
const LEVEL: f64 = 0.95;
/// Standard deviations on either side of a normal distribution that hold this confidence.
const DEVIATIONS: f64 = 1.959_963_984_540_054;

/// One run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Run {
    /// Whether all work was done.
    pub finished: bool,
    /// When it was done, or when the run was over without, in seconds since the servers were requested.
    pub end_s: f64,
    /// What it cost, in the currency of the prices.
    pub cost: f64,
    /// Servers that were lost.
    pub losses: u32,
    /// Work that was done again after losses.
    pub repeated_work: f64,
}

/// All runs of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcomes {
    runs: Vec<Run>,
    /// Of finished runs, ascending.
    end_s: Vec<f64>,
    /// Of all runs, ascending.
    cost: Vec<f64>,
}

/// A value and an interval that holds the true one with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Outcomes {
    pub(super) fn new(runs: Vec<Run>) -> Outcomes {
        let mut end_s: Vec<f64> = runs.iter().filter(|run| run.finished).map(|run| run.end_s).collect();
        let mut cost: Vec<f64> = runs.iter().map(|run| run.cost).collect();
        end_s.sort_by(f64::total_cmp);
        cost.sort_by(f64::total_cmp);
        Outcomes { runs, end_s, cost }
    }

    /// The runs, by their number.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Share of the runs that finished.
    pub fn finished(&self) -> Estimate {
        self.share(self.end_s.len())
    }

    /// Share of the runs that finished within `deadline_s`.
    pub fn finished_by(&self, deadline_s: f64) -> Estimate {
        self.share(self.end_s.partition_point(|end_s| *end_s <= deadline_s))
    }

    /// Mean time of the runs that finished, in seconds; 0 with an infinite interval when none did.
    pub fn time_s(&self) -> Interval {
        self.end_s.iter().copied().collect::<Tally>().interval(LEVEL)
    }

    /// Mean cost of all runs, the unfinished ones included.
    pub fn cost(&self) -> Interval {
        self.cost.iter().copied().collect::<Tally>().interval(LEVEL)
    }

    /// Mean number of servers lost in a run.
    pub fn losses(&self) -> Interval {
        self.runs.iter().map(|run| f64::from(run.losses)).collect::<Tally>().interval(LEVEL)
    }

    /// The time in seconds at which a share `p` of all runs has finished. A run that did not finish takes infinitely
    /// long.
    pub fn time_quantile_s(&self, p: f64) -> Estimate {
        quantile(&self.end_s, self.runs.len(), p)
    }

    /// What a share `p` of all runs costs at most.
    pub fn cost_quantile(&self, p: f64) -> Estimate {
        quantile(&self.cost, self.runs.len(), p)
    }

    /// A share of the runs with Wilson's interval.
    fn share(&self, count: usize) -> Estimate {
        let n = self.runs.len() as f64;
        let share = count as f64 / n;
        let z2 = DEVIATIONS * DEVIATIONS;
        let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = DEVIATIONS * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
        // At the ends the interval reaches the share itself, which rounding must not leave outside.
        Estimate {
            value: share,
            low: (middle - half).clamp(0.0, share),
            high: (middle + half).clamp(share, 1.0),
        }
    }
}

/// The value that a share `p` of `count` values, of which `sorted` are the finite ones, does not exceed; the interval
/// is of order statistics, by the normal approximation of the binomial distribution.
fn quantile(sorted: &[f64], count: usize, p: f64) -> Estimate {
    let n = count as f64;
    let p = p.clamp(0.0, 1.0);
    let at = |rank: f64| {
        let rank = rank.ceil().clamp(1.0, n) as usize;
        sorted.get(rank - 1).copied().unwrap_or(f64::INFINITY)
    };
    let half = DEVIATIONS * (n * p * (1.0 - p)).sqrt();
    Estimate { value: at(n * p), low: at(n * p - half), high: at(n * p + half + 1.0) }
}
