//! What it is worth that a job ends after some time, and what workers cost.

use std::str::FromStr;

use bellwether_core::units::{Dollars, Seconds};
use bellwether_core::{InputError, ParseError};
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
    /// Constant until the first end, then straight lines between the points, then a line to 0 where the slowest known
    /// pace would end: without that slope nothing would draw a late job towards its deadline.
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

impl FromStr for Utility {
    type Err = ParseError;

    /// ```
    /// use bellwether_sched::autoscale::Utility;
    /// let line: Utility = "linear:$10,2h".parse().unwrap();
    /// assert_eq!(line, Utility::Linear { value: 10.0, horizon_s: 7200.0 });
    /// let steps: Utility = "step:$10@1h,$4@2h".parse().unwrap();
    /// assert_eq!(steps, Utility::Step { points: vec![(10.0, 3600.0), (4.0, 7200.0)] });
    /// assert!("step:$4@1h,$10@2h".parse::<Utility>().is_err() && "linear:$10".parse::<Utility>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Utility, ParseError> {
        let wrong = || {
            let expected = "linear:$10,2h (what an end at once is worth, and when it is worth nothing), \
                            or step:$10@1h,$4@2h (what an end by each time is worth)";
            ParseError::new("utility", text, expected)
        };
        let (form, rest) = text.split_once(':').ok_or_else(wrong)?;
        let worth = |text: &str| text.parse::<Dollars>().map(Dollars::get);
        let time = |text: &str| text.parse::<Seconds>().map(Seconds::get);
        let utility = match form {
            "linear" => {
                let (value, horizon) = rest.split_once(',').ok_or_else(wrong)?;
                Utility::Linear { value: worth(value)?, horizon_s: time(horizon)? }
            }
            "step" => {
                let point = |text: &str| {
                    let (value, end) = text.split_once('@').ok_or_else(wrong)?;
                    Ok((worth(value)?, time(end)?))
                };
                Utility::Step { points: rest.split(',').map(point).collect::<Result<_, ParseError>>()? }
            }
            _ => return Err(wrong()),
        };
        let expected = "worth that is positive and falls, and times that rise";
        utility.check().map_err(|_| ParseError::out_of_range("utility", text, expected))?;
        Ok(utility)
    }
}

impl Utility {
    /// Finds out whether it makes sense.
    ///
    /// # Errors
    ///
    /// Returns an error for numbers that are not positive and finite, points that do not fall in worth and rise in
    /// time, none at all.
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
