//! Why a trial goes on, waits or ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A trial's place among those that reached its rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Length of the rung.
    pub at: u64,
    /// Its place, from 1.
    pub place: u64,
    /// How many reached the rung.
    pub of: u64,
    /// How many of them go on.
    pub kept: u64,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Standing { at, place, of, kept } = self;
        write!(f, "place {place} of {of} at {at}, of which {kept} go on")
    }
}

/// Why a trial goes on, waits or ends. It renders to the end of a sentence about the trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Reason {
    /// It is among the best of its rung.
    Promoted {
        /// Its place.
        standing: Standing,
    },
    /// It is not, for now.
    Waits {
        /// Its place.
        standing: Standing,
    },
    /// Its rung is full, or no more trials come, and it is not among the best.
    Outdone {
        /// Its place.
        standing: Standing,
    },
    /// Its best cost is above the median of what the others had on average by then.
    BelowMedian {
        /// The length.
        at: u64,
        /// Its best figure until then.
        best: f64,
        /// The median of the others' means until then.
        median: f64,
        /// How many others were compared.
        others: u64,
    },
    /// Nothing more is to be compared with it.
    NoneLeft,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Promoted { standing } | Reason::Waits { standing } | Reason::Outdone { standing } => {
                standing.fmt(f)
            }
            Reason::BelowMedian { at, best, median, others } => write!(
                f,
                "its best of {best:.4} by {at} is worse than the median {median:.4} of {others} others"
            ),
            Reason::NoneLeft => f.write_str("nothing is left to compare it with"),
        }
    }
}
