//! The cheapest candidate that keeps all limits, and the best level that can be had, without a look at most candidates.
//!
//! Candidates are taken in the order of a lower bound, and the search ends where no bound is below what was found. A
//! candidate whose bounds break a limit is not measured, and a measurement ends as soon as it can neither keep the
//! limits nor beat what was found. What was learnt of a candidate is kept for the next search.

use super::objective::Limit;

/// Candidates that are measured at once: with the same limits, so that the answer does not depend on threads.
const BATCH: usize = 8;

/// What a candidate comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Its cost in dollars.
    pub cost_dollars: f64,
    /// Its levels, one for each objective: less is better.
    pub levels: Vec<f64>,
}

/// What came of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// It was measured to its end.
    Whole(Outcome),
    /// It costs more than it may: at least this.
    Dear(f64),
    /// It breaks the limit of this objective: its level is at least this.
    Breaks(usize, f64),
    /// It cannot serve the workload, for this reason.
    Unable(String),
}

/// What a measurement need not go beyond.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// What costs more than this is of no interest, in dollars.
    pub cost_dollars: f64,
    /// One for each objective.
    pub levels: Vec<Limit>,
}

/// Who knows what candidates come to. They are numbered from 0.
///
/// # Laws
///
/// A bound is never above what a whole measurement says. A measurement says `Dear` or `Breaks` only where it is so, and
/// its figure is no more than what the whole one would be.
pub trait Oracle {
    /// Why a measurement failed.
    type Error;

    /// A cost that the candidate does not go below, in dollars.
    fn cost_at_least(&self, candidate: usize) -> f64;

    /// Levels that it does not go below, one for each objective.
    fn levels_at_least(&self, candidate: usize) -> Vec<f64>;

    /// What the candidates come to, in their order.
    ///
    /// # Errors
    ///
    /// Where one of them cannot be measured at all.
    fn measure(&self, candidates: &[usize], limits: &Limits) -> Result<Vec<Measured>, Self::Error>;
}

/// What is known of a candidate.
#[derive(Debug, Clone)]
enum Known {
    /// Bounds of its levels.
    Bounds(Vec<f64>),
    Whole(Outcome),
    Unable(String),
}

/// How many candidates needed what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// All of them.
    pub candidates: usize,
    /// Measured to their end.
    pub measured: usize,
    /// Whose measurement ended before: they were too dear, or broke a limit.
    pub cut_short: usize,
    /// That were refused by a bound, without a measurement.
    pub refused: usize,
    /// That cannot serve the workload.
    pub unable: usize,
}

/// A search, with what it has learnt so far.
#[derive(Debug)]
pub struct Search<'a, O: Oracle> {
    oracle: &'a O,
    /// Costs that candidates do not go below.
    costs: Vec<f64>,
    /// By cost.
    order: Vec<usize>,
    known: Vec<Option<Known>>,
    was_cut: Vec<bool>,
    was_refused: Vec<bool>,
}

