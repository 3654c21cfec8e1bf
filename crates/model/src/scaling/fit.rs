//! Fit of one law to measured steps.

use bellwether_des::statistics::mean;
use bellwether_numerics::minimize::{Bounds, huber, minimize};

use super::belief::Belief;
use super::form::{EXPONENT_RANGE, Form, Law};
use crate::elastic::{BETWEEN_NODES, GAMMA, LEAST_S, MOST_S, Row, mean_step_s};

/// Error that a measured step is believed to have, relative: it sets what a prior is worth.
const MEASURED_SD: f64 = 0.05;
/// Standard deviation of the belief that compute and exchange add up, which is gamma = 1.
const GAMMA_SD: f64 = 2.0;
/// Standard deviation of the belief that an exchange does not grow: of beta/alpha around 0.
const GROWTH_SD: f64 = 0.3;

/// What a set of rows observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) alone: bool,
    pub(super) in_node: bool,
    pub(super) over_nodes: bool,
}

impl Observed {
    pub(super) fn of(rows: &[Row]) -> Self {
        Observed {
            alone: rows.iter().any(|row| row.replicas == 1),
            in_node: rows.iter().any(|row| row.nodes == 1 && row.replicas > 1),
            over_nodes: rows.iter().any(|row| row.nodes > 1),
        }
    }
}

/// The law of this form that is nearest to `rows`; a search from `near` only, when that is given.
pub(super) fn fit(form: Form, rows: &[Row], belief: &Belief, near: Option<&Law>) -> Law {
    let bounds = bounds(form, rows);
    let starts = near.map_or_else(|| starts(rows, belief), |law| vec![encode(law)]);
    let cost = |x: &[f64]| cost(&decode(form, x), rows, belief);
    let mut law = decode(form, &minimize(cost, &bounds, &starts).x);
    if !Observed::of(rows).over_nodes {
        // `Shared` counts both passes of a ring as one time.
        let passes = if form == Form::Shared { 2.0 } else { 1.0 };
        for (between, within) in [(4, 2), (5, 3)] {
            law.values[between] = law.values[between].max(passes * BETWEEN_NODES * law.values[within]);
        }
    }
    law
}

/// Squared errors in standard deviations, and the beliefs about what the rows may leave open.
fn cost(law: &Law, rows: &[Row], belief: &Belief) -> f64 {
    let mut sum = 0.0;
    for row in rows {
        let step_s = law.step_s(row.nodes, row.replicas, row.local_batch, 0);
        sum += huber((step_s / row.step_s).ln() / MEASURED_SD);
        // Of a single replica the gradient is the step, which must not count twice.
        if let (Some(gradient_s), true) = (row.gradient_s(), row.replicas > 1) {
            sum += huber((law.gradient_s(row.local_batch) / gradient_s).ln() / MEASURED_SD);
        }
    }
    let [_, _, alpha_r, beta_r, alpha_n, beta_n, gamma] = law.values;
    let growth = (beta_r / alpha_r).powi(2) + (beta_n / alpha_n).powi(2);
    let exponents = match law.form {
        Form::Shared => {
            belief.exponents.iter().zip(law.exponents).map(|(belief, value)| belief.misfit(value)).sum()
        }
        _ => 0.0,
    };
    sum + ((gamma - GAMMA.0) / GAMMA_SD).powi(2) + growth / GROWTH_SD.powi(2) + exponents
}

fn bounds(form: Form, rows: &[Row]) -> Bounds {
    let (least, most) = (LEAST_S.ln(), MOST_S.ln());
    let (mut lower, mut upper) = (vec![least; 10], vec![most; 10]);
    (lower[6], upper[6]) = GAMMA;
    for index in 7..10 {
        (lower[index], upper[index]) = EXPONENT_RANGE;
    }
    let mut bounds = Bounds::new(lower, upper).expect("the least time is below the most");
    if form != Form::Shared {
        (7..10).for_each(|index| bounds.fix(index, 0.0));
    }
    let observed = Observed::of(rows);
    let crowded = rows.iter().any(|row| row.replicas > row.nodes);
    if !(observed.in_node || (form == Form::Hierarchy && crowded)) {
        bounds.fix(2, least);
        bounds.fix(3, least);
    }
    if !observed.over_nodes {
        bounds.fix(4, least);
        bounds.fix(5, least);
    }
    if form == Form::Shared {
        bounds.fix(5, least);
    }
    let batch = rows[0].local_batch;
    if rows.iter().all(|row| row.local_batch == batch) {
        // One batch says nothing of the share that does not depend on it: half, as in Pollux.
        let gradients: Vec<f64> = rows.iter().filter_map(Row::gradient_s).collect();
        if !gradients.is_empty() {
            bounds.fix(0, (0.5 * mean(&gradients)).clamp(LEAST_S, MOST_S).ln());
        }
    }
    bounds
}

fn starts(rows: &[Row], belief: &Belief) -> Vec<Vec<f64>> {
    let mean_s = mean_step_s(rows);
    let per_sample_s = rows
        .iter()
        .map(|row| row.gradient_s().unwrap_or(row.step_s) / row.local_batch)
        .fold(f64::MAX, f64::min);
    let start = |constant: f64, exchange: f64, gamma: f64| {
        let ln = |seconds: f64| seconds.clamp(LEAST_S, MOST_S).ln();
        let exchange_s = exchange * mean_s;
        let growth_s = 0.02 * exchange_s;
        let exchange = [ln(0.4 * exchange_s), ln(growth_s), ln(exchange_s), ln(growth_s)];
        let exponents = belief.exponents.map(|belief| belief.mean);
        [&[ln(constant * mean_s), ln(per_sample_s)], &exchange[..], &[gamma], &exponents].concat()
    };
    vec![start(0.5, 0.5, 1.5), start(0.05, 2.0, 1.2), start(0.2, 0.05, 3.0), start(0.01, 0.5, 1.1)]
}

fn decode(form: Form, x: &[f64]) -> Law {
    let values = std::array::from_fn(|index| if index < 6 { x[index].exp() } else { x[index] });
    Law { form, weight: 1.0, values, exponents: std::array::from_fn(|index| x[7 + index]) }
}

fn encode(law: &Law) -> Vec<f64> {
    let values = law.values.iter().enumerate();
    let values = values.map(|(index, value)| if index < 6 { value.ln() } else { *value });
    values.chain(law.exponents).collect()
}
