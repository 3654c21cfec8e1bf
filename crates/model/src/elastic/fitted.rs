//! The fitted throughput model as data, with the uncertainty of its parameters.

use bellwether_core::error::InputError;
use bellwether_core::fitted::{FittedModel, Parameter};
use bellwether_core::prediction::{Bottleneck, Configuration, Prediction, Protocol, Validity};
use bellwether_des::statistics::student_quantile;
use bellwether_numerics::matrix::{inverse, squared};

use super::{Fit, Row, Throughput};
use crate::common::parameter::{kind, needed, parameter};

/// What a fitted model of this module is called.
pub const MODEL: &str = "elastic";
const COUNT: usize = 7;
const PARAMETERS: [(&str, &str); COUNT] = [
    ("alpha_c", "s"),
    ("beta_c", "s/sample"),
    ("alpha_n", "s"),
    ("beta_n", "s/replica"),
    ("alpha_r", "s"),
    ("beta_r", "s/replica"),
    ("gamma", "1"),
];
/// A time below this, in seconds, is the bound that stands for "not observed".
const UNOBSERVED_S: f64 = 1.1e-8;
/// Relative change of a parameter for its derivative.
const CHANGE: f64 = 1e-5;

impl Throughput {
    fn values(&self) -> [f64; COUNT] {
        [self.alpha_c, self.beta_c, self.alpha_n, self.beta_n, self.alpha_r, self.beta_r, self.gamma]
    }

    fn from_values([alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma]: [f64; COUNT]) -> Self {
        Throughput { alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma }
    }

    /// The model that [`Fit::to_fitted`] wrote.
    ///
    /// # Errors
    ///
    /// Returns an error for another model, or a missing or invalid parameter.
    pub fn from_fitted(fitted: &FittedModel) -> Result<Throughput, InputError> {
        kind(MODEL, fitted, MODEL)?;
        let mut values = [0.0; COUNT];
        for (slot, (name, _)) in values.iter_mut().zip(PARAMETERS) {
            *slot = needed(MODEL, fitted, name, if name == "gamma" { 1.0 } else { 0.0 })?;
        }
        if values[0] + values[1] <= 0.0 {
            return Err(InputError::new(MODEL, "a gradient of the fitted model takes no time")
                .hint("`alpha_c` or `beta_c` must be positive"));
        }
        Ok(Throughput::from_values(values))
    }
}

impl Fit {
    /// The model as data. `rows` are those that it was fitted to.
    ///
    /// The covariance is that of least squares in the logarithms, around the fit. Parameters that lie at a bound have
    /// no standard error and count as known; without more errors than free parameters there is no covariance at all.
    pub fn to_fitted(&self, rows: &[Row]) -> FittedModel {
        let step_s = |row: &Row| self.model.step_s(row.nodes, row.replicas, row.local_batch, 0);
        let free = free(&self.model, rows);
        let covariance = covariance(&self.model, rows, &free);
        let values = self.model.values();
        let of = |index: usize| {
            let (name, unit) = PARAMETERS[index];
            let known = covariance.as_ref().filter(|_| free[index]);
            let standard_error = known.map(|covariance| covariance[index * COUNT + index].sqrt());
            Parameter { standard_error, ..parameter(name, unit, values[index]) }
        };
        let replicas = || rows.iter().map(|row| row.replicas);
        let batch = || rows.iter().map(|row| (row.local_batch * f64::from(row.replicas)).round() as u64);
        FittedModel {
            model: MODEL.into(),
            parameters: (0..COUNT).map(of).collect(),
            relative_residuals: rows.iter().map(|row| row.step_s / step_s(row) - 1.0).collect(),
            workers: (replicas().min().unwrap_or(0), replicas().max().unwrap_or(0)),
            batch: (batch().min().unwrap_or(0), batch().max().unwrap_or(0)),
            covariance: covariance.unwrap_or_default(),
        }
    }
}

/// Which parameters the rows determine: observed, and not at a bound.
fn free(model: &Throughput, rows: &[Row]) -> [bool; COUNT] {
    let over_nodes = rows.iter().any(|row| row.nodes > 1);
    let in_node = rows.iter().any(|row| row.nodes == 1 && row.replicas > 1);
    let observed = [true, true, over_nodes, over_nodes, in_node, in_node, over_nodes || in_node];
    let values = model.values();
    std::array::from_fn(|index| {
        let inside = if index == COUNT - 1 {
            values[index] > 1.0 + CHANGE && values[index] < 10.0 - CHANGE
        } else {
            values[index] > UNOBSERVED_S
        };
        observed[index] && inside
    })
}

