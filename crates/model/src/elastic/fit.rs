//! Fit of the throughput model to measured steps.

use bellwether_core::error::InputError;
use bellwether_des::statistics::mean;
use bellwether_numerics::minimize::{Bounds, minimize};

use super::Throughput;
use crate::common::check;

/// One measured configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Nodes that hold replicas.
    pub nodes: u32,
    /// Replicas, one per device.
    pub replicas: u32,
    /// Samples of one micro-batch of one replica; a mean where they differ.
    pub local_batch: f64,
    /// Seconds of a step without accumulation.
    pub step_s: f64,
    /// Seconds of it in which the replica only waited for the exchange, where that was measured.
    pub exchange_s: Option<f64>,
}

/// A fitted throughput model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Its parameters.
    pub model: Throughput,
    /// What was minimised, at the parameters: see [`objective`].
    pub objective: f64,
}

/// Smallest value of a time, in seconds: it stands for "not observed".
pub(crate) const LEAST_S: f64 = 1e-8;
/// Largest value of a time, in seconds.
pub(crate) const MOST_S: f64 = 1e4;
/// Smallest and largest overlap.
pub(crate) const GAMMA: (f64, f64) = (1.0, 10.0);
/// Weight of `(gamma - 1)^2`: without it gamma wanders where the data do not care.
const GAMMA_WEIGHT: f64 = 1e-3;
/// Weight of `(beta/alpha)^2` of an exchange: a mild belief that it grows slowly.
const GROWTH_WEIGHT: f64 = 1e-2;
/// What an unobserved exchange between nodes costs at least, relative to that in a node.
pub(crate) const BETWEEN_NODES: f64 = 1.1;

impl Row {
    /// Seconds of the gradient alone, where they are known.
    pub fn gradient_s(&self) -> Option<f64> {
        match self.exchange_s {
            Some(exchange_s) => Some(self.step_s - exchange_s),
            None if self.replicas == 1 => Some(self.step_s),
            None => None,
        }
    }

    /// Finds out whether the row can be used at all.
    ///
    /// # Errors
    ///
    /// Returns the number of the row and what is wrong with it.
    fn check(&self, index: usize) -> Result<(), InputError> {
        let place = format!("measurement {}", index + 1);
        if self.nodes == 0 || self.replicas < self.nodes {
            let what = format!("{} replicas in {} nodes", self.replicas, self.nodes);
            return Err(InputError::new(place, what).hint("every node holds one or more"));
        }
        check::not_positive(&place, "the local batch in samples", self.local_batch)?;
        check::not_positive(&place, "the step in seconds", self.step_s)?;
        check::negative(&place, "the exchange in seconds", self.exchange_s.unwrap_or(0.0))?;
        if self.gradient_s().is_some_and(|gradient_s| gradient_s <= 0.0) {
            return Err(InputError::new(place, "the exchange takes as long as the whole step")
                .hint("give the part that nothing hides"));
        }
        Ok(())
    }
}

/// Finds out whether there are rows, and whether each can be used.
///
/// # Errors
///
/// Returns an error if there are no rows, or the number of a row that cannot be used and what is wrong with it.
pub(crate) fn check_rows(rows: &[Row]) -> Result<(), InputError> {
    if rows.is_empty() {
        return Err(
            InputError::new("measurements", "there are none").hint("measure at least one configuration")
        );
    }
    rows.iter().enumerate().try_for_each(|(index, row)| row.check(index))
}

/// Fits the model to `rows`, without accumulation.
///
/// Minimises [`objective`]. What no row observes is set optimistically: without rows of several nodes
/// `a_n` and `b_n` are 1.1 times those in a node; without rows of several replicas in a node `a_r` and `b_r` are 0;
/// without rows of more than two replicas `b_r` and `b_n` are 0; with one local batch only, half of the gradient time
/// does not depend on the batch.
///
/// # Errors
///
/// Returns an error if there are no rows, or for an invalid one: no replica, a time or batch that is not positive, an
/// exchange as long as its step.
pub fn fit(rows: &[Row]) -> Result<Fit, InputError> {
    check_rows(rows)?;
    let (bounds, starts) = search_space(rows);
    let prepared = Prepared::new(rows);
    let found = minimize(|x| prepared.objective(&decode(x)), &bounds, &starts);
    let mut model = decode(&found.x);
    if !rows.iter().any(|row| row.nodes > 1) {
        model.alpha_n = model.alpha_n.max(BETWEEN_NODES * model.alpha_r);
        model.beta_n = model.beta_n.max(BETWEEN_NODES * model.beta_r);
    }
    Ok(Fit { model, objective: found.value })
}

/// What [`fit`] minimises: the root mean square of the logarithmic errors of the gradient time and of the step
/// time, plus `1e-3 (g - 1)^2 + 1e-2 ((b_n/a_n)^2 + (b_r/a_r)^2)`.
pub fn objective(model: &Throughput, rows: &[Row]) -> f64 {
    Prepared::new(rows).objective(model)
}

