//! Jobs that end before their nominal work is done: the law that a simulation assumes, and the one that is learnt.
//!
//! # Model
//!
//! ```text
//! F(x) = q B(x; a, b)                               the chance to have ended at the part x < 1 (`EarlyTermination`)
//! S(x) = product over ends e <= x of (1 - 1/n(e))   the chance to do more than the part x (`Ends`)
//! m(x) = (integral of S from x to 1) / S(x)         the mean part that remains at x
//! ```
//!
//! | symbol  | meaning                                                            | unit |
//! |---------|--------------------------------------------------------------------|------|
//! | x       | part of its nominal work that a job has done                       | 1    |
//! | q       | chance that a job ends early                                       | 1    |
//! | B, a, b | beta distribution of the part at which it does, and its parameters | 1    |
//! | n(e)    | jobs that did the part e or more, and one assumed to do the whole  | 1    |
//!
//! # Source
//!
//! E. L. Kaplan, P. Meier, Nonparametric estimation from incomplete observations, Journal of the American Statistical
//! Association 53, 1958. Early ends of training jobs: Lin, Paolieri, Chou, Golubchik, MASCOTS 2018 (abstract).
//!
//! # Assumes
//!
//! Jobs of one kind end independently of each other by one law. A job that failed or still runs would have gone on.
//!
//! # Valid
//!
//! For parts that jobs have come to. The assumed job keeps a few early ends from telling that no job ever goes on; its
//! weight vanishes with the number of ends.
//!
//! # Checked by
//!
//! Ends of a law that the estimate does not know:
//! `an_estimate_comes_close_to_the_law_although_half_of_the_jobs_still_run` and
//! `an_interval_holds_as_many_ends_as_it_says`.

use std::str::FromStr;

use bellwether_core::ParseError;
use bellwether_des::Stream;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF};
use statrs::function::beta::beta_reg;

/// Ends that are remembered of a kind of job: more tell hardly more, and old ones less.
const REMEMBERED: usize = 512;

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

    /// The part of its nominal work that a job does, drawn from two numbers of `stream`.
    pub fn fraction(self, stream: &mut Stream) -> f64 {
        let (ends_early, luck) = (stream.uniform() < self.probability, stream.uniform());
        if ends_early { self.law.inverse_cdf(luck).clamp(1e-9, 1.0) } else { 1.0 }
    }

    /// The mean part that remains of a job that has done the part `done`.
    ///
    /// With q the probability and F the law: of those who are still there, `q (1 - F(done))` end early, `1 - q` do not.
    /// What the former still do is the integral of `1 - F` from `done` to 1.
    ///
    /// ```
    /// use bellwether_model::early_end::EarlyTermination;
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
    /// use bellwether_model::early_end::EarlyTermination;
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

/// How a job left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It was done, with all of its work or with a part of it.
    Ended,
    /// It failed, or was lost: it would have gone on.
    Lost,
}

/// How the jobs of one kind ended so far, as parts of their nominal work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ends {
    /// Those that were done, in the order in which they left.
    ended: Vec<f64>,
    /// Those that were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<f64>,
    /// Those that still ran when the last one left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    running: Vec<f64>,
    /// The chance that a job is still there when it has done a part of its work: from each of these parts on, this one.
    #[serde(skip)]
    survival: Vec<(f64, f64)>,
}

impl Ends {
    /// A job left when it had done the part `done`, while others of its kind have done the parts `running`.
    ///
    /// ```
    /// use bellwether_model::early_end::{Departure, Ends};
    /// let mut ends = Ends::default();
    /// assert_eq!(ends.mean_rest(0.25), 0.75);
    /// for _ in 0..4 {
    ///     ends.observe(0.5, Departure::Ended, &[]);
    ///     ends.observe(1.0, Departure::Ended, &[]);
    /// }
    /// // One more is assumed to do all of its work: 4 of 9 end halfway.
    /// assert!((ends.mean_rest(0.0) - (0.5 + 0.5 * 5.0 / 9.0)).abs() < 1e-12);
    /// assert!((ends.mean_rest(0.6) - 0.4).abs() < 1e-12);
    /// ```
    pub fn observe(&mut self, done: f64, how: Departure, running: &[f64]) {
        let list = match how {
            Departure::Ended => &mut self.ended,
            Departure::Lost => &mut self.lost,
        };
        if list.len() >= REMEMBERED {
            list.remove(0);
        }
        list.push(done.clamp(0.0, 1.0));
        self.running = running.iter().take(REMEMBERED).copied().collect();
        self.estimate();
    }