impl<'a, O: Oracle> Search<'a, O> {
    /// A search among the first `candidates` candidates of `oracle`.
    pub fn new(oracle: &'a O, candidates: usize) -> Search<'a, O> {
        let costs: Vec<f64> = (0..candidates).map(|candidate| oracle.cost_at_least(candidate)).collect();
        let mut order: Vec<usize> = (0..candidates).collect();
        order.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]).then(a.cmp(b)));
        let known = vec![None; candidates];
        let (was_cut, was_refused) = (vec![false; candidates], vec![false; candidates]);
        Search { oracle, costs, order, known, was_cut, was_refused }
    }

    /// The cheapest candidate that keeps `limits`; of equally cheap ones that of the least first level, then the first.
    ///
    /// # Errors
    ///
    /// Those of the oracle.
    pub fn cheapest(&mut self, limits: &[Limit]) -> Result<Option<usize>, O::Error> {
        let order = std::mem::take(&mut self.order);
        let found = self.branch_and_bound(&order, limits, None);
        self.order = order;
        found
    }

    /// The candidate of the least level of objective `at` among those that keep `limits`; of equal ones the cheapest,
    /// then the first.
    ///
    /// # Errors
    ///
    /// Those of the oracle.
    pub fn best_level(&mut self, at: usize, limits: &[Limit]) -> Result<Option<usize>, O::Error> {
        let bounds: Vec<f64> = (0..self.known.len()).map(|candidate| self.bounds(candidate)[at]).collect();
        let mut order = self.order.clone();
        order.sort_by(|a, b| bounds[*a].total_cmp(&bounds[*b]));
        self.branch_and_bound(&order, limits, Some(at))
    }

    /// Measures every candidate to its end.
    ///
    /// # Errors
    ///
    /// Those of the oracle.
    pub fn exhaust(&mut self) -> Result<(), O::Error> {
        let objectives = self.known.first().map_or(0, |_| self.oracle.levels_at_least(0).len());
        let limits = Limits { cost_dollars: f64::INFINITY, levels: vec![Limit::NONE; objectives] };
        let left: Vec<usize> = (0..self.known.len()).filter(|at| !self.is_measured(*at)).collect();
        left.chunks(BATCH).try_for_each(|batch| self.measure(batch, &limits))
    }

    /// What the candidate comes to, where it was measured to its end.
    pub fn outcome(&self, candidate: usize) -> Option<&Outcome> {
        match self.known.get(candidate)? {
            Some(Known::Whole(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Those that were measured to their end.
    pub fn measured(&self) -> impl Iterator<Item = (usize, &Outcome)> {
        (0..self.known.len()).filter_map(|candidate| Some((candidate, self.outcome(candidate)?)))
    }

    /// A candidate that cannot serve the workload, and why.
    pub fn unable(&self) -> impl Iterator<Item = (usize, &str)> {
        self.known.iter().enumerate().filter_map(|(candidate, known)| match known {
            Some(Known::Unable(why)) => Some((candidate, why.as_str())),
            _ => None,
        })
    }

    /// How many candidates needed what.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { candidates: self.known.len(), ..Counts::default() };
        for (candidate, known) in self.known.iter().enumerate() {
            match known {
                Some(Known::Whole(_)) => counts.measured += 1,
                Some(Known::Unable(_)) => counts.unable += 1,
                _ if self.was_cut[candidate] => counts.cut_short += 1,
                _ if self.was_refused[candidate] => counts.refused += 1,
                _ => {}
            }
        }
        counts
    }

    /// Takes candidates in `order`; the least level of objective `at` is looked for, or where that is not said the
    /// least cost. Bounds may have been raised since the order was made, so none ends the search for those behind it.
    fn branch_and_bound(
        &mut self,
        order: &[usize],
        limits: &[Limit],
        at: Option<usize>,
    ) -> Result<Option<usize>, O::Error> {
        let mut best: Option<(Key, usize)> = None;
        let mut batch = Vec::with_capacity(BATCH);
        for &candidate in order {
            if self.is_measured(candidate) {
                self.consider(candidate, limits, at, &mut best);
            } else if self.is_wanted(candidate, limits, at, best.as_ref()) {
                batch.push(candidate);
            }
            if batch.len() == BATCH {
                self.measure_and_consider(&mut batch, limits, at, &mut best)?;
            }
        }
        self.measure_and_consider(&mut batch, limits, at, &mut best)?;
        Ok(best.map(|(_, candidate)| candidate))
    }

    fn measure_and_consider(
        &mut self,
        batch: &mut Vec<usize>,
        limits: &[Limit],
        at: Option<usize>,
        best: &mut Option<(Key, usize)>,
    ) -> Result<(), O::Error> {
        self.measure(batch, &tightened(limits, at, best.as_ref()))?;
        for candidate in batch.drain(..) {
            self.consider(candidate, limits, at, best);
        }
        Ok(())
    }

    /// Whether bounds leave it open that the candidate keeps the limits, and beats the best or equals it.
    fn is_wanted(
        &mut self,
        candidate: usize,
        limits: &[Limit],
        at: Option<usize>,
        best: Option<&(Key, usize)>,
    ) -> bool {
        let is_beaten = |key: f64| best.is_some_and(|(best, _)| key > best.0);
        if at.is_none() && is_beaten(self.costs[candidate]) {
            return false;
        }
        let bounds = self.bounds(candidate);
        if limits.iter().zip(&bounds).any(|(limit, level)| !limit.holds(*level)) {
            self.was_refused[candidate] = true;
            return false;
        }
        !at.is_some_and(|at| is_beaten(bounds[at]))
    }

    fn is_measured(&self, candidate: usize) -> bool {
        matches!(self.known[candidate], Some(Known::Whole(_) | Known::Unable(_)))
    }

    /// Levels that the candidate does not go below.
    fn bounds(&mut self, candidate: usize) -> Vec<f64> {
        match &self.known[candidate] {
            Some(Known::Bounds(levels)) => levels.clone(),
            Some(Known::Whole(outcome)) => outcome.levels.clone(),
            _ => {
                let levels = self.oracle.levels_at_least(candidate);
                if self.known[candidate].is_none() {
                    self.known[candidate] = Some(Known::Bounds(levels.clone()));
                }
                levels
            }
        }
    }

    fn measure(&mut self, batch: &[usize], limits: &Limits) -> Result<(), O::Error> {
        if batch.is_empty() {
            return Ok(());
        }
        for (&candidate, measured) in batch.iter().zip(self.oracle.measure(batch, limits)?) {
            match measured {
                Measured::Whole(outcome) => self.known[candidate] = Some(Known::Whole(outcome)),
                Measured::Unable(why) => self.known[candidate] = Some(Known::Unable(why)),
                Measured::Dear(at_least) => {
                    self.was_cut[candidate] = true;
                    self.costs[candidate] = self.costs[candidate].max(at_least);
                }
                Measured::Breaks(at, at_least) => {
                    self.was_cut[candidate] = true;
                    let mut levels = self.bounds(candidate);
                    levels[at] = levels[at].max(at_least);
                    self.known[candidate] = Some(Known::Bounds(levels));
                }
            }
        }
        Ok(())
    }

    fn consider(
        &self,
        candidate: usize,
        limits: &[Limit],
        at: Option<usize>,
        best: &mut Option<(Key, usize)>,
    ) {
        let Some(outcome) = self.outcome(candidate) else { return };
        if limits.iter().zip(&outcome.levels).any(|(limit, level)| !limit.holds(*level)) {
            return;
        }
        let first = outcome.levels.first().copied().unwrap_or(0.0);
        let key = match at {
            None => Key(outcome.cost_dollars, first),
            Some(at) => Key(outcome.levels[at], outcome.cost_dollars),
        };
        let is_better = best.as_ref().is_none_or(|(other, number)| key.is_before(other, candidate < *number));
        if is_better {
            *best = Some((key, candidate));
        }
    }
}

/// What is least in the answer, first and then.
#[derive(Debug, Clone, Copy)]
struct Key(f64, f64);

impl Key {
    fn is_before(&self, other: &Key, is_first: bool) -> bool {
        let order = self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1));
        order.is_lt() || order.is_eq() && is_first
    }
}

/// The limits of a measurement that has to beat the best, or to equal it.
fn tightened(limits: &[Limit], at: Option<usize>, best: Option<&(Key, usize)>) -> Limits {
    let mut tight = Limits { cost_dollars: f64::INFINITY, levels: limits.to_vec() };
    match (at, best) {
        (None, Some((key, _))) => tight.cost_dollars = key.0,
        (Some(at), Some((key, _))) if key.0 < tight.levels[at].level => {
            tight.levels[at] = Limit { level: key.0, is_inclusive: true };
        }
        _ => {}
    }
    tight
}
