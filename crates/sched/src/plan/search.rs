//! The search for the best of many configurations, of which only those that matter are simulated.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Constraints};

use super::candidate;
use super::evaluate::{Evaluator, Figures, Rough};
use super::space::Setup;

/// With a budget only, times that differ by no more than this part are taken for equal.
const NEARLY_FASTEST: f64 = 0.01;

/// The closed form and the simulation differ by less than this part.
pub(super) const SLACK: f64 = 0.05;
/// So much longer than the deadline may the expected time be of a configuration that might yet meet it.
const HOPE: f64 = 1.25;
/// Most configurations near the best in time and cost that are simulated unasked.
const NEAR_MAX: usize = 100;
/// The same where much happens in each: no fewer than this, ...
const NEAR_MIN: usize = 10;
/// ... and beyond that only this many events: some seconds' work.
const EVENTS_MAX: f64 = 2e7;
/// Most configurations that are simulated in search of one best.
const VISITS_MAX: usize = 300;

/// Configurations with what is known of them.
pub(super) struct Known {
    setups: Vec<Setup>,
    rough: Vec<Rough>,
}

/// A simulated configuration.
pub(super) struct Found {
    pub(super) figures: Figures,
    pub(super) checkpoint_period_s: Option<f64>,
}

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) evaluator: Evaluator<'a>,
    known: Known,
    found: BTreeMap<usize, Found>,
}

impl Known {
    pub(super) fn new() -> Known {
        Known { setups: Vec::new(), rough: Vec::new() }
    }

