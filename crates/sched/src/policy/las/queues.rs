//! When a job changes its queue.

use bellwether_core::ParseError;
use bellwether_core::cluster::JobView;
use serde::{Deserialize, Serialize};

use crate::options::Options;

/// What thresholds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attained {
    /// Seconds on devices.
    Time,
    /// Seconds times devices.
    Service,
}

/// The thresholds between queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    attained: Attained,
    thresholds: Vec<f64>,
    promote: f64,
}

impl Queues {
    /// From the options `threshold...` and `promote`.
    ///
    /// # Errors
    ///
    /// Same errors as [`new`](Queues::new).
    pub fn read(attained: Attained, options: &Options) -> Result<Queues, ParseError> {
        Queues::new(attained, options.all("threshold..."), options.get("promote"))
    }

    /// Queues between these thresholds; a job that has waited `promote` times as long as it had run goes back to the
    /// first, unless that is 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the thresholds are not positive and ascending or are too many, or the factor is negative.
    pub fn new(attained: Attained, thresholds: Vec<f64>, promote: f64) -> Result<Queues, ParseError> {
        let below = std::iter::once(&0.0).chain(&thresholds);
        if let Some((_, wrong)) = below.zip(&thresholds).find(|(below, threshold)| *threshold <= *below) {
            let expected = "a number above 0 and above the threshold before";
            return Err(ParseError::out_of_range("threshold", wrong, expected));
        }
        if thresholds.len() > 1000 {
            return Err(ParseError::out_of_range("number of thresholds", thresholds.len(), "at most 1000"));
        }
        if promote < 0.0 {
            return Err(ParseError::out_of_range("option promote", promote, "zero or more"));
        }
        Ok(Queues { attained, thresholds, promote })
    }

    /// Number of queues.
    pub fn count(&self) -> usize {
        self.thresholds.len() + 1
    }

    /// The queue that a job enters that comes, perhaps after it has run elsewhere.
    pub fn entry(&self, seen: &JobView, now_s: f64) -> usize {
        let (devices, executed_s) = (seen.job.asked(), seen.executed_s(now_s));
        let reached =
            |&queue: &usize| self.limit_s(queue, devices).is_some_and(|limit_s| limit_s <= executed_s);
        (0..self.thresholds.len()).take_while(reached).count()
    }

    /// Seconds of run time after which a job leaves this queue; `None` for the last.
    fn limit_s(&self, queue: usize, devices: u32) -> Option<f64> {
        let threshold = *self.thresholds.get(queue)?;
        Some(match self.attained {
            Attained::Time => threshold,
            Attained::Service => (threshold / f64::from(devices)).ceil(),
        })
    }

    /// When a job changes its queue if it `runs` (or waits) from now on, as it did or for the first time. The first
    /// `forgiven_s` seconds that it executed do not count.
    pub fn due_s(
        &self,
        queue: usize,
        forgiven_s: f64,
        seen: &JobView,
        runs: bool,
        now_s: f64,
    ) -> Option<f64> {
        let (since_s, executed_s) = match seen.is_running() == runs {
            true => (seen.allocated_s, seen.executed_s),
            false => (now_s, seen.executed_s(now_s)),
        };
        if runs {
            let limit_s = self.limit_s(queue, seen.job.asked())?;
            Some(since_s + (forgiven_s + limit_s - executed_s))
        } else {
            (self.promote > 0.0 && queue > 0).then_some(since_s + self.promote * (executed_s - forgiven_s))
        }
    }
}
