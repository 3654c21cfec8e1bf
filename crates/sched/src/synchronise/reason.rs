//! Why workers wait for each other, or no longer do, as data that renders to a sentence.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The job file names the synchronous steps.
    Given {
        /// How many.
        steps: u64,
    },
    /// An earlier search found the share of synchronous steps.
    Tuned {
        /// The share, 0…1.
        fraction: f64,
        /// Steps in it.
        steps: u64,
    },
    /// The loss falls slowly.
    Slowed {
        /// Relative improvement over the newest span of steps.
        last: f64,
        /// The largest of any span before.
        fastest: f64,
    },
    /// No more than half of the steps are synchronous where nothing better is known.
    Half {
        /// Half of the steps.
        steps: u64,
    },
    /// A worker is slow.
    Straggler {
        /// Which.
        worker: u32,
        /// Its mean pace; 1 is that of the median worker.
        pace: f64,
        /// Windows for which it has been slow.
        windows: u64,
    },
    /// The others are faster without a slow worker.
    Faster {
        /// Which is slow.
        worker: u32,
        /// Its mean pace; 1 is that of the median worker.
        pace: f64,
        /// Windows for which it has been slow.
        windows: u64,
        /// Time of computing a step when all that are evicted now are gone, relative to now.
        time: f64,
    },
    /// No worker has been slow for a while.
    Recovered {
        /// For this many windows.
        windows: u64,
        /// Synchronous steps that are still to be done.
        remaining: u64,
    },
    /// No worker waits for the slow ones any more.
    Asynchronous,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Given { steps } => write!(f, "the job file has {steps} synchronous steps"),
            Reason::Tuned { fraction, steps } => {
                write!(
                    f,
                    "{:.3} % of the steps, which are {steps}, are synchronous, as `tune sync` found",
                    fraction * 100.0
                )
            }
            Reason::Slowed { last, fastest } => write!(
                f,
                "the loss fell by {:.2} % over the last twentieth of the steps, and by {:.2} % when it fell fastest",
                last * 100.0,
                fastest * 100.0
            ),
            Reason::Half { steps } => {
                write!(f, "half of the steps, which are {steps}, are synchronous at most")
            }
            Reason::Straggler { worker, pace, windows } => {
                write!(
                    f,
                    "worker {worker} computes at {pace:.2} of the median pace for {windows} windows: no worker waits for it"
                )
            }
            Reason::Faster { worker, pace, windows, time } => write!(
                f,
                "worker {worker} computes at {pace:.2} of the median pace for {windows} windows, and a step takes \
                 {time:.2} of its time without those that are slow"
            ),
            Reason::Recovered { windows, remaining } => write!(
                f,
                "no worker has been slow for {windows} windows, and {remaining} synchronous steps are still to be done"
            ),
            Reason::Asynchronous => {
                f.write_str("the synchronous steps are done, and no worker waits for a slow one any more")
            }
        }
    }
}
