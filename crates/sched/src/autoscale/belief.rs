//! What the steps of every size may take, given those that were measured: many step models, each with its weight.
//!
//! The prior is a lattice of [`Throughput`] models, equally likely: how much of a step does not shrink with the share
//! of a worker, how much the exchange takes between two, how much it has grown at the largest size, and how well it
//! hides. The scale of each is the one that fits best. A measured size errs by its own spread and by [`MODEL_SD`], as
//! no model is exact; where the exchange was measured apart, so is the gradient. A size that was measured is believed
//! as measured, and others as the model says, corrected by how far it misses its measured neighbours: else every
//! untried size would look better by as much as a model is too quick.

use bellwether_model::elastic::Throughput;

use super::{Measured, Situation};

/// Error of the step models where their parameters are right, relative: the error that the fit of
/// [`bellwether_model::scaling`] allows its rows.
const MODEL_SD: f64 = 0.05;
/// Parts of the step, relative to the gradient of a worker's share at the smallest size.
const PARTS: [f64; 8] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];
/// Overlaps of compute and exchange: they add up, or the shorter hides for the most part.
const OVERLAPS: [f64; 2] = [1.0, 3.0];
/// Hypotheses whose weights sum to so little are dropped.
const NEGLIGIBLE: f64 = 1e-3;

/// One model, in seconds of a step by size.
#[derive(Debug, Clone)]
pub(super) struct Hypothesis {
    /// Its weight; all sum to 1.
    pub(super) weight: f64,
    /// Samples per second, in the order of the sizes.
    pub(super) rates: Vec<f64>,
}

/// All that is likely.
#[derive(Debug)]
pub(super) struct Belief {
    /// Sizes, ascending.
    pub(super) sizes: Vec<u32>,
    /// Standard error of what was measured, relative, by size; `None` where nothing was.
    pub(super) errors: Vec<Option<f64>>,
    pub(super) hypotheses: Vec<Hypothesis>,
}

/// Logarithm of a measured time, the same of a model at scale 1, and the precision of the difference.
struct Row {
    measured: f64,
    shape: f64,
    precision: f64,
}

impl Belief {
    /// What the situation makes of the prior at `sizes`.
    pub(super) fn new(situation: &Situation, sizes: Vec<u32>) -> Belief {
        let share = |workers: u32| situation.share(situation.batch.samples(workers), workers);
        let measured: Vec<(u32, &Measured)> = situation.history.sizes().collect();
        let mut found: Vec<(f64, f64, Throughput)> = Vec::new();
        for model in lattice(share(situation.bounds.least), situation.bounds.most) {
            let rows: Vec<Row> = measured
                .iter()
                .flat_map(|&(workers, measured)| rows(&model, situation, workers, measured))
                .collect();
            let (scale, log_weight) = fit(&rows);
            found.push((log_weight, scale, model));
        }
        let best = found.iter().map(|(log_weight, ..)| *log_weight).fold(f64::NEG_INFINITY, f64::max);
        let relative = |log_weight: f64| (log_weight - best).exp();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let sum: f64 = found.iter().map(|(log_weight, ..)| relative(*log_weight)).sum();
        let mut kept = 0.0;
        found.retain(|(log_weight, ..)| {
            let keep = kept < (1.0 - NEGLIGIBLE) * sum;
            kept += relative(*log_weight);
            keep
        });
        let sum: f64 = found.iter().map(|(log_weight, ..)| relative(*log_weight)).sum();
        let hypothesis = |&(log_weight, scale, model): &(f64, f64, Throughput)| {
            let miss = |&(workers, measured): &(u32, &Measured)| {
                let share = situation.share(measured.batch, workers);
                let step_s = scale * model.step_s(1, workers, share, 0);
                (f64::from(workers).ln(), (measured.step_s / step_s).ln())
            };
            let misses: Vec<(f64, f64)> = measured.iter().map(miss).collect();
            let rate = |&workers: &u32| match situation.history.at(workers) {
                Some(measured) => measured.examples_per_s(),
                None => {
                    let correction = between(&misses, f64::from(workers).ln()).exp();
                    let step_s = correction * scale * model.step_s(1, workers, share(workers), 0);
                    situation.batch.samples(workers) as f64 / step_s
                }
            };
            Hypothesis { weight: relative(log_weight) / sum, rates: sizes.iter().map(rate).collect() }
        };
        let hypotheses = found.iter().map(hypothesis).collect();
        let error = |workers: &u32| situation.history.at(*workers).map(Measured::relative_error);
        Belief { errors: sizes.iter().map(error).collect(), hypotheses, sizes }
    }