/// The rows with their logarithms, grouped by what shares an exchange.
struct Prepared {
    rows: Vec<PreparedRow>,
    gradients: usize,
}

struct PreparedRow {
    nodes: u32,
    replicas: u32,
    local_batch: f64,
    ln_step: f64,
    ln_gradient: Option<f64>,
}

impl Prepared {
    fn new(rows: &[Row]) -> Self {
        let prepare = |row: &Row| PreparedRow {
            nodes: row.nodes,
            replicas: row.replicas,
            local_batch: row.local_batch,
            ln_step: row.step_s.ln(),
            ln_gradient: row.gradient_s().map(f64::ln),
        };
        let rows: Vec<PreparedRow> = rows.iter().map(prepare).collect();
        let gradients = rows.iter().filter(|row| row.ln_gradient.is_some()).count();
        Prepared { rows, gradients }
    }

    fn objective(&self, model: &Throughput) -> f64 {
        let (mut gradient_sum, mut step_sum) = (0.0, 0.0);
        let (mut known, mut exchange_s) = ((0, 0), 0.0);
        for row in &self.rows {
            if known != (row.nodes, row.replicas) {
                known = (row.nodes, row.replicas);
                exchange_s = model.exchange_s(row.nodes, row.replicas);
            }
            let gradient_s = model.gradient_s(row.local_batch);
            let ln_gradient = gradient_s.ln();
            let mut ln_step = ln_gradient;
            if exchange_s > 0.0 {
                let ratio = model.gamma * (exchange_s.ln() - ln_gradient);
                // ln(1 + e^r), with e^r taken of the negative number.
                ln_step += (ratio.max(0.0) + (-ratio.abs()).exp().ln_1p()) / model.gamma;
            }
            step_sum += (ln_step - row.ln_step).powi(2);
            if let Some(measured) = row.ln_gradient {
                gradient_sum += (ln_gradient - measured).powi(2);
            }
        }
        let growth = (model.beta_n / model.alpha_n).powi(2) + (model.beta_r / model.alpha_r).powi(2);
        (step_sum / self.rows.len() as f64).sqrt()
            + (gradient_sum / self.gradients.max(1) as f64).sqrt()
            + GAMMA_WEIGHT * (model.gamma - 1.0).powi(2)
            + GROWTH_WEIGHT * growth
    }
}

/// Times are searched by their logarithm.
fn decode(x: &[f64]) -> Throughput {
    Throughput {
        alpha_c: x[0].exp(),
        beta_c: x[1].exp(),
        alpha_n: x[2].exp(),
        beta_n: x[3].exp(),
        alpha_r: x[4].exp(),
        beta_r: x[5].exp(),
        gamma: x[6],
    }
}

/// Mean seconds of a step.
pub(crate) fn mean_step_s(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.step_s).sum::<f64>() / rows.len() as f64
}

fn search_space(rows: &[Row]) -> (Bounds, Vec<Vec<f64>>) {
    let (least, most) = (LEAST_S.ln(), MOST_S.ln());
    let mut lower = vec![least; 7];
    let mut upper = vec![most; 7];
    (lower[6], upper[6]) = GAMMA;
    let mut bounds = Bounds::new(lower, upper).expect("the least time is below the most");
    let gradients: Vec<f64> = rows.iter().filter_map(Row::gradient_s).collect();
    let mean_s = if gradients.is_empty() { mean_step_s(rows) } else { mean(&gradients) };
    let batch = rows[0].local_batch;
    if rows.iter().all(|row| row.local_batch == batch) {
        bounds.fix(0, (0.5 * mean_s).clamp(LEAST_S, MOST_S).ln());
    }
    let several_nodes = rows.iter().any(|row| row.nodes > 1);
    let several_in_a_node = rows.iter().any(|row| row.nodes == 1 && row.replicas > 1);
    let more_than_two = rows.iter().any(|row| row.replicas > 2);
    for (index, observed) in [
        (2, several_nodes),
        (3, several_nodes && more_than_two),
        (4, several_in_a_node),
        (5, several_in_a_node && more_than_two),
    ] {
        if !observed {
            bounds.fix(index, least);
        }
    }
    let largest = rows.iter().map(|row| row.local_batch).fold(0.0, f64::max);
    let start = |constant: f64, exchange: f64, gamma: f64| {
        let alpha = (constant * mean_s).max(LEAST_S).ln();
        let beta = (mean_s / largest).max(LEAST_S).ln();
        let exchange = (exchange * mean_s).max(LEAST_S).ln();
        vec![alpha, beta, exchange, exchange - 4.0, exchange - 1.0, exchange - 5.0, gamma]
    };
    (bounds, vec![start(0.5, 0.5, 1.5), start(0.05, 2.0, 1.2), start(0.2, 0.05, 3.0), start(0.9, 1.0, 2.0)])
}
