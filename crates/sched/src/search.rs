//! A search over jobs: which values the next trial has, which trials go on, and which get more workers.
//!
//! Everything here is a plain value and a pure function of it. What is drawn at random follows from (seed, number of
//! the trial, key), so that the same facts give the same decisions, in a replay too.
//!
//! ```text
//!  facts (a trial reported, finished, failed) ──► Search ──► next() ──► Decision ──► apply() ──► …
//! ```
//!
//! - samplers: [`grid`], [`sobol`], [`tpe`], and independent draws;
//! - trial schedulers: [`rungs`] (successive halving, asynchronous or in brackets) and [`median`];
//! - [`rehearsal`]: the whole search on known learning curves, without training anything.

use std::collections::BTreeMap;

use bellwether_core::job::Metric;
use bellwether_core::sweep::{Ladder, Sample, Sampler, SamplerKind, Space, TrialScheduler};
use serde::{Deserialize, Serialize};

mod draw;
pub mod grid;
pub mod median;
mod reason;
pub mod rehearsal;
pub mod rungs;
mod scale;
pub mod sobol;
pub mod tpe;

pub use reason::Reason;

use draw::Draws;

/// What a search follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The varied keys.
    pub space: Space,
    /// How their values are chosen.
    pub sampler: Sampler,
    /// Which trials go on.
    pub scheduler: TrialScheduler,
    /// The lengths at which that is decided; absent where every trial is trained to its end.
    pub ladder: Option<Ladder>,
    /// What is compared.
    pub metric: Metric,
    /// Most trials that begin; `None` where something else ends the search.
    pub trials: Option<u64>,
    /// Trials that train at the same time, at least 1.
    pub concurrent: u32,
}

/// A trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its number, from 0.
    pub number: u64,
    /// Its values.
    pub sample: Sample,
    /// The length up to which it may train; `None` for its end.
    pub to: Option<u64>,
    /// The metric by the length at which it was evaluated.
    pub reports: BTreeMap<u64, f64>,
    /// What becomes of it.
    pub state: TrialState,
}

/// What becomes of a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialState {
    /// It trains, or is about to.
    Training,
    /// It waits at the length that it reached.
    Paused,
    /// It was trained to its end.
    Finished,
    /// The trial scheduler ended it.
    Stopped(Reason),
    /// It could not be trained, or its figures were not finite.
    Failed(String),
}

impl TrialState {
    /// Whether nothing more happens to it.
    pub fn has_ended(&self) -> bool {
        !matches!(self, TrialState::Training | TrialState::Paused)
    }
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// A trial begins.
    Begin {
        /// Its number: one more than that of the trial before.
        trial: u64,
        /// Its values.
        sample: Sample,
        /// Length of its first rung; `None` for its end.
        to: Option<u64>,
    },
    /// A trial goes on to its next rung.
    Continue {
        /// Its number.
        trial: u64,
        /// Length of that rung.
        to: u64,
        /// Why.
        reason: Reason,
    },
    /// A trial waits at its rung, with a checkpoint.
    Pause {
        /// Its number.
        trial: u64,
        /// Why.
        reason: Reason,
    },
    /// A trial ends before its last rung.
    Stop {
        /// Its number.
        trial: u64,
        /// Why.
        reason: Reason,
    },
}

/// A search and all that is known of its trials.
#[derive(Debug, Clone)]
pub struct Search {
    plan: Plan,
    /// All samples of a grid, in order.
    grid: Vec<Sample>,
    /// The trials by number.
    pub trials: Vec<Trial>,
}

impl Search {
    /// A search without trials.
    pub fn new(plan: Plan) -> Search {
        let grid = match plan.sampler.kind {
            SamplerKind::Grid => grid::all(&plan.space),
            _ => Vec::new(),
        };
        Search { plan, grid, trials: Vec::new() }
    }

    /// What it follows.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Lets more trials begin, or fewer at the same time.
    pub fn limit(&mut self, trials: Option<u64>, concurrent: u32) {
        (self.plan.trials, self.plan.concurrent) = (trials, concurrent);
    }

