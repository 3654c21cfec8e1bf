//! What a policy is told of the work that remains, and jobs that end before their nominal work is done.

use std::str::FromStr;

use bellwether_core::cluster::{JobId, JobView};
use bellwether_des::Streams;

use super::{Entry, Scenario};

/// What is known of the work that remains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Knowledge {
    /// What is true.
    Exact,
    /// What its author declared: that it may end early is hidden.
    Nominal,
    /// The mean over how it may end early, given that it has not yet.
    Expected,
    /// The truth times a factor of its own: log-normal with median 1, and this standard deviation of the logarithm.
    Estimated(f64),
    /// Nothing.
    Unknown,
}

/// Some jobs end before their nominal work is done: with this probability at a uniform fraction of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyTermination {
    /// Probability that a job ends early.
    pub probability: f64,
}

impl EarlyTermination {
    /// The part of its nominal work that the job does.
    pub(super) fn fraction(self, streams: &Streams, id: JobId) -> f64 {
        let mut stream = streams.stream("early termination", u64::from(id.0));
        let (ends_early, fraction) = (stream.uniform() < self.probability, stream.uniform());
        if ends_early { fraction.max(1e-9) } else { 1.0 }
    }

    /// The mean part that remains of a job that has done the part `done`.
    ///
    /// With q the probability: of those who are still there, `q (1 - done)` end early, on average halfway through the
    /// rest, and `1 - q` do not.
    ///
    /// ```
    /// use bellwether_sim::world::EarlyTermination;
    /// let law = EarlyTermination { probability: 0.5 };
    /// assert_eq!(law.mean_rest(0.0), 0.75);
    /// // Halfway a quarter against a half are left: one third of the cases ends after 0.25, the others after 0.5.
    /// assert!((law.mean_rest(0.5) - (0.25 / 3.0 + 0.5 * 2.0 / 3.0)).abs() < 1e-12);
    /// ```
    pub fn mean_rest(self, done: f64) -> f64 {
        let rest = (1.0 - done).max(0.0);
        let early = self.probability * rest;
        let all = early + 1.0 - self.probability;
        if all <= 0.0 { 0.0 } else { (early * rest / 2.0 + (1.0 - self.probability) * rest) / all }
    }
}

impl Knowledge {
    /// What is said of a job that has just arrived.
    pub(super) fn of_new(
        self,
        work: f64,
        nominal: f64,
        law: Option<EarlyTermination>,
        streams: &Streams,
        id: JobId,
    ) -> Option<f64> {
        match self {
            Knowledge::Exact => Some(work),
            Knowledge::Nominal => Some(nominal),
            Knowledge::Expected => Some(nominal * law.map_or(1.0, |law| law.mean_rest(0.0))),
            Knowledge::Estimated(deviation) => {
                let mut stream = streams.stream("estimate of work", u64::from(id.0));
                Some(work * libm::exp(stream.normal(0.0, deviation)))
            }
            Knowledge::Unknown => None,
        }
    }

    /// Says anew what remains where that is known better after some progress.
    pub(super) fn renew(self, seen: &mut JobView, work: f64, entry: &Entry, scenario: &Scenario) {
        match (self, scenario.early_termination) {
            // Free of the rounding that subtraction piles up.
            (Knowledge::Exact, _) => seen.remaining = Some((work - seen.done).max(0.0)),
            (Knowledge::Expected, Some(law)) => {
                seen.remaining = Some(entry.work * law.mean_rest(seen.done / entry.work));
            }
            _ => {}
        }
    }
}

impl FromStr for Knowledge {
    type Err = String;

    /// ```
    /// use bellwether_sim::world::Knowledge;
    /// assert_eq!("estimated:0.3".parse(), Ok(Knowledge::Estimated(0.3)));
    /// assert_eq!("estimated".parse(), Ok(Knowledge::Estimated(0.5)));
    /// assert!("estimated:-1".parse::<Knowledge>().is_err());
    /// assert!("all".parse::<Knowledge>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
        match (word, value) {
            ("exact", None) => Ok(Knowledge::Exact),
            ("nominal", None) => Ok(Knowledge::Nominal),
            ("expected", None) => Ok(Knowledge::Expected),
            ("unknown", None) => Ok(Knowledge::Unknown),
            ("estimated", None) => Ok(Knowledge::Estimated(0.5)),
            ("estimated", Some(value)) => match value.parse() {
                Ok(deviation) if (0.0..=5.0).contains(&deviation) => Ok(Knowledge::Estimated(deviation)),
                _ => Err(format!("`{value}` is no deviation of a logarithm; write a number from 0 to 5")),
            },
            _ => Err(format!(
                "`{text}` is no knowledge of remaining work; write exact, nominal, expected, estimated, estimated:0.3 \
                 or unknown"
            )),
        }
    }
}