    /// Takes in the configurations on which the job ends.
    pub(super) fn add(&mut self, evaluator: &mut Evaluator, setups: Vec<Setup>) -> Result<(), InputError> {
        for setup in setups {
            if let Some(rough) = evaluator.rough(&setup)? {
                self.setups.push(setup);
                self.rough.push(rough);
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.setups.is_empty()
    }

    /// Kinds of machines that alone come near the best.
    pub(super) fn promising_kinds(&self) -> Vec<usize> {
        // Where transient ones are allowed, those on demand still count: a deadline may ask for them.
        let near =
            self.near_front(|_| true).into_iter().chain(self.near_front(|setup| !setup.is_transient()));
        let mut kinds: Vec<usize> = near.map(|place| self.setups[place].groups[0].kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Configurations than which none is better in expected time and in expected cost by more than the slack.
    fn near_front(&self, counts: impl Fn(&Setup) -> bool) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.rough.len()).filter(|place| counts(&self.setups[*place])).collect();
        order.sort_by(|a, b| self.rough[*a].time_s.total_cmp(&self.rough[*b].time_s).then(a.cmp(b)));
        // The least cost among those that are faster by more than the slack.
        let (mut faster, mut least) = (0, f64::INFINITY);
        let mut near = Vec::new();
        for &place in &order {
            let rough = &self.rough[place];
            while self.rough[order[faster]].time_s < rough.time_s * (1.0 - SLACK) {
                least = least.min(self.rough[order[faster]].cost);
                faster += 1;
            }
            if least >= rough.cost * (1.0 - SLACK) {
                near.push(place);
            }
        }
        near
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(known: Known, evaluator: Evaluator<'a>) -> Search<'a> {
        Search { evaluator, known, found: BTreeMap::new() }
    }

    /// Simulates what is near the best in time and cost.
    pub(super) fn simulate_near(&mut self) -> Result<(), InputError> {
        let near = self.known.near_front(|_| true);
        let total: f64 = near.iter().map(|place| self.events(*place)).sum();
        let part = (self.events_max() / total).min(1.0);
        // Of too many every so-manieth, so that the whole front is covered.
        let count = ((near.len() as f64 * part) as usize).clamp(NEAR_MIN, NEAR_MAX).min(near.len());
        (0..count).try_for_each(|number| self.simulate(near[number * near.len() / count]))
    }

    /// What would happen in all simulated runs of a configuration.
    fn events(&self, place: usize) -> f64 {
        let rough = &self.known.rough[place];
        rough.events * f64::from(self.evaluator.runs(&self.known.setups[place], rough))
    }

    /// How much may happen in the simulated runs of one search.
    fn events_max(&self) -> f64 {
        EVENTS_MAX * (f64::from(self.evaluator.question.runs) / 1000.0).max(1.0)
    }

    /// Configurations whose rough figures are known.
    pub(super) fn len(&self) -> usize {
        self.known.setups.len()
    }

    /// How many were simulated because something of them is left to chance.
    pub(super) fn simulated(&self) -> u64 {
        self.found.keys().filter(|place| self.known.setups[**place].is_transient()).count() as u64
    }

    pub(super) fn setup(&self, place: usize) -> &Setup {
        &self.known.setups[place]
    }

    pub(super) fn found(&self, place: usize) -> Option<&Found> {
        self.found.get(&place)
    }

    /// All that were simulated.
    pub(super) fn all_found(&self) -> impl Iterator<Item = (usize, &Found)> {
        self.found.iter().map(|(place, found)| (*place, found))
    }

    pub(super) fn candidate(&self, place: usize) -> Option<Candidate> {
        Some(candidate(&self.evaluator, &self.known.setups[place], self.found.get(&place)?))
    }

    fn simulate(&mut self, place: usize) -> Result<(), InputError> {
        if !self.found.contains_key(&place) {
            let (setup, rough) = (&self.known.setups[place], &self.known.rough[place]);
            let figures = self.evaluator.figures(setup, rough)?;
            let found = Found { figures, checkpoint_period_s: rough.checkpoint_period_s };
            self.found.insert(place, found);
        }
        Ok(())
    }

    /// The configuration for these wishes, by the rules of the [module](super).
    pub(super) fn best(&mut self, constraints: &Constraints) -> Result<Option<usize>, InputError> {
        self.best_of(constraints, |_| true)
    }

    /// The same, of those configurations that `counts` says.
    pub(super) fn best_of(
        &mut self,
        constraints: &Constraints,
        counts: impl Fn(&Setup) -> bool,
    ) -> Result<Option<usize>, InputError> {
        let Constraints { deadline_s, budget_dollars: budget, confidence, .. } = *constraints;
        let hopeful = |rough: &Rough| {
            deadline_s.is_none_or(|deadline_s| rough.time_s <= deadline_s * HOPE)
                && budget.is_none_or(|budget| rough.cost * (1.0 - SLACK) <= budget)
        };
        let fits = |figures: &Figures| {
            deadline_s.is_none_or(|deadline_s| figures.meets(deadline_s) >= confidence)
                && budget.is_none_or(|budget| figures.cost <= budget)
        };
        type Key = fn(f64, f64) -> f64;
        let key: Key = match (deadline_s, budget) {
            (Some(_), _) => |_, cost| cost,
            (None, Some(_)) => |time_s, _| time_s,
            (None, None) => |time_s, cost| time_s * cost,
        };
        let best = self.least(
            |setup, rough| (counts(setup) && hopeful(rough)).then(|| key(rough.time_s, rough.cost)),
            |figures| fits(figures).then(|| key(figures.time_s, figures.cost)),
        )?;
        let only_budget = deadline_s.is_none() && budget.is_some();
        Ok(best.map(|best| if only_budget { self.as_fast_and_cheapest(best, counts, fits) } else { best }))
    }

    /// The cheapest of those that were simulated and take hardly longer than `fastest`: a small gain in time is not
    /// worth its price only because the budget allows it.
    fn as_fast_and_cheapest(
        &self,
        fastest: usize,
        counts: impl Fn(&Setup) -> bool,
        fits: impl Fn(&Figures) -> bool,
    ) -> usize {
        let enough_s = self.found[&fastest].figures.time_s * (1.0 + NEARLY_FASTEST);
        let near = self.found.iter().filter(|(place, found)| {
            let Found { figures, .. } = found;
            let usable = counts(&self.known.setups[**place]) && figures.usually_ends() && fits(figures);
            usable && figures.time_s <= enough_s
        });
        let cheaper = |a: &Figures, b: &Figures| a.cost.total_cmp(&b.cost).then_with(|| compare(a, b));
        let cheapest = near.min_by(|(_, a), (_, b)| cheaper(&a.figures, &b.figures));
        cheapest.map_or(fastest, |(place, _)| *place)
    }

    /// The configuration with the least `exact` value. Those with a `rough` value are simulated in its order, until the
    /// rest cannot be better any more; `None` for those that do not count.
    pub(super) fn least(
        &mut self,
        rough: impl Fn(&Setup, &Rough) -> Option<f64>,
        exact: impl Fn(&Figures) -> Option<f64>,
    ) -> Result<Option<usize>, InputError> {
        let all = self.known.setups.iter().zip(&self.known.rough).enumerate();
        let mut order: Vec<(f64, usize)> =
            all.filter_map(|(place, (setup, figures))| Some((rough(setup, figures)?, place))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(f64, usize)> = None;
        let (mut visits, mut events, events_max) = (0, 0.0, self.events_max());
        for (value, place) in order {
            let hopeless = best.is_some_and(|(best, _)| value * (1.0 - SLACK) > best);
            if hopeless || visits >= VISITS_MAX || events > events_max {
                break;
            }
            if !self.found.contains_key(&place) {
                visits += usize::from(self.known.setups[place].is_transient());
                events += self.events(place);
                self.simulate(place)?;
            }
            let figures = &self.found[&place].figures;
            let value = exact(figures).filter(|value| value.is_finite() && figures.usually_ends());
            let Some(value) = value else { continue };
            let better = |(least, other): (f64, usize)| {
                let other = &self.found[&other].figures;
                value.total_cmp(&least).then_with(|| compare(figures, other)) == Ordering::Less
            };
            if best.is_none_or(better) {
                best = Some((value, place));
            }
        }
        Ok(best.map(|(_, place)| place))
    }

    /// Simulates every configuration of machines on demand, of which a single run tells all.
    pub(super) fn simulate_on_demand(&mut self) -> Result<(), InputError> {
        for place in 0..self.known.setups.len() {
            if !self.known.setups[place].is_transient() {
                self.simulate(place)?;
            }
        }
        Ok(())
    }

    /// The Pareto set of those that were simulated and that `counts` says, fastest first; the choice is in it.
    pub(super) fn front(&self, choice: Option<usize>, counts: impl Fn(&Setup) -> bool) -> Vec<usize> {
        let deadline_s = self.evaluator.question.deadline_s;
        let usable = self
            .found
            .iter()
            .filter(|(place, found)| found.figures.usually_ends() && counts(&self.known.setups[**place]));
        let mut all: Vec<(usize, [f64; 4])> = usable
            .map(|(place, Found { figures, .. })| {
                let misses = deadline_s.map_or(0.0, |deadline_s| 1.0 - figures.meets(deadline_s));
                (*place, [figures.time_s, figures.cost, figures.quantile_s(0.95), misses])
            })
            .collect();
        // Of equal ones the choice comes first: a later one that is no better is beaten.
        let by_figures = |a: &[f64; 4], b: &[f64; 4]| {
            a.iter()
                .zip(b)
                .map(|(a, b)| a.total_cmp(b))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        let last = |place: usize| Some(place) != choice;
        all.sort_by(|a, b| by_figures(&a.1, &b.1).then(last(a.0).cmp(&last(b.0))).then(a.0.cmp(&b.0)));
        let no_worse = |a: &[f64; 4], b: &[f64; 4]| a.iter().zip(b).all(|(a, b)| a <= b);
        let mut front: Vec<(usize, [f64; 4])> = Vec::new();
        for (place, figures) in all {
            if Some(place) == choice || !front.iter().any(|(_, better)| no_worse(better, &figures)) {
                front.push((place, figures));
            }
        }
        front.into_iter().map(|(place, _)| place).collect()
    }
}

/// What is better of two that are equally good for the wishes.
fn compare(a: &Figures, b: &Figures) -> Ordering {
    let by = |of: fn(&Figures) -> f64| of(a).total_cmp(&of(b));
    by(|f| f.time_s).then(by(|f| f.cost)).then(by(|f| f.quantile_s(0.95)))
}
