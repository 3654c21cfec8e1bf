//! What was decided, and why, as data that renders to a sentence.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Keep the size.
    Stay(Reason),
    /// Go to this many workers.
    Resize(u32, Reason),
}

impl Decision {
    /// Why.
    pub fn reason(&self) -> &Reason {
        match self {
            Decision::Stay(reason) | Decision::Resize(_, reason) => reason,
        }
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The size is not one that is allowed.
    OutOfBounds {
        /// Workers now.
        workers: u32,
        /// Fewest allowed.
        least: u32,
        /// Most allowed.
        most: u32,
    },
    /// Too few steps were measured.
    Measuring {
        /// The size.
        workers: u32,
        /// Steps so far.
        steps: u64,
        /// Steps that are needed.
        needed: u64,
    },
    /// Only this size is known, or too few to say how the job scales.
    TooFewSizes {
        /// Sizes that were measured.
        known: u32,
    },
    /// There is only one size that is allowed.
    OneSize,
    /// The last workers earned their place, so more may.
    StillRising {
        /// Workers before them.
        smaller: u32,
        /// Workers with them.
        larger: u32,
        /// What they gained.
        gain: f64,
        /// What they had to gain.
        needed: f64,
    },
    /// It is not sure that the smallest known size is not too large.
    LookingDown {
        /// The smallest known size.
        smallest: u32,
    },
    /// The larger size did not earn its workers and stays the best.
    Settled {
        /// Where it settles.
        smaller: u32,
        /// What was too large.
        larger: u32,
        /// What the difference gained.
        gain: f64,
        /// What it had to gain.
        needed: f64,
    },
    /// Every size that was tried earned its workers, up to the most.
    AtMost {
        /// The most workers.
        most: u32,
    },
    /// A fitted curve says so.
    Curve {
        /// The largest size that still pays by the curve.
        target: u32,
    },
    /// No money was named to weigh.
    NoEconomy,
    /// A size that is better beyond doubt.
    Better {
        /// Workers then.
        target: u32,
        /// Part of the cost still to come that is saved.
        gain: f64,
        /// Standard deviation of that.
        deviation: f64,
    },
    /// A size that may be better, or tells about others that may.
    WorthTrying {
        /// Workers then.
        target: u32,
        /// Part of the cost still to come that is saved on average, the trial paid.
        gain: f64,
    },
    /// No other size promises enough.
    NothingBetter {
        /// The best of the others.
        target: u32,
        /// Part of the cost still to come that it would save on average; negative where it would add.
        gain: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::OutOfBounds { workers, least, most } => {
                write!(f, "{workers} workers are outside the allowed {least} to {most}")
            }
            Reason::Measuring { workers, steps, needed } => {
                write!(f, "{steps} of {needed} steps are measured with {workers} workers")
            }
            Reason::TooFewSizes { known: 1 } => write!(f, "only one size is known so far"),
            Reason::TooFewSizes { known } => write!(f, "only {known} sizes are known so far"),
            Reason::OneSize => write!(f, "no other size is allowed"),
            Reason::StillRising { smaller, larger, gain, needed } => {
                let (gain, needed) = (figure(gain), figure(needed));
                write!(
                    f,
                    "from {smaller} to {larger} workers gained {gain}, more than the {needed} asked for"
                )
            }
            Reason::LookingDown { smallest } => {
                write!(f, "fewer than {smallest} workers may be enough")
            }
            Reason::Settled { smaller, larger, gain, needed } => {
                let (gain, needed) = (figure(gain), figure(needed));
                write!(f, "{smaller} workers: {larger} gain {gain}, not more than the {needed} asked for")
            }
            Reason::AtMost { most } => {
                write!(f, "all sizes up to the most, {most} workers, earned their place")
            }
            Reason::Curve { target } => {
                write!(f, "by the fitted curve {target} workers are the most that pay")
            }
            Reason::NoEconomy => write!(f, "neither utility nor price is known, so nothing can be weighed"),
            Reason::Better { target, gain, deviation } => {
                let (gain, deviation) = (100.0 * gain, 100.0 * deviation);
                write!(
                    f,
                    "{target} workers save {gain:.1} % of the cost to come, with a deviation of {deviation:.1} %"
                )
            }
            Reason::WorthTrying { target, gain } => {
                write!(
                    f,
                    "trying {target} workers saves {:.1} % of the cost to come on average",
                    100.0 * gain
                )
            }
            Reason::NothingBetter { target, gain } if gain > 0.0 => {
                let gain = 100.0 * gain;
                write!(
                    f,
                    "no other size is surely better; {target} workers might save {gain:.1} % of the cost to come"
                )
            }
            Reason::NothingBetter { target, gain } => {
                write!(f, "even {target} workers would add {:.1} % to the cost to come", -100.0 * gain)
            }
        }
    }
}

/// Three decimals, or enough to show a small amount of money.
fn figure(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1e-2 { format!("{value:.3}") } else { format!("{value:.2e}") }
}
