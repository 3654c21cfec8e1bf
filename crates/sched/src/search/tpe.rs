//! The tree-structured Parzen estimator: values are drawn where good trials were, and bad ones were not.
//!
//! ```text
//! the n trials by cost:  the best min(⌈0.1 n⌉, 25) give the density l, the others g, for each key by itself
//! of 24 values drawn from l the next one is the value with the largest l(x) / g(x)
//! ```
//!
//! A density of numbers is a mixture of normal distributions, cut off at the ends of the range: one for each trial that
//! has the key, as wide as the distance to the farther neighbour, and the prior, which is as wide as the range and
//! centred. Widths are at least the range divided by min(100, 1 + m), where m counts the normals. Logarithmic keys are
//! treated by their logarithm, integers by the probability of the half step on either side. A choice has the
//! probability (1 + count) / (k + m). Keys that are not active are left out of a sample, and samples without a key say
//! nothing of it.
//!
//! Trials that ended early rank behind those that finished, by how far they came and then by cost; trials that failed
//! rank last. Trials without any figure say nothing. The first trials are drawn at random.
//!
//! Source: Bergstra, Bardenet, Bengio and Kégl, Algorithms for Hyper-Parameter Optimization, NeurIPS 2011, section 4.
//! The share of good trials and the least width are the defaults of Optuna, the 24 candidates those of both.

use bellwether_core::sweep::{Domain, Parameter, Sample, Value};

use super::draw::Draws;
use super::{Search, Trial, TrialState, scale};

/// Trials that are drawn at random first, where nothing else is said.
pub const STARTUP_TRIALS: u64 = 10;

/// Values that are compared.
const CANDIDATES: usize = 24;

/// Most trials that count as good.
const GOOD_MAX: usize = 25;

/// The sample of the next trial.
pub(super) fn suggest(search: &Search, number: u64) -> Sample {
    let sampler = search.plan().sampler;
    let ranked = ranked(search);
    let random = ranked.len() < sampler.startup_trials.unwrap_or(STARTUP_TRIALS).max(1) as usize;
    let good = ranked.len().div_ceil(10).min(GOOD_MAX);
    let (good, bad) = ranked.split_at(good);
    let mut sample = Sample::new();
    for (place, parameter) in search.plan().space.parameters.iter().enumerate() {
        if !parameter.is_active(&sample) {
            continue;
        }
        let mut draws = Draws::new(sampler.seed, number, place);
        let value = match random {
            true => scale::at(&parameter.domain, draws.uniform()),
            false => choose(parameter, good, bad, &mut draws),
        };
        sample.insert(parameter.key.clone(), value);
    }
    sample
}

/// The trials that tell something, the best first.
fn ranked(search: &Search) -> Vec<&Trial> {
    let rank = |trial: &Trial| match (&trial.state, search.latest(trial)) {
        (TrialState::Failed(_), _) => Some((2, 0, f64::INFINITY)),
        (_, None) => None,
        (TrialState::Finished, Some((_, cost))) => Some((0, 0, cost)),
        (_, Some((at, cost))) => Some((1, u64::MAX - at, cost)),
    };
    let mut known: Vec<((u8, u64, f64), &Trial)> =
        search.trials.iter().filter_map(|trial| Some((rank(trial)?, trial))).collect();
    known.sort_by(|(a, one), (b, other)| {
        (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)).then(one.number.cmp(&other.number))
    });
    known.into_iter().map(|(_, trial)| trial).collect()
}

fn choose(parameter: &Parameter, good: &[&Trial], bad: &[&Trial], draws: &mut Draws) -> Value {
    let values = |trials: &[&Trial]| -> Vec<Value> {
        trials.iter().filter_map(|trial| trial.sample.get(&parameter.key).cloned()).collect()
    };
    let (good, bad) = (values(good), values(bad));
    if let Domain::Choice(choices) = &parameter.domain {
        return choice(choices, &good, &bad, draws);
    }
    let domain = &parameter.domain;
    let places = |values: &[Value]| -> Vec<f64> {
        values.iter().filter_map(Value::number).map(|number| scale::inner(domain, number)).collect()
    };
    let Some(range) = scale::range(domain) else { return scale::at(domain, draws.uniform()) };
    let (l, g) = (Mixture::new(places(&good), range), Mixture::new(places(&bad), range));
    let score = |value: &Value| {
        let cell = scale::cell(domain, value.number().unwrap_or(0.0));
        l.log_density(cell) - g.log_density(cell)
    };
    let drawn = (0..CANDIDATES).map(|_| scale::value(domain, l.draw(draws)));
    best(drawn.map(|value| (score(&value), value))).unwrap_or_else(|| scale::at(domain, 0.5))
}

/// The first value with the largest score.
fn best(scored: impl Iterator<Item = (f64, Value)>) -> Option<Value> {
    let mut best: Option<(f64, Value)> = None;
    for (score, value) in scored {
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, value));
        }
    }
    best.map(|(_, value)| value)
}

