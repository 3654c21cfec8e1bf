//! From measured throughput to the parameters of a model, and from these to predictions with intervals.
//!
//! # Model
//!
//! ```text
//! ln measured_i   = ln model(configuration_i; p) + e_i,   e_i ~ N(0, v)
//! v               ~ scaled inverse chi-squared, weight n0, scale s0^2
//! v given data    : scale s^2 = (n0 s0^2 + SSR) / (n0 + n - k)
//! interval        = prediction * exp( +- t * sqrt(s^2 + g' C g) ),   g = d ln model / d p
//! ```
//!
//! | symbol | meaning                                                                   | unit   |
//! |--------|---------------------------------------------------------------------------|--------|
//! | p, k   | parameters of the model; how many                                         | varied |
//! | n      | measurements                                                              | 1      |
//! | v      | variance of a measurement's logarithm                                     | 1      |
//! | SSR    | sum of the squared residuals of the fit                                   | 1      |
//! | s0, n0 | what is known of the noise beforehand, and how many measurements it weighs | 1     |
//! | C      | covariance of the parameters                                              | varied |
//! | t      | 97.5 % point of Student's distribution with n0 + n - k degrees of freedom | 1      |
//!
//! # Source
//!
//! Least squares, delta method and the conjugate prior of a variance are textbook (A. Gelman et al., Bayesian
//! Data Analysis, 3rd edition, 2013, ch. 3 and 14). The interval score: T. Gneiting and A. E. Raftery, J. Am. Stat.
//! Assoc. 102(477), 2007.
//!
//! # Assumes
//!
//! Measurements err independently and by the same relative amount. Few measurements say little of their own noise,
//! so [`Noise`] brings prior knowledge, which fades as measurements come: with two or three, their own
//! residuals would give intervals of no width, or of any. What a few measurements cannot tell of the model itself must
//! be wide in the interval: [`asynchronous`] therefore weighs all server times that fit, instead of taking the best.
//!
//! # Valid
//!
//! A prediction says whether it lies within the fitted numbers of workers and batches. An interval holds if the form
//! of the model does; it does not cover a change of regime that no measurement shows and no parameter stands for.
//!
//! # Checked by
//!
//! Known parameters recovered, intervals that cover as often as they say, in `tests/it/coarse_calibrate.rs`; measured
//! throughput that was not fitted, in `tests/it/accuracy_asynchronous.rs`.
//!
//! ```
//! use bellwether_model::calibrate::interval_score;
//! // An interval from 1 to 3, and a truth of 3.5: the width, and 2/0.05 = 40 times what it misses. 2 + 40 * 0.5 = 22.
//! assert!((interval_score(1.0, 3.0, 3.5) - 22.0).abs() < 1e-9);
//! ```

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedModel, Measurement};
use bellwether_core::prediction::{Configuration, JobDescription, Prediction, StepModel, Validity};

pub mod all_reduce;
pub mod asynchronous;
pub mod kinds;
mod noise;
mod score;

pub use noise::Noise;
pub use score::{IntervalScore, interval_score};

use crate::common::{check, parameter};
use crate::elastic;
use crate::scaling::Scaling;

const PLACE: &str = "calibrate";

/// Probability of every interval that a prediction carries.
pub const LEVEL: f64 = 0.95;

