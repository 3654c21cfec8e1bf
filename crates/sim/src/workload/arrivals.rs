//! When jobs arrive: laws of arrival as rates that change in steps, or as [gaps](super::gaps).

use bellwether_core::InputError;
use bellwether_des::Streams;
use bellwether_des::random::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gaps::{self, GapState};
use super::law::{Amount, chosen};

const HOUR_S: f64 = 3600.0;

/// A modulated law may change its state this often for each job; beyond it, jobs arrive as by a Poisson law.
const CHANGES_MAX: f64 = 1000.0;

/// A law of arrival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrivals {
    /// Always the same rate.
    Poisson {
        /// Jobs per hour; what the load asks for where nothing is said.
        #[serde(skip_serializing_if = "Option::is_none")]
        per_hour: Option<f64>,
    },
    /// The rate is that of a state; a state lasts for an exponential time, and each other is as likely to be next.
    Mmpp {
        /// The states; two or more.
        states: Vec<State>,
    },
    /// The rate follows the hour of the day. The trace begins at midnight.
    Diurnal {
        /// Jobs per hour in each of 24 hours.
        per_hour: Vec<f64>,
        /// Factors of seven days, of which the first is that on which the trace begins; 1 where nothing is said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        days: Vec<f64>,
    },
    /// The gaps between jobs are given; a state that changes from job to job decides which comes next, and which class
    /// of jobs.
    Gaps {
        /// Kinds of gaps, in seconds or with a unit: each gap of a kind is as likely as the others of it.
        gaps: Vec<Vec<Amount>>,
        /// The states.
        states: Vec<GapState>,
    },
}

/// A state of a modulated law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Jobs per hour.
    pub per_hour: f64,
    /// How long it lasts on average, in seconds or with a unit.
    pub stay: Amount,
}

impl Arrivals {
    /// The word for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Arrivals::Poisson { .. } => "poisson",
            Arrivals::Mmpp { .. } => "mmpp",
            Arrivals::Diurnal { .. } => "diurnal",
            Arrivals::Gaps { .. } => "gaps",
        }
    }

    /// Whether jobs of that many classes can arrive by it.
    pub(super) fn check(&self, classes: usize) -> Result<(), InputError> {
        let wrong = |what: &str| Err(InputError::new("arrivals", what));
        let rate = |rate: &f64| rate.is_finite() && (0.0..=1e12).contains(rate);
        match self {
            Arrivals::Poisson { per_hour } if !per_hour.iter().all(rate) => wrong("`per_hour` is not a rate"),
            Arrivals::Mmpp { states } if states.len() < 2 => wrong("a modulated law has two states or more"),
            Arrivals::Mmpp { states } if !states.iter().all(|state| rate(&state.per_hour)) => {
                wrong("`per_hour` of a state is not a rate")
            }
            Arrivals::Mmpp { states }
                if !states.iter().all(|state| state.stay.0 > 0.0 && state.stay.0 <= 1e12) =>
            {
                wrong("`stay` of a state is not a time")
            }
            Arrivals::Diurnal { per_hour, days }
                if per_hour.len() != 24 || !(days.is_empty() || days.len() == 7) =>
            {
                wrong("a day has 24 hours, and a week seven days")
            }
            Arrivals::Diurnal { per_hour, days } if !per_hour.iter().chain(days).all(rate) => {
                wrong("`per_hour` or `days` holds a value that is not a rate")
            }
            Arrivals::Gaps { gaps, states } => gaps::check(gaps, states, classes),
            _ => Ok(()),
        }
    }

    /// How many of all jobs are of each class, where the law of arrival says it.
    pub(super) fn class_shares(&self) -> Option<Vec<f64>> {
        match self {
            // Of states that say nothing, the shares of the classes are meant, which a caller knows.
            Arrivals::Gaps { states, .. } if states.iter().all(|state| !state.classes.is_empty()) => {
                Some(gaps::averaged(states, |state| &state.classes))
            }
            _ => None,
        }
    }

    /// Whether it says how many jobs arrive.
    pub(super) fn says_rates(&self) -> bool {
        !matches!(self, Arrivals::Poisson { per_hour: None })
    }

    /// Jobs per second on average; a rate that is not said counts as one per second.
    pub(super) fn mean_per_s(&self) -> f64 {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        match self {
            Arrivals::Poisson { per_hour } => per_hour.map_or(1.0, |rate| rate / HOUR_S),
            Arrivals::Mmpp { states } => {
                // Every state is as often the next, so the time in each is as its stay.
                let jobs: f64 = states.iter().map(|state| state.per_hour / HOUR_S * state.stay.0).sum();
                jobs / states.iter().map(|state| state.stay.0).sum::<f64>()
            }
            Arrivals::Gaps { gaps, states } => 1.0 / gaps::mean_s(gaps, states),
            Arrivals::Diurnal { per_hour, days } => {
                mean(per_hour) / HOUR_S * if days.is_empty() { 1.0 } else { mean(days) }
            }
        }
    }
}