    /// Jobs that were done when they had done these parts, while others of their kind have done the parts `running`.
    pub fn of(ended: &[f64], running: &[f64]) -> Ends {
        let running = running.iter().take(REMEMBERED).copied().collect();
        let ended = ended.iter().take(REMEMBERED).map(|part| part.clamp(0.0, 1.0)).collect();
        Ends { ended, running, ..Ends::default() }.restored()
    }

    /// Jobs that were done before all of their work was, and all that were done.
    pub fn early(&self) -> (usize, usize) {
        (self.ended.iter().filter(|part| **part < 1.0).count(), self.ended.len())
    }

    /// The same with what follows from it, which is not written down.
    #[must_use]
    pub fn restored(mut self) -> Ends {
        self.estimate();
        self
    }

    /// At each part at which jobs ended, the chance to go on is that of before times the share of those still there
    /// that did not end. One job more is assumed to do all of its work, so that a few early ends do not tell that no
    /// job ever goes on.
    fn estimate(&mut self) {
        let mut seen: Vec<(f64, bool)> = self.ended.iter().map(|part| (*part, true)).collect();
        seen.extend(self.lost.iter().chain(&self.running).map(|part| (*part, false)));
        // Where a job ends and another is seen to go on at the same part, the other was still there.
        seen.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
        let (mut there, mut chance) = (seen.len() as f64 + 1.0, 1.0);
        self.survival.clear();
        for (part, has_ended) in seen {
            if has_ended && part < 1.0 {
                chance *= 1.0 - 1.0 / there;
                match self.survival.last_mut() {
                    Some(last) if last.0 == part => last.1 = chance,
                    _ => self.survival.push((part, chance)),
                }
            }
            there -= 1.0;
        }
    }

    /// The chance that a job does more than the part `done`.
    fn survival(&self, done: f64) -> f64 {
        let after = self.survival.partition_point(|(part, _)| *part <= done);
        after.checked_sub(1).map_or(1.0, |place| self.survival[place].1)
    }

    /// The mean part that remains of a job that has done the part `done` and goes on.
    pub fn mean_rest(&self, done: f64) -> f64 {
        let done = done.clamp(0.0, 1.0);
        let (mut from, mut chance, mut area) = (done, self.survival(done), 0.0);
        let still_there = chance;
        for (part, next) in self.survival.iter().filter(|(part, _)| *part > done) {
            area += (part - from) * chance;
            (from, chance) = (*part, *next);
        }
        (area + (1.0 - from) * chance) / still_there
    }

    /// The part that remains of a job that has done the part `done` and goes on, such that it does as much or less with
    /// this probability.
    ///
    /// ```
    /// use bellwether_model::early_end::{Departure, Ends};
    /// let mut ends = Ends::default();
    /// (1..=99).for_each(|percent| ends.observe(f64::from(percent) / 100.0, Departure::Ended, &[]));
    /// assert!((ends.rest(0.0, 0.1) - 0.1).abs() < 1e-9 && (ends.rest(0.5, 0.5) - 0.25).abs() < 0.011);
    /// assert_eq!(Ends::default().rest(0.25, 0.1), 0.75);
    /// ```
    pub fn rest(&self, done: f64, probability: f64) -> f64 {
        let done = done.clamp(0.0, 1.0);
        let gone = self.survival(done) * (1.0 - probability);
        let end = self.survival.iter().find(|(part, chance)| *part > done && *chance <= gone + 1e-12);
        end.map_or(1.0, |(part, _)| *part) - done
    }
}
