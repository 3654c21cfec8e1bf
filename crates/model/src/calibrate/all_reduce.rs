//! Synchronous training with an all-reduce: computing per sample, exchange per byte and per hop.
//!
//! ```text
//! T = a m + b s + [ k(W) S beta + h(W) l ]        the bracket only with several workers
//! ```
//!
//! a is seconds per micro-batch of m, b seconds per sample of a worker's s, S the vector's bytes, beta seconds
//! per byte on a link, l seconds per hop; k and h are the algorithm's ([`Algorithm::link_bytes_per_byte`],
//! [`Algorithm::hops`]). All workers are taken to be linked alike, nothing to overlap: what the backward pass
//! hides makes beta small. Only terms are fitted that the measurements can tell apart.

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedModel, Measurement, Parameter};
use bellwether_core::prediction::{Bottleneck, Configuration, Prediction, Protocol};
use bellwether_numerics::least_squares::{Range, Unfit, delta_variance, least_squares};

use super::noise::student_point;
use super::{LEVEL, Noise, Point, fitted_range, needed, points, validity};
use crate::collective::Algorithm;
use crate::common::parameter::parameter;
use crate::common::{SPREAD_MAX, check};

/// How the name of the fitted model begins; the algorithm follows.
pub(super) const MODEL_PREFIX: &str = "collective::";

const PLACE: &str = "calibrate all-reduce";

/// Relative difference of samples per worker that is rounding of the global batch.
const SAME_SAMPLES: f64 = 1e-6;

/// The terms of a step, in the order of the equation.
const TERMS: [(&str, &str); 4] =
    [("fixed_s", "s"), ("per_sample_s", "s"), ("s_per_byte", "s/B"), ("latency_s", "s")];

/// What each term is multiplied with in one configuration.
fn factors(algorithm: Algorithm, workers: u32, samples: f64, accumulation: u32, bytes: f64) -> [f64; 4] {
    let exchanged = algorithm.link_bytes_per_byte(workers) * bytes;
    [f64::from(accumulation.max(1)), samples, exchanged, algorithm.hops(workers)]
}

/// Which terms the measurements can tell apart.
fn told_apart(points: &[Point], bytes: u64) -> Result<[bool; 4], InputError> {
    let different = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.len()
    };
    let batches = different(points.iter().map(|point| point.samples).collect());
    let several: Vec<f64> = points.iter().filter(|p| p.workers > 1).map(|p| f64::from(p.workers)).collect();
    let sizes = different(several);
    if sizes == 0 {
        return Err(InputError::new(PLACE, "no measurement has several workers")
            .hint("measure the job with at least two workers too"));
    }
    // With one batch per worker the two compute terms are one; it is given to the samples.
    Ok([batches > 1, true, bytes > 0, bytes == 0 || sizes > 1])
}

/// Fits the terms of a step to measurements of synchronous training, by relative least squares.
///
/// `bytes` is the size of the vector that is reduced. Where a measurement says how long its exchange took, this
/// is fitted too. The covariance is that of all parameters; constants have none.
///
/// # Errors
///
/// Returns an error on any of these: no measurement, one with another protocol or with servers, none with several
/// workers, or fewer than terms that are to be told apart; a negative exchange; noise that is not a distribution.
pub fn fit(
    measurements: &[Measurement],
    bytes: u64,
    algorithm: Algorithm,
    noise: &Noise,
) -> Result<FittedModel, InputError> {
    noise.check()?;
    let points = points(measurements)?;
    for (index, measurement) in measurements.iter().enumerate() {
        let place = format!("{PLACE}, measurement {index}");
        check_protocol(&place, &measurement.configuration)?;
        check::negative(&place, "the exchange in seconds", measurement.exchange_s.unwrap_or(0.0))?;
    }
    let kept = told_apart(&points, bytes)?;
    let terms: Vec<usize> = (0..TERMS.len()).filter(|&term| kept[term]).collect();
    let rows = rows(measurements, &points, algorithm, bytes);
    let ranges: Vec<Range> = terms.iter().map(|&term| start(term, &rows)).collect();
    let fit = least_squares(&ranges, rows.len(), |parameters, residuals| {
        for (residual, (factors, measured_s)) in residuals.iter_mut().zip(&rows) {
            let predicted_s: f64 = terms.iter().zip(parameters).map(|(&term, p)| p * factors[term]).sum();
            // A step of no time at all is a bad fit, and not an infinitely bad one.
            *residual = (predicted_s.max(1e-9 * measured_s) / measured_s).ln();
        }
    })
    .map_err(unfit)?;
    let (squares, degrees) = noise.with(fit.sum_of_squares(), fit.degrees_of_freedom() as f64);
    let variance = squares / degrees;
    let errors = fit.standard_errors(variance);
    let mut parameters: Vec<Parameter> = Vec::new();
    for (at, &term) in terms.iter().enumerate() {
        let (name, unit) = TERMS[term];
        let standard_error = errors.as_ref().map(|errors| errors[at]);
        parameters.push(Parameter { standard_error, ..parameter(name, unit, fit.parameters[at]) });
    }
    parameters.push(parameter("parameter_bytes", "B", bytes as f64));
    parameters.push(parameter("relative_noise", "1", variance.sqrt()));
    parameters.push(parameter("degrees_of_freedom", "1", degrees));
    if !kept[0] {
        parameters.push(parameter("samples_per_step", "1", points[0].samples));
    }
    let covariance = fit.unscaled_covariance.as_ref().map_or_else(Vec::new, |unscaled| {
        let (fitted, all) = (terms.len(), parameters.len());
        let mut covariance = vec![0.0; all * all];
        for i in 0..fitted {
            for j in 0..fitted {
                covariance[i * all + j] = unscaled[i * fitted + j] * variance;
            }
        }
        covariance
    });
    // Measured over fitted, of the steps: the first rows.
    let relative_residuals = fit.residuals[..points.len()].iter().map(|r| (-r).exp() - 1.0).collect();
    let (workers, batch) = fitted_range(measurements);
    let model = format!("{MODEL_PREFIX}{}", algorithm.name());
    Ok(FittedModel { model, parameters, covariance, relative_residuals, workers, batch })
}