fn choice(choices: &[Value], good: &[Value], bad: &[Value], draws: &mut Draws) -> Value {
    let shares = |seen: &[Value]| -> Vec<f64> {
        let all = (choices.len() + seen.len()) as f64;
        let count = |choice| seen.iter().filter(|value| *value == choice).count() as f64;
        choices.iter().map(|choice| (1.0 + count(choice)) / all).collect()
    };
    let (l, g) = (shares(good), shares(bad));
    let drawn = (0..CANDIDATES).map(|_| {
        let place = pick(&l, draws.uniform());
        (l[place] / g[place], choices[place].clone())
    });
    best(drawn).unwrap_or_else(|| choices[0].clone())
}

/// The place at which the running sum of the shares passes `u`.
fn pick(shares: &[f64], u: f64) -> usize {
    let mut sum = 0.0;
    let passes = |share: &f64| {
        sum += share;
        u < sum
    };
    shares.iter().position(passes).unwrap_or(shares.len() - 1)
}

/// Normal distributions with equal weights, cut off at the ends of a range.
#[derive(Debug, Clone)]
struct Mixture {
    range: (f64, f64),
    /// Centre and width of each.
    normals: Vec<(f64, f64)>,
}

impl Mixture {
    fn new(mut centres: Vec<f64>, range: (f64, f64)) -> Mixture {
        let (low, high) = range;
        let (span, middle) = (high - low, f64::midpoint(low, high));
        centres.push(middle);
        centres.sort_by(f64::total_cmp);
        // One of equal centres is the prior: all of these have the same neighbours.
        let prior = centres.iter().position(|centre| *centre == middle);
        let least = span / (1.0 + centres.len() as f64).min(100.0);
        let width = |place: usize| {
            if Some(place) == prior {
                return span;
            }
            let before = place.checked_sub(1).map_or(0.0, |before| centres[place] - centres[before]);
            let after = centres.get(place + 1).map_or(0.0, |after| after - centres[place]);
            before.max(after).clamp(least, span)
        };
        let normals = (0..centres.len()).map(|place| (centres[place], width(place))).collect();
        Mixture { range, normals }
    }

    /// A value within the range, by the inverse of one normal's distribution.
    fn draw(&self, draws: &mut Draws) -> f64 {
        let place = ((draws.uniform() * self.normals.len() as f64) as usize).min(self.normals.len() - 1);
        let (centre, width) = self.normals[place];
        let (low, high) = self.range;
        let (from, to) = (below((low - centre) / width), below((high - centre) / width));
        let share = from + draws.uniform() * (to - from);
        // Bisection: 60 halvings are exact to the last bit that matters.
        let (mut low, mut high) = self.range;
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            match below((middle - centre) / width) < share {
                true => low = middle,
                false => high = middle,
            }
        }
        f64::midpoint(low, high)
    }

    /// The logarithm of the probability of a cell, or of the density where it has no width.
    fn log_density(&self, (from, to): (f64, f64)) -> f64 {
        let (low, high) = self.range;
        let one = |&(centre, width): &(f64, f64)| {
            let z = |place: f64| (place - centre) / width;
            let whole = below(z(high)) - below(z(low));
            let part = match to > from {
                true => below(z(to)) - below(z(from)),
                false => libm::exp(-0.5 * z(from) * z(from)) / (width * (2.0 * std::f64::consts::PI).sqrt()),
            };
            part / whole
        };
        let sum: f64 = self.normals.iter().map(one).sum();
        libm::log((sum / self.normals.len() as f64).max(f64::MIN_POSITIVE))
    }
}

/// The share of a standard normal distribution below z.
fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_has_the_weight_of_its_range() {
        let mixture = Mixture::new(vec![0.1, 0.15, 0.8], (0.0, 1.0));
        let cells = (0..100).map(|k| (f64::from(k) / 100.0, f64::from(k + 1) / 100.0));
        let sum: f64 = cells.map(|cell| libm::exp(mixture.log_density(cell))).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        // The density is the limit of the cells.
        let cell = libm::exp(mixture.log_density((0.3, 0.3 + 1e-7))) / 1e-7;
        let density = libm::exp(mixture.log_density((0.3, 0.3)));
        assert!((cell / density - 1.0).abs() < 1e-5, "{cell} {density}");
    }

    #[test]
    fn widths_are_those_of_the_source() {
        // Sorted with the prior at 0.5: 0.1, 0.3, 0.5, 0.9; the least width is 1 / 5.
        let mixture = Mixture::new(vec![0.9, 0.1, 0.3], (0.0, 1.0));
        let expected = [(0.1, 0.2), (0.3, 0.2), (0.5, 1.0), (0.9, 0.4)];
        for ((centre, width), (at, wide)) in mixture.normals.iter().zip(expected) {
            assert!((centre - at).abs() < 1e-12 && (width - wide).abs() < 1e-12, "{:?}", mixture.normals);
        }
    }

    #[test]
    fn draws_follow_the_mixture() {
        let mixture = Mixture::new(vec![0.2], (0.0, 1.0));
        let mut draws = Draws::new(1, 2, 3);
        let drawn: Vec<f64> = (0..20_000).map(|_| mixture.draw(&mut draws)).collect();
        let share = drawn.iter().filter(|value| **value < 0.3).count() as f64 / 20_000.0;
        let expected = libm::exp(mixture.log_density((0.0, 0.3)));
        assert!((share - expected).abs() < 0.015, "{share} {expected}");
    }
}