/// Times of arrival, one after the other. Between two arrivals the integral of a rate is exponential with mean 1.
#[derive(Debug)]
pub(super) struct Clock<'a> {
    law: &'a Arrivals,
    scale: f64,
    now_s: f64,
    /// Where the present rate ends.
    until_s: f64,
    rate_per_s: f64,
    /// The state, or the hour since the beginning.
    index: u64,
    /// Whether a job has arrived, so that the next one's state follows from its state.
    began: bool,
    gaps: Stream,
    states: Stream,
    stays: Stream,
}

impl<'a> Clock<'a> {
    /// Begins at 0; all rates are multiplied by `scale`.
    pub(super) fn new(law: &'a Arrivals, scale: f64, streams: &Streams) -> Result<Clock<'a>, InputError> {
        if let Arrivals::Mmpp { states } = law {
            let mean_stay_s = states.iter().map(|state| state.stay.0).sum::<f64>() / states.len() as f64;
            if 1.0 / mean_stay_s > CHANGES_MAX * law.mean_per_s() * scale {
                let what = "the state changes more than a thousand times for each job; that is a Poisson law";
                return Err(InputError::new("arrivals", what));
            }
        }
        let [gaps, states, stays] = ["gaps", "states", "stays"].map(|name| streams.stream(name, 0));
        let mut clock = Clock {
            law,
            scale,
            now_s: 0.0,
            until_s: 0.0,
            rate_per_s: 0.0,
            index: 0,
            began: false,
            gaps,
            states,
            stays,
        };
        clock.begin();
        Ok(clock)
    }

    fn begin(&mut self) {
        if let Arrivals::Mmpp { states } = self.law {
            let stays: Vec<f64> = states.iter().map(|state| state.stay.0).collect();
            self.index = chosen(&stays, self.states.uniform()) as u64;
        }
        if let Arrivals::Gaps { states, .. } = self.law {
            let frequencies = gaps::frequencies(states).unwrap_or_default();
            self.index = chosen(&frequencies, self.states.uniform()) as u64;
        }
        self.enter();
    }

    /// Takes the rate of the present state or hour.
    fn enter(&mut self) {
        let (per_hour, until_s) = match self.law {
            Arrivals::Poisson { per_hour } => (per_hour.unwrap_or(HOUR_S), f64::INFINITY),
            Arrivals::Gaps { .. } => return,
            Arrivals::Mmpp { states } => {
                let state = states[self.index as usize];
                (state.per_hour, self.until_s + self.stays.exponential(state.stay.0))
            }
            Arrivals::Diurnal { per_hour, days } => {
                let day = days.get((self.index / 24 % 7) as usize).unwrap_or(&1.0);
                (per_hour[(self.index % 24) as usize] * day, (self.index + 1) as f64 * HOUR_S)
            }
        };
        self.rate_per_s = per_hour / HOUR_S * self.scale;
        self.until_s = until_s;
    }

    fn change(&mut self) {
        match self.law {
            Arrivals::Poisson { .. } | Arrivals::Gaps { .. } => {}
            Arrivals::Mmpp { states } => {
                // One of the others: this many places further on.
                let further = 1 + self.states.below(states.len() - 1) as u64;
                self.index = (self.index + further) % states.len() as u64;
            }
            Arrivals::Diurnal { .. } => self.index += 1,
        }
        self.enter();
    }

    /// The next arrival; infinite beyond `end_s`.
    pub(super) fn next(&mut self, end_s: f64) -> f64 {
        if let Arrivals::Gaps { gaps, states } = self.law {
            return self.next_by_gaps(gaps, states);
        }
        let mut left = self.gaps.exponential(1.0);
        loop {
            let here = self.rate_per_s * (self.until_s - self.now_s);
            if here >= left {
                self.now_s += left / self.rate_per_s;
                return self.now_s;
            }
            left -= here;
            self.now_s = self.until_s;
            if self.now_s > end_s.min(1e12) {
                return f64::INFINITY;
            }
            self.skip_weeks(&mut left);
            self.change();
        }
    }

    /// Each stream moves by one number per job.
    fn next_by_gaps(&mut self, gaps: &[Vec<Amount>], states: &'a [GapState]) -> f64 {
        if self.began {
            let next = &states[self.index as usize].next;
            self.index = chosen(next, self.states.uniform()) as u64;
        }
        self.began = true;
        let kind = chosen(&states[self.index as usize].gaps, self.stays.uniform());
        self.now_s += self.gaps.choice(&gaps[kind]).0 / self.scale;
        self.now_s
    }

    /// The odds of each class for the job that has just arrived, where the law of arrival says them.
    pub(super) fn classes(&self) -> Option<&'a [f64]> {
        match self.law {
            Arrivals::Gaps { states, .. } => {
                Some(states[self.index as usize].classes.as_slice()).filter(|odds| !odds.is_empty())
            }
            _ => None,
        }
    }

    /// Whole weeks without arrivals need no step for each hour.
    fn skip_weeks(&mut self, left: &mut f64) {
        if let Arrivals::Diurnal { .. } = self.law {
            let of_a_week = self.law.mean_per_s() * self.scale * 168.0 * HOUR_S;
            let weeks = (*left / of_a_week).floor().min(1e9);
            if weeks >= 1.0 {
                *left -= weeks * of_a_week;
                self.index += 168 * weeks as u64;
                self.now_s += 168.0 * HOUR_S * weeks;
            }
        }
    }
}