    /// Mean of a value over the hypotheses, and its standard deviation.
    pub(super) fn mean(&self, value: impl Fn(&Hypothesis) -> f64) -> (f64, f64) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for hypothesis in &self.hypotheses {
            let value = value(hypothesis);
            sum += hypothesis.weight * value;
            squares += hypothesis.weight * value * value;
        }
        (sum, (squares - sum * sum).max(0.0).sqrt())
    }
}

/// The value at `x` on straight lines between points in ascending order; beyond them that of the nearest, and 0 of
/// none.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let right = points.partition_point(|point| point.0 < x);
    match (right.checked_sub(1).map(|left| points[left]), points.get(right)) {
        (Some(left), Some(right)) => left.1 + (right.1 - left.1) * (x - left.0) / (right.0 - left.0),
        (Some(point), None) => point.1,
        (None, point) => point.map_or(0.0, |point| point.1),
    }
}

/// The prior: models whose gradient takes 1 s for `share` samples, apart from what does not shrink.
fn lattice(share: f64, most: u32) -> impl Iterator<Item = Throughput> {
    let beyond_two = f64::from(most.saturating_sub(2).max(1));
    let triples = PARTS.iter().flat_map(|constant| PARTS.iter().map(move |exchange| (*constant, *exchange)));
    let quadruples = triples.flat_map(|pair| PARTS.iter().map(move |growth| (pair, *growth)));
    quadruples.flat_map(move |((constant, exchange), growth)| {
        OVERLAPS.iter().map(move |&gamma| Throughput {
            alpha_c: constant,
            beta_c: 1.0 / share,
            alpha_n: exchange,
            beta_n: growth / beyond_two,
            alpha_r: exchange,
            beta_r: growth / beyond_two,
            gamma,
        })
    })
}

/// What one measured size says of a model.
fn rows(
    model: &Throughput,
    situation: &Situation,
    workers: u32,
    measured: &Measured,
) -> impl Iterator<Item = Row> + use<> {
    let share = situation.share(measured.batch, workers);
    let variance = MODEL_SD * MODEL_SD + measured.relative_error().powi(2);
    let row = move |time_s: f64, shape_s: f64| Row {
        measured: time_s.ln(),
        shape: shape_s.ln(),
        precision: 1.0 / variance,
    };
    let gradient_s = measured.exchange_s.map(|exchange_s| measured.step_s - exchange_s);
    let gradient_s = gradient_s.filter(|gradient_s| *gradient_s > 0.0 && workers > 1);
    let step = row(measured.step_s, model.step_s(1, workers, share, 0));
    [Some(step), gradient_s.map(|gradient_s| row(gradient_s, model.gradient_s(share)))].into_iter().flatten()
}

/// The scale that fits a model best, and the logarithm of its likelihood up to a constant.
fn fit(rows: &[Row]) -> (f64, f64) {
    let precision: f64 = rows.iter().map(|row| row.precision).sum();
    if precision <= 0.0 {
        return (1.0, 0.0);
    }
    let sum: f64 = rows.iter().map(|row| row.precision * (row.measured - row.shape)).sum();
    let scale = sum / precision;
    let misfit = |row: &Row| row.precision * (row.measured - row.shape - scale).powi(2);
    (scale.exp(), -0.5 * rows.iter().map(misfit).sum::<f64>())
}
