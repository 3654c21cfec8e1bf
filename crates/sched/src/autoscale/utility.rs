//! What it is worth that a job ends after some time, and what workers cost.

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

/// The worth of an end, in any currency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Utility {
    /// Falls evenly from `value` at once to 0 at the horizon, and further below.
    Linear {
        /// Worth of an end at once.
        value: f64,
        /// Seconds after which it is worth nothing.
        horizon_s: f64,
    },
    /// Constant until the first end, then straight lines between the points, then a line to 0 where the slowest known pace
    /// would end: without that slope nothing would draw a late job towards its deadline.
    Step {
        /// Worth and seconds until which it holds; worth falls and seconds rise.
        points: Vec<(f64, f64)>,
    },
}

/// Worth and price in one currency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Economy {
    /// What an end is worth.
    pub utility: Utility,
    /// What a worker costs for a second.
    pub price_per_worker_s: f64,
}

impl Utility {
    /// Finds out whether it makes sense.
    ///
    /// # Errors
    ///
    /// Numbers that are not positive and finite, points that do not fall in worth and rise in time, none at all.
    pub fn check(&self) -> Result<(), InputError> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let good = match self {
            Utility::Linear { value, horizon_s } => positive(*value) && positive(*horizon_s),
            Utility::Step { points } => {
                let falls = |pair: &[(f64, f64)]| pair[0].0 > pair[1].0 && pair[0].1 < pair[1].1;
                !points.is_empty()
                    && points
                        .iter()
                        .all(|&(value, end_s)| value.is_finite() && value >= 0.0 && positive(end_s))
                    && points.windows(2).all(falls)
            }
        };
        if good {
            return Ok(());
        }
        Err(InputError::new("utility", format!("{self:?} is none"))
            .hint("give positive, falling worth and rising times"))
    }

    /// Worth of an end after `end_s` seconds, when the slowest known pace would end after `slowest_s`.
    ///
    /// ```
    /// use bellwether_sched::autoscale::Utility;
    /// assert_eq!(Utility::Linear { value: 10.0, horizon_s: 100.0 }.at(150.0, 0.0), -5.0);
    /// let step = Utility::Step { points: vec![(10.0, 60.0), (4.0, 120.0)] };
    /// let worth = |end_s| step.at(end_s, 160.0);
    /// assert_eq!((worth(0.0), worth(60.0), worth(90.0), worth(140.0), worth(200.0)), (10.0, 10.0, 7.0, 2.0, 0.0));
    /// ```
    pub fn at(&self, end_s: f64, slowest_s: f64) -> f64 {
        match self {
            Utility::Linear { value, horizon_s } => value * (1.0 - end_s / horizon_s),
            Utility::Step { points } => {
                let Some(&(first, mut from_s)) = points.first() else { return 0.0 };
                let mut from = first;
                for &(to, to_s) in points[1..].iter().chain([&(0.0, slowest_s)]) {
                    if end_s <= from_s {
                        return from;
                    }
                    if end_s < to_s {
                        return from + (to - from) * (end_s - from_s) / (to_s - from_s);
                    }
                    (from, from_s) = (to, to_s.max(from_s));
                }
                if end_s <= from_s { from } else { 0.0 }
            }
        }
    }
}