    /// The number of trials that can begin, where it is known.
    pub fn most_trials(&self) -> Option<u64> {
        let of_grid = (self.plan.sampler.kind == SamplerKind::Grid).then_some(self.grid.len() as u64);
        [of_grid, self.plan.trials].into_iter().flatten().min()
    }

    /// Whether another trial can begin.
    pub fn can_begin(&self) -> bool {
        self.most_trials().is_none_or(|most| (self.trials.len() as u64) < most)
    }

    /// The values of the next trial; `None` when there are no more.
    pub fn suggest(&self) -> Option<Sample> {
        if !self.can_begin() {
            return None;
        }
        let number = self.trials.len() as u64;
        let Plan { space, sampler, .. } = &self.plan;
        match sampler.kind {
            SamplerKind::Grid => self.grid.get(self.trials.len()).cloned(),
            SamplerKind::Random => Some(scale::sample(space, |parameter, _| {
                Draws::new(sampler.seed, number, parameter).uniform()
            })),
            SamplerKind::Sobol => {
                Some(scale::sample(space, |parameter, _| sobol::shifted(number, parameter, sampler.seed)))
            }
            SamplerKind::Tpe => Some(tpe::suggest(self, number)),
        }
    }

    /// The cost of a trial by the longest training at which it was evaluated, and that length.
    pub fn latest(&self, trial: &Trial) -> Option<(u64, f64)> {
        let (at, figure) = trial.reports.last_key_value()?;
        Some((*at, self.plan.metric.cost(*figure)))
    }

