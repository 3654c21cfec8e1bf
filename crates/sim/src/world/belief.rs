//! What a policy is told of the work that remains, and jobs that end before their nominal work is done.

use std::str::FromStr;

use bellwether_core::ParseError;
use bellwether_core::cluster::{JobId, JobView};
use bellwether_des::Streams;
use statrs::distribution::{Beta, ContinuousCDF};
use statrs::function::beta::beta_reg;

use super::Scenario;

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

/// Some jobs end before their nominal work is done: with this probability at a part of it that follows a beta law
/// (uniform where both of its parameters are 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyTermination {
    probability: f64,
    law: Beta,
}

impl EarlyTermination {
    /// Ends a job early with `probability`, at a part of its work by a beta law with parameters `a` and `b`.
    ///
    /// # Errors
    ///
    /// Returns an error for an invalid probability, or parameters outside of 0.01 to 1000.
    pub fn new(probability: f64, a: f64, b: f64) -> Result<EarlyTermination, ParseError> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(ParseError::out_of_range("probability", probability, "a number from 0 to 1"));
        }
        let sound = |parameter: f64| (0.01..=1000.0).contains(&parameter);
        let law = Beta::new(a, b).ok().filter(|_| sound(a) && sound(b));
        let wrong = || {
            ParseError::out_of_range(
                "parameters of a beta law",
                format!("{a},{b}"),
                "numbers from 0.01 to 1000",
            )
        };
        let law = law.ok_or_else(wrong)?;
        Ok(EarlyTermination { probability, law })
    }

    /// The part of its nominal work that the job does.
    pub(super) fn fraction(self, streams: &Streams, id: JobId) -> f64 {
        let mut stream = streams.stream("early termination", u64::from(id.0));
        let (ends_early, luck) = (stream.uniform() < self.probability, stream.uniform());
        if ends_early { self.law.inverse_cdf(luck).clamp(1e-9, 1.0) } else { 1.0 }
    }

    /// The mean part that remains of a job that has done the part `done`.
    ///
    /// With q the probability and F the law: of those who are still there, `q (1 - F(done))` end early, `1 - q` do not.
    /// What the former still do is the integral of `1 - F` from `done` to 1.
    ///
    /// ```
    /// use bellwether_sim::world::EarlyTermination;
    /// let law = EarlyTermination::new(0.5, 1.0, 1.0).unwrap();
    /// assert!((law.mean_rest(0.0) - 0.75).abs() < 1e-12);
    /// // Halfway a quarter against a half are left: one third of the cases ends after 0.25, the others after 0.5.
    /// assert!((law.mean_rest(0.5) - (0.25 / 3.0 + 0.5 * 2.0 / 3.0)).abs() < 1e-12);
    /// ```
    pub fn mean_rest(self, done: f64) -> f64 {
        let done = done.clamp(0.0, 1.0);
        let (a, b) = (self.law.shape_a(), self.law.shape_b());
        let beyond = |a: f64| if done > 0.0 { 1.0 - beta_reg(a, b, done) } else { 1.0 };
        // The integral of 1 - F, by parts.
        let early_rest = (a / (a + b) * beyond(a + 1.0) - done * beyond(a)).max(0.0);
        let still_there = self.probability * beyond(a) + 1.0 - self.probability;
        if still_there <= 0.0 {
            return 0.0;
        }
        (self.probability * early_rest + (1.0 - self.probability) * (1.0 - done)) / still_there
    }
}

impl FromStr for EarlyTermination {
    type Err = ParseError;

    /// A probability, or one with the parameters of a beta law: `0.3` or `0.3:2,5`.
    ///
    /// ```
    /// use bellwether_sim::world::EarlyTermination;
    /// assert_eq!("0.3".parse(), EarlyTermination::new(0.3, 1.0, 1.0));
    /// assert_eq!("0.3:2,5".parse(), EarlyTermination::new(0.3, 2.0, 5.0));
    /// assert!("1.3".parse::<EarlyTermination>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong =
            || ParseError::new("law of early ends", text, "a probability: 0.3, or 0.3:2,5 with a beta law");
        let (probability, law) = text.split_once(':').unwrap_or((text, "1,1"));
        let (a, b) = law.split_once(',').ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse().map_err(|_| wrong());
        EarlyTermination::new(number(probability)?, number(a)?, number(b)?)
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

    /// Updates what remains where that is known better after some progress.
    pub(super) fn renew(self, seen: &mut JobView, work: f64, nominal: f64, scenario: &Scenario) {
        match (self, scenario.early_termination) {
            // Free of the rounding that subtraction piles up.
            (Knowledge::Exact, _) => seen.remaining = Some((work - seen.done).max(0.0)),
            (Knowledge::Expected, Some(law)) => {
                seen.remaining = Some(nominal * law.mean_rest(seen.done / nominal.max(f64::MIN_POSITIVE)));
            }
            _ => {}
        }
    }
}

impl FromStr for Knowledge {
    type Err = ParseError;

    /// ```
    /// use bellwether_sim::world::Knowledge;
    /// assert_eq!("estimated:0.3".parse(), Ok(Knowledge::Estimated(0.3)));
    /// assert_eq!("estimated".parse(), Ok(Knowledge::Estimated(0.5)));
    /// assert!("estimated:-1".parse::<Knowledge>().is_err());
    /// assert!("all".parse::<Knowledge>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
        match (word, value) {
            ("exact", None) => Ok(Knowledge::Exact),
            ("nominal", None) => Ok(Knowledge::Nominal),
            ("expected", None) => Ok(Knowledge::Expected),
            ("unknown", None) => Ok(Knowledge::Unknown),
            ("estimated", None) => Ok(Knowledge::Estimated(0.5)),
            ("estimated", Some(value)) => match value.parse() {
                Ok(deviation) if (0.0..=5.0).contains(&deviation) => Ok(Knowledge::Estimated(deviation)),
                _ => Err(ParseError::out_of_range("deviation of a logarithm", value, "a number from 0 to 5")),
            },
            _ => {
                let expected = "exact, nominal, expected, estimated, estimated:0.3 or unknown";
                Err(ParseError::new("knowledge of remaining work", text, expected))
            }
        }
    }
}