/// Predicts `configuration` with a model that [`asynchronous::fit`], [`all_reduce::fit`], [`Scaling::fit`] or
/// [`elastic::fit`] made.
///
/// # Errors
///
/// Returns an error on any of these: a model of another name, or one that lacks parameters; a configuration that the
/// model cannot speak of.
pub fn predict(fitted: &FittedModel, configuration: &Configuration) -> Result<Prediction, InputError> {
    if fitted.model == asynchronous::MODEL {
        asynchronous::predict(fitted, configuration)
    } else if fitted.model.starts_with(all_reduce::MODEL_PREFIX) {
        all_reduce::predict(fitted, configuration)
    } else if fitted.model == crate::scaling::MODEL {
        let job = JobDescription { name: String::new(), model: String::new(), batch: 0, devices: 0 };
        let scaling = Scaling::from_fitted(fitted)?;
        StepModel::predict(&scaling, &job, configuration)
            .map_err(|error| InputError::new(PLACE, error.to_string()))
    } else if fitted.model == elastic::MODEL {
        elastic::predict(fitted, configuration)
    } else {
        Err(InputError::new(PLACE, format!("unknown fitted model `{}`", fitted.model))
            .hint("ask the module that fitted it"))
    }
}

/// A measurement in the words of the fits.
#[derive(Debug, Clone, Copy)]
struct Point {
    workers: u32,
    /// Samples that one worker computes in a step.
    samples: f64,
    step_s: f64,
}

/// Checks what every fit needs of its measurements.
fn points(measurements: &[Measurement]) -> Result<Vec<Point>, InputError> {
    if measurements.is_empty() {
        return Err(InputError::new(PLACE, "there are no measurements").hint("run the job at least once"));
    }
    let mut points = Vec::with_capacity(measurements.len());
    for (index, measurement) in measurements.iter().enumerate() {
        let place = format!("{PLACE}, measurement {index}");
        let workers = measurement.configuration.workers();
        check::workers(&place, workers)?;
        check::not_positive(&place, "the step in seconds", measurement.step_s)?;
        let samples = measurement.configuration.batch as f64 / f64::from(workers);
        check::not_positive(&place, "the batch in samples", samples)?;
        points.push(Point { workers, samples, step_s: measurement.step_s });
    }
    Ok(points)
}

/// Measurements of synchronous training in the words of [`Scaling::fit`] and [`elastic::fit`].
pub fn rows(measurements: &[Measurement]) -> Vec<elastic::Row> {
    let row = |measurement: &Measurement| {
        let Measurement { configuration, step_s, exchange_s } = measurement;
        let replicas = configuration.workers();
        let local_batch = configuration.batch as f64 / f64::from(replicas.max(1));
        elastic::Row {
            nodes: configuration.nodes(),
            replicas,
            local_batch,
            step_s: *step_s,
            exchange_s: *exchange_s,
        }
    };
    measurements.iter().map(row).collect()
}

/// Smallest and largest number of workers and of global batch.
fn fitted_range(measurements: &[Measurement]) -> ((u32, u32), (u64, u64)) {
    let mut workers = (u32::MAX, 0);
    let mut batch = (u64::MAX, 0);
    for measurement in measurements {
        let configuration = &measurement.configuration;
        workers = (workers.0.min(configuration.workers()), workers.1.max(configuration.workers()));
        batch = (batch.0.min(configuration.batch), batch.1.max(configuration.batch));
    }
    (workers, batch)
}

/// Whether a configuration lies within what was fitted; `further` are reasons of the model at hand.
fn validity(fitted: &FittedModel, configuration: &Configuration, further: &[String]) -> Validity {
    let mut reasons = Vec::new();
    let workers = configuration.workers();
    if workers < fitted.workers.0 || workers > fitted.workers.1 {
        let (low, high) = fitted.workers;
        reasons.push(format!("{workers} workers, measured with {low} to {high}"));
    }
    if configuration.batch < fitted.batch.0 || configuration.batch > fitted.batch.1 {
        let (low, high) = fitted.batch;
        reasons.push(format!("batch {}, measured with {low} to {high}", configuration.batch));
    }
    reasons.extend_from_slice(further);
    if reasons.is_empty() { Validity::Interpolated } else { Validity::Extrapolated(reasons.join("; ")) }
}

/// The value of a parameter that is never negative and that the model cannot do without.
fn needed(fitted: &FittedModel, name: &str) -> Result<f64, InputError> {
    parameter::needed(PLACE, fitted, name, 0.0)
}