/// Logarithmic errors of step times, and of gradient times where they were measured.
fn errors(model: &Throughput, rows: &[Row]) -> Vec<f64> {
    let step = |row: &Row| (model.step_s(row.nodes, row.replicas, row.local_batch, 0) / row.step_s).ln();
    let gradient = |row: &Row| Some((model.gradient_s(row.local_batch) / row.gradient_s()?).ln());
    // Of a single replica the step is the gradient, and is counted once.
    let exchanging = rows.iter().filter(|row| row.replicas > 1);
    rows.iter().map(step).chain(exchanging.filter_map(gradient)).collect()
}

/// `s^2 (J^T J)^-1`, row by row, with rows and columns of 0 for parameters that are not free.
fn covariance(model: &Throughput, rows: &[Row], free: &[bool; COUNT]) -> Option<Vec<f64>> {
    let base = errors(model, rows);
    let moved: Vec<usize> = (0..COUNT).filter(|&index| free[index]).collect();
    let freedom = base.len().checked_sub(moved.len()).filter(|&freedom| freedom > 0)?;
    let variance = base.iter().map(|error| error * error).sum::<f64>() / freedom as f64;
    // By logarithms of the parameters, which keeps the matrix well scaled.
    let mut jacobian = vec![0.0; base.len() * moved.len()];
    for (column, &index) in moved.iter().enumerate() {
        let shifted = |factor: f64| {
            let mut values = model.values();
            values[index] *= factor;
            errors(&Throughput::from_values(values), rows)
        };
        let (high, low) = (shifted(1.0 + CHANGE), shifted(1.0 - CHANGE));
        for (row, (high, low)) in high.iter().zip(low).enumerate() {
            jacobian[row * moved.len() + column] = (high - low) / (2.0 * CHANGE);
        }
    }
    let inverse = inverse(&squared(&jacobian, moved.len()), moved.len())?;
    let values = model.values();
    let mut covariance = vec![0.0; COUNT * COUNT];
    for (row, &i) in moved.iter().enumerate() {
        for (column, &j) in moved.iter().enumerate() {
            let of_logarithms = variance * inverse[row * moved.len() + column];
            covariance[i * COUNT + j] = of_logarithms * values[i] * values[j];
        }
    }
    Some(covariance)
}

/// Predicts `configuration` with a model that [`Fit::to_fitted`] wrote. The interval is that of one more measurement
/// with the residuals of the fit.
///
/// # Errors
///
/// Returns an error on any of these: another model; a configuration without workers, or that is not synchronous.
pub fn predict(fitted: &FittedModel, configuration: &Configuration) -> Result<Prediction, InputError> {
    let throughput = Throughput::from_fitted(fitted)?;
    let replicas = configuration.workers();
    if replicas == 0 || configuration.protocol != Protocol::Bsp || configuration.servers > 0 {
        return Err(InputError::new(MODEL, "this model knows only synchronous workers without servers"));
    }
    let pieces = configuration.accumulation.max(1);
    let local_batch = configuration.batch as f64 / f64::from(replicas) / f64::from(pieces);
    let nodes = configuration.nodes();
    let step_s = throughput.step_s(nodes, replicas, local_batch, pieces - 1);
    let residuals = &fitted.relative_residuals;
    let squares: f64 = residuals.iter().map(|residual| residual.ln_1p().powi(2)).sum();
    // Some of the parameters usually lie at a bound, where nothing is fitted: half of all count.
    let freedom = (residuals.len() as f64 - COUNT as f64 / 2.0).max(1.0);
    let spread = (student_quantile(0.975, freedom) * (squares / freedom + NOISE * NOISE).sqrt()).exp();
    let examples_per_s = configuration.batch as f64 / step_s;
    let (least, most) = fitted.workers;
    let validity = if (least..=most).contains(&replicas) {
        Validity::Interpolated
    } else {
        Validity::Extrapolated(format!("{replicas} workers, measured with {least} to {most}"))
    };
    let exchange_s = throughput.exchange_s(nodes, replicas);
    let waits = exchange_s > throughput.gradient_s(local_batch) * f64::from(pieces);
    Ok(Prediction {
        examples_per_s,
        low: examples_per_s / spread,
        high: examples_per_s * spread,
        step_s,
        bottleneck: if waits { Bottleneck::Link } else { Bottleneck::Compute },
        validity,
    })
}

/// Relative error that a measured step is believed to have at least.
const NOISE: f64 = 0.02;