    /// Trials that train.
    pub fn training(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.state == TrialState::Training)
    }

    /// What is to be done next; `None` when only facts can tell.
    pub fn next(&self) -> Option<Decision> {
        if let Some(decision) = self.training().find_map(|trial| self.at_rung(trial)) {
            return Some(decision);
        }
        if matches!(self.plan.scheduler, TrialScheduler::Median(_))
            && let Some(decision) = self.training().find_map(|trial| median::judge(self, trial))
        {
            return Some(decision);
        }
        if let Some(decision) = rungs::halved(self) {
            return Some(decision);
        }
        if self.training().count() < self.plan.concurrent as usize
            && let Some(decision) = rungs::promoted(self).or_else(|| self.begin())
        {
            return Some(decision);
        }
        // With nothing under way and nothing to begin, no rung changes any more.
        let waiting = self.trials.iter().find(|trial| trial.state == TrialState::Paused);
        let is_over = self.training().next().is_none();
        waiting.filter(|_| is_over).map(|trial| {
            let reason = rungs::standing(self, trial)
                .map_or(Reason::NoneLeft, |standing| Reason::Outdone { standing });
            Decision::Stop { trial: trial.number, reason }
        })
    }

    /// A trial that has reached its rung goes on at once, or waits.
    fn at_rung(&self, trial: &Trial) -> Option<Decision> {
        let to = trial.to.filter(|to| trial.reports.contains_key(to))?;
        // A whole trial ends by itself.
        if self.plan.ladder.is_none_or(|ladder| to >= ladder.maximum) {
            return None;
        }
        let goes_on = rungs::promotion(self, trial);
        Some(goes_on.unwrap_or_else(|| Decision::Pause {
            trial: trial.number,
            reason:
                rungs::standing(self, trial).map_or(Reason::NoneLeft, |standing| Reason::Waits { standing }),
        }))
    }

    fn begin(&self) -> Option<Decision> {
        let sample = self.suggest()?;
        let trial = self.trials.len() as u64;
        Some(Decision::Begin { trial, sample, to: rungs::first(self, trial) })
    }

    /// Whether nothing is under way, and nothing begins any more.
    pub fn is_over(&self) -> bool {
        !self.can_begin() && self.trials.iter().all(|trial| trial.state.has_ended())
    }

    /// Takes in a decision.
    ///
    /// # Errors
    ///
    /// Returns what contradicts what is known: another number, a trial that has ended.
    pub fn apply(&mut self, decision: &Decision) -> Result<(), String> {
        match decision {
            Decision::Begin { trial, sample, to } => {
                if *trial != self.trials.len() as u64 {
                    return Err(format!("trial {trial} begins after {} others", self.trials.len()));
                }
                let (sample, reports) = (sample.clone(), BTreeMap::new());
                let state = TrialState::Training;
                self.trials.push(Trial { number: *trial, sample, to: *to, reports, state });
            }
            Decision::Continue { trial, to, .. } => {
                let trial = self.open(*trial)?;
                (trial.to, trial.state) = (Some(*to), TrialState::Training);
            }
            Decision::Pause { trial, .. } => self.open(*trial)?.state = TrialState::Paused,
            Decision::Stop { trial, reason } => {
                self.open(*trial)?.state = TrialState::Stopped(reason.clone());
            }
        }
        Ok(())
    }

    fn open(&mut self, number: u64) -> Result<&mut Trial, String> {
        let trial = usize::try_from(number).ok().and_then(|number| self.trials.get_mut(number));
        let trial = trial.ok_or_else(|| format!("there is no trial {number}"))?;
        match trial.state.has_ended() {
            true => Err(format!("trial {number} has ended")),
            false => Ok(trial),
        }
    }

    /// Takes in the figure of a trial at a length. A figure that is not finite fails the trial.
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Search::apply).
    pub fn report(&mut self, trial: u64, at: u64, figure: f64) -> Result<(), String> {
        let metric = self.plan.metric.name();
        let trial = self.open(trial)?;
        match figure.is_finite() {
            true => drop(trial.reports.insert(at, figure)),
            false => trial.state = TrialState::Failed(format!("its {metric} was {figure} at {at}")),
        }
        Ok(())
    }

    /// Takes in that a trial was trained to its end.
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Search::apply).
    pub fn finish(&mut self, trial: u64) -> Result<(), String> {
        self.open(trial)?.state = TrialState::Finished;
        Ok(())
    }

    /// Takes in that a trial cannot be trained.
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Search::apply).
    pub fn fail(&mut self, trial: u64, why: String) -> Result<(), String> {
        self.open(trial)?.state = TrialState::Failed(why);
        Ok(())
    }

    /// The best trial: of those that were trained to their end, or where none was, of those that came furthest.
    pub fn best(&self) -> Option<&Trial> {
        let standing = |trial: &&Trial| {
            let (at, cost) = self.latest(trial)?;
            let finished = trial.state == TrialState::Finished;
            Some((!finished, if finished || self.plan.ladder.is_none() { 0 } else { u64::MAX - at }, cost))
        };
        let known = self.trials.iter().filter(|trial| !matches!(trial.state, TrialState::Failed(_)));
        let known = known.filter_map(|trial| standing(&trial).map(|standing| (standing, trial)));
        let order = |a: &(bool, u64, f64), b: &(bool, u64, f64)| {
            (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
        };
        known
            .min_by(|(a, one), (b, other)| order(a, b).then(one.number.cmp(&other.number)))
            .map(|(_, trial)| trial)
    }

    /// How many of `slots` workers each trial that trains should have: one each, and what is left goes to those that
    /// climbed highest, the best of them first, up to `most` each.
    ///
    /// Those for which there is no slot are not among them.
    pub fn shares(&self, slots: u32, most: impl Fn(&Trial) -> u32) -> BTreeMap<u64, u32> {
        let mut order: Vec<&Trial> = self.training().collect();
        let rank = |trial: &Trial| {
            let (at, cost) = self.latest(trial).unwrap_or((0, f64::INFINITY));
            (u64::MAX - at, cost)
        };
        order.sort_by(|a, b| {
            let ((a_left, a_cost), (b_left, b_cost)) = (rank(a), rank(b));
            a_left.cmp(&b_left).then(a_cost.total_cmp(&b_cost)).then(a.number.cmp(&b.number))
        });
        order.truncate(slots as usize);
        let mut left = slots - order.len() as u32;
        let share = |trial: &&Trial| {
            let more = left.min(most(trial).saturating_sub(1));
            left -= more;
            (trial.number, 1 + more)
        };
        order.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests;