/// One row per measured step, then one per measured exchange: factors of the terms, and seconds.
fn rows(
    measurements: &[Measurement],
    points: &[Point],
    algorithm: Algorithm,
    bytes: u64,
) -> Vec<([f64; 4], f64)> {
    let of = |measurement: &Measurement, point: &Point| {
        let accumulation = measurement.configuration.accumulation;
        factors(algorithm, point.workers, point.samples, accumulation, bytes as f64)
    };
    let pairs = || measurements.iter().zip(points);
    let mut rows: Vec<([f64; 4], f64)> = pairs().map(|(m, p)| (of(m, p), p.step_s)).collect();
    for (measurement, point) in pairs() {
        if let Some(exchange_s) = measurement.exchange_s.filter(|s| *s > 0.0 && point.workers > 1) {
            let [_, _, exchanged, hops] = of(measurement, point);
            rows.push(([0.0, 0.0, exchanged, hops], exchange_s));
        }
    }
    rows
}

/// A term that is half of the smallest step, which no term can exceed by much.
fn start(term: usize, rows: &[([f64; 4], f64)]) -> Range {
    let shares = rows.iter().filter(|(factors, _)| factors[term] > 0.0);
    let most = shares.map(|(factors, seconds)| seconds / factors[term]).fold(f64::INFINITY, f64::min);
    Range { start: most / 2.0, low: 0.0, high: f64::INFINITY }
}

/// What measurements lack of which no parameters can be found.
fn unfit(error: Unfit) -> InputError {
    const PLACE: &str = "least squares";
    let (place, hint) = match error {
        Unfit::Undetermined { .. } => (PLACE.to_owned(), "measure more configurations, or fit less"),
        Unfit::Range { parameter, .. } => (
            format!("{PLACE}, parameter {parameter}"),
            "the start must be finite, and the lower bound below the upper",
        ),
        Unfit::Undefined => (PLACE.to_owned(), "start from parameters for which the model is defined"),
    };
    InputError::new(place, error.to_string()).hint(hint)
}

fn check_protocol(place: &str, configuration: &Configuration) -> Result<(), InputError> {
    if configuration.protocol != Protocol::Bsp || configuration.servers != 0 {
        let what = format!("protocol {} with {} servers", configuration.protocol, configuration.servers);
        return Err(InputError::new(place, what).hint("this model is for bsp without parameter servers"));
    }
    Ok(())
}

/// Predicts with what [`fit`] found, with an interval for a measurement.
///
/// # Errors
///
/// Returns an error on any of these: another protocol, or servers; a model that lacks parameters.
pub fn predict(fitted: &FittedModel, configuration: &Configuration) -> Result<Prediction, InputError> {
    check_protocol(PLACE, configuration)?;
    let workers = configuration.workers();
    check::workers(PLACE, workers)?;
    let name = fitted.model.strip_prefix(MODEL_PREFIX).unwrap_or_default();
    let algorithm = Algorithm::of_name(name).ok_or_else(|| {
        InputError::new(PLACE, format!("`{}` names no algorithm", fitted.model)).hint("calibrate again")
    })?;
    let samples = configuration.batch as f64 / f64::from(workers);
    check::not_positive(PLACE, "the batch in samples", samples)?;
    let bytes = needed(fitted, "parameter_bytes")?;
    let factors = factors(algorithm, workers, samples, configuration.accumulation, bytes);
    let mut terms_s = [0.0; 4];
    let mut gradient = vec![0.0; fitted.parameters.len()];
    for (term, (name, _)) in TERMS.iter().enumerate() {
        if let Some(at) = fitted.parameters.iter().position(|parameter| parameter.name == *name) {
            terms_s[term] = needed(fitted, name)? * factors[term];
            gradient[at] = factors[term];
        }
    }
    let step_s: f64 = terms_s.iter().sum();
    check::not_positive(PLACE, "the predicted step in seconds", step_s)?;
    for slope in &mut gradient {
        *slope /= step_s;
    }
    let noise = needed(fitted, "relative_noise")?;
    let point = student_point(needed(fitted, "degrees_of_freedom")?, LEVEL)?;
    let mut further = Vec::new();
    // Without a covariance only the noise is known; the prediction then says so.
    let mut of_parameters = delta_variance(&gradient, &fitted.covariance);
    if !of_parameters.is_finite() {
        of_parameters = 0.0;
        further.push("the measurements do not determine the parameters".to_owned());
    }
    if fitted
        .value("samples_per_step")
        .is_some_and(|measured| (samples / measured - 1.0).abs() > SAME_SAMPLES)
    {
        further.push(
            "measured with one batch per worker; computing is taken to be proportional to it".to_owned(),
        );
    }
    let spread = (point * (noise * noise + of_parameters).sqrt()).min(SPREAD_MAX);
    let examples_per_s = configuration.batch as f64 / step_s;
    let computing_s = terms_s[0] + terms_s[1];
    Ok(Prediction {
        examples_per_s,
        low: examples_per_s * (-spread).exp(),
        high: examples_per_s * spread.exp(),
        step_s,
        bottleneck: if 2.0 * computing_s >= step_s { Bottleneck::Compute } else { Bottleneck::Link },
        validity: validity(fitted, configuration, &further),
    })
}
