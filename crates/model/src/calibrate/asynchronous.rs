//! Asynchronous training through servers: how long a step computes, and how long it keeps the busiest station.
//!
//! The model is [`crate::queueing::low_variance`] with one station. Throughput below the knee hardly tells how
//! long the station works per step: all small times fit. So no best fit is taken; every station time gets the weight
//! that prior and measurements give it, and predictions carry the spread that remains.
//!
//! With u the station's share of a lone step T, and f(n; u) the throughput of n workers whose lone step is 1 s:
//!
//! ```text
//! ln X_i = f(W_i; u) - ln T + e_i
//! ln T | u  = mean_i( ln f(W_i; u) - ln X_i ),   SSR(u) = sum of squares around it
//! weight(u) = prior(u) * (n0 s0^2 + SSR(u))^( -(n0 + n - 1)/2 )
//! ```
//!
//! T and the noise are integrated in closed form (Student's distribution given u), u on a grid of its logarithm.

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedModel, Measurement, Parameter};
use bellwether_core::prediction::{Bottleneck, Configuration, Prediction, Protocol, Validity};
use bellwether_des::statistics::{mean, student_probability};

use super::noise::student_point;
use super::{LEVEL, Noise, Point, fitted_range, needed, points, validity};
use crate::common::parameter::parameter;
use crate::common::{SPREAD_MAX, check};
use crate::queueing::{self, ClosedNetwork, exact, low_variance, multiclass};

/// Name of the fitted model.
pub(super) const MODEL: &str = "queueing";

const PLACE: &str = "calibrate asynchronous";

/// Shares of the station that are weighed.
const GRID: usize = 600;

/// A time of the station whose 95 % ends are further apart than this factor is not determined.
const UNDETERMINED: f64 = 4.0;

/// Relative difference of samples per worker that is rounding of the global batch.
const SAME_SAMPLES: f64 = 1e-6;

/// What is known of the busiest station before throughput is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServerTime {
    /// Only that the knee lies somewhere between 1 and this many workers, each order of magnitude as likely as
    /// any other; at least ten times as many as were measured.
    Unknown {
        /// The largest number of workers at which the knee may be.
        largest_knee: f64,
    },
    /// Seconds per step, from bytes and bandwidth or from measuring the server, right up to a factor.
    About {
        /// Seconds that the busiest station works per step.
        demand_s: f64,
        /// Standard deviation of the logarithm of that estimate.
        relative_deviation: f64,
    },
}

/// What is known before throughput is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// The busiest station.
    pub server_time: ServerTime,
    /// The noise of a measurement.
    pub noise: Noise,
    /// Squared coefficient of variation of the station's times, 0 to 1.
    pub squared_variation: f64,
    /// Beyond the most workers W that were measured, the interval begins no higher than at X(W) (n/W)^this, 0 to 1,
    /// where the station's time is [unknown](ServerTime::Unknown): 0 says that more workers may add nothing.
    pub least_gain: f64,
}

impl Default for Prior {
    /// A knee anywhere up to 1,000 workers, and steady station times: an update of the same parameters takes the same
    /// time every step. Measured knees are sharper than those of any queue, so the least gain is what 12 measured
    /// series gained: the largest that holds 95 % of them, which `examples/accuracy_asynchronous.rs` prints.
    fn default() -> Self {
        Prior {
            server_time: ServerTime::Unknown { largest_knee: 1_000.0 },
            noise: Noise::default(),
            squared_variation: 0.0,
            least_gain: 0.35,
        }
    }
}

/// All station times that fit, with their weights.
#[derive(Debug, Clone)]
pub struct Posterior {
    prior: Prior,
    measured: usize,
    samples: f64,
    degrees_of_freedom: f64,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// The station's share of a lone step.
    share: f64,
    /// Sums to 1 over all.
    weight: f64,
    log_step_s: f64,
    /// Squared scale of the logarithm of a measurement.
    variance: f64,
}

impl Candidate {
    fn network(&self) -> Result<ClosedNetwork, InputError> {
        let step_s = self.log_step_s.exp();
        ClosedNetwork::new(step_s * (1.0 - self.share), &[step_s * self.share])
    }
}

/// Weighs all station times by the measurements.
///
/// # Errors
///
/// Returns an error on any of these: no measurement, or one that is not asynchronous through servers; different numbers
/// of servers, or of samples per worker; fewer than two different numbers of workers where the station's time is
/// unknown; a prior that is not a distribution, or that excludes what was measured.
pub fn posterior(measurements: &[Measurement], prior: &Prior) -> Result<Posterior, InputError> {
    prior.noise.check()?;
    if !(0.0..=1.0).contains(&prior.least_gain) {
        let what = format!("the least gain is {}", prior.least_gain);
        return Err(InputError::new(PLACE, what).hint("it is between 0, nothing, and 1, in proportion"));
    }
    let points = points(measurements)?;
    let samples = check_alike(measurements, &points)?;
    let most = points.iter().map(|point| point.workers).max().unwrap_or(1);
    let grid = grid(prior, &points, most)?;
    let mut candidates = Vec::with_capacity(GRID);
    let mut log_weights = Vec::with_capacity(GRID);
    for (share, width) in grid {
        let (log_step_s, squares) = match_step(share, &points, prior.squared_variation)?;
        let (all_squares, degrees) = prior.noise.with(squares, (points.len() - 1) as f64);
        let log_prior = match prior.server_time {
            ServerTime::Unknown { .. } => 0.0,
            ServerTime::About { demand_s, relative_deviation } => {
                -0.5 * ((share.ln() + log_step_s - demand_s.ln()) / relative_deviation).powi(2)
            }
        };
        log_weights.push(log_prior + width.ln() - degrees / 2.0 * all_squares.ln());
        candidates.push(Candidate { share, weight: 0.0, log_step_s, variance: all_squares / degrees });
    }
    let largest = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !largest.is_finite() {
        let what = "what is known of the servers' time excludes every time that the measurements allow";
        return Err(InputError::new(PLACE, what).hint("say how far that time may be off"));
    }
    let total: f64 = log_weights.iter().map(|log_weight| (log_weight - largest).exp()).sum();
    for (candidate, log_weight) in candidates.iter_mut().zip(&log_weights) {
        candidate.weight = (log_weight - largest).exp() / total;
    }
    let degrees_of_freedom = prior.noise.weight + (points.len() - 1) as f64;
    Ok(Posterior { prior: *prior, measured: points.len(), samples, degrees_of_freedom, candidates })
}

/// Shares of the station, each with the width of its cell in logarithms.
fn grid(prior: &Prior, points: &[Point], most: u32) -> Result<Vec<(f64, f64)>, InputError> {
    let (low, high) = match prior.server_time {
        ServerTime::Unknown { largest_knee } => {
            check::not_positive(PLACE, "the largest knee in workers", largest_knee)?;
            if points.iter().all(|point| point.workers == points[0].workers) {
                let what =
                    format!("all measurements are of {most} workers, which does not tell two parameters");
                return Err(InputError::new(PLACE, what).hint(
                    "measure another number of workers, or say about how long the servers work per step",
                ));
            }
            ((1.0 / largest_knee.max(10.0 * f64::from(most))).ln(), 0.0)
        }
        ServerTime::About { demand_s, relative_deviation } => {
            check::not_positive(PLACE, "the servers' seconds per step", demand_s)?;
            check::not_positive(PLACE, "their relative deviation", relative_deviation)?;
            // The lone step lies between what the measurements say without any waiting, and with nothing else.
            let steps = points.iter().map(|point| point.step_s);
            let longest_s = steps.clone().fold(0.0, f64::max);
            let shortest_s = points.iter().map(|point| point.step_s / f64::from(point.workers));
            let shortest_s = shortest_s.fold(f64::INFINITY, f64::min);
            let reach = 6.0 * relative_deviation;
            let high = ((demand_s / shortest_s).ln() + reach).min(0.0);
            (((demand_s / longest_s).ln() - reach).min(high - 1.0), high)
        }
    };
    let width = (high - low) / GRID as f64;
    Ok((0..GRID).map(|i| ((low + (i as f64 + 0.5) * width).exp(), width)).collect())
}

/// The logarithm of the lone step that fits best with this share, and the squares that remain.
fn match_step(share: f64, points: &[Point], squared_variation: f64) -> Result<(f64, f64), InputError> {
    let unit = ClosedNetwork::new(1.0 - share, &[share])?;
    let mut logs = Vec::with_capacity(points.len());
    for point in points {
        let throughput_per_s = low_variance(&unit, squared_variation, point.workers)?.throughput_per_s;
        let measured_per_s = f64::from(point.workers) / point.step_s;
        logs.push(throughput_per_s.ln() - measured_per_s.ln());
    }
    let mean = mean(&logs);
    Ok((mean, logs.iter().map(|log| (log - mean).powi(2)).sum()))
}

/// Refuses measurements that are not of one job, and returns the samples of one worker's step.
fn check_alike(measurements: &[Measurement], points: &[Point]) -> Result<f64, InputError> {
    let samples = points[0].samples;
    let servers = measurements[0].configuration.servers;
    for (index, (measurement, point)) in measurements.iter().zip(points).enumerate() {
        let place = format!("{PLACE}, measurement {index}");
        check_protocol(&place, &measurement.configuration)?;
        if measurement.configuration.servers != servers {
            let what = format!("it has {} servers, the first {servers}", measurement.configuration.servers);
            return Err(InputError::new(place, what).hint("fit each number of servers by itself"));
        }
        if (point.samples / samples - 1.0).abs() > SAME_SAMPLES {
            let what = format!("a worker's step has {} samples, that of the first {samples}", point.samples);
            return Err(InputError::new(place, what).hint("fit each batch by itself"));
        }
    }
    Ok(samples)
}

fn check_protocol(place: &str, configuration: &Configuration) -> Result<(), InputError> {
    if configuration.protocol != Protocol::Asp || configuration.servers == 0 {
        let what = format!("protocol {} with {} servers", configuration.protocol, configuration.servers);
        return Err(
            InputError::new(place, what).hint("this model is for asp through at least one parameter server")
        );
    }
    Ok(())
}

impl Posterior {
    /// The share of a lone step that the station takes with probability `p` at most, with the step that fits it.
    fn quantile(&self, p: f64) -> Candidate {
        let mut below = 0.0;
        for candidate in &self.candidates {
            below += candidate.weight;
            if below >= p {
                return *candidate;
            }
        }
        self.candidates[self.candidates.len() - 1]
    }

    /// Steps per second that a measurement with `workers` exceeds with probability `1 - p`: the whole mixture,
    /// of which the fitted model keeps a summary.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no worker, or more than a million; a `p` that is not between 0 and 1.
    pub fn throughput_quantile_per_s(&self, workers: u32, p: f64) -> Result<f64, InputError> {
        if !(p > 0.0 && p < 1.0) {
            return Err(
                InputError::new(PLACE, format!("the probability is {p}")).hint("it is between 0 and 1")
            );
        }
        let mut parts = Vec::with_capacity(self.candidates.len());
        for candidate in self.candidates.iter().filter(|candidate| candidate.weight > 1e-9) {
            let network = candidate.network()?;
            let mean = low_variance(&network, self.prior.squared_variation, workers)?.throughput_per_s.ln();
            let scale = (candidate.variance * (1.0 + 1.0 / self.measured as f64)).sqrt();
            parts.push((candidate.weight, mean, scale));
        }
        let below = |log: f64| -> f64 {
            let of = |(weight, mean, scale): &(f64, f64, f64)| {
                weight * student_probability((log - mean) / scale, self.degrees_of_freedom)
            };
            parts.iter().map(of).sum()
        };
        let total = below(f64::MAX);
        let mut low = parts.iter().map(|part| part.1 - 60.0 * part.2).fold(f64::INFINITY, f64::min);
        let mut high = parts.iter().map(|part| part.1 + 60.0 * part.2).fold(f64::NEG_INFINITY, f64::max);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if below(middle) < p * total { low = middle } else { high = middle }
        }
        Ok(((low + high) / 2.0).exp())
    }
}

/// Fits step and station to measurements of asynchronous training.
///
/// Parameters: `delay_s` and `demand_s` at the median of the posterior; the same at its 2.5 % and 97.5 % points,
/// `optimistic_` and `pessimistic_`; `squared_variation`; `least_gain`; the noise; `servers` and `samples_per_step`
/// of the measurements. A standard error is absent where the measurements leave the station's time open.
///
/// # Errors
///
/// Same errors as [`posterior`].
pub fn fit(measurements: &[Measurement], prior: &Prior) -> Result<FittedModel, InputError> {
    let posterior = posterior(measurements, prior)?;
    let tail = (1.0 - LEVEL) / 2.0;
    let median = posterior.quantile(0.5);
    let (optimistic, pessimistic) = (posterior.quantile(tail), posterior.quantile(1.0 - tail));
    let split = |candidate: &Candidate| {
        let step_s = candidate.log_step_s.exp();
        (step_s * (1.0 - candidate.share), step_s * candidate.share)
    };
    let (delay_s, demand_s) = split(&median);
    let (optimistic_delay_s, optimistic_demand_s) = split(&optimistic);
    let (pessimistic_delay_s, pessimistic_demand_s) = split(&pessimistic);
    let determined = pessimistic_demand_s / optimistic_demand_s < UNDETERMINED;
    // The two ends are 2 * 1.96 standard deviations apart, where the posterior is about Gaussian.
    let error = |low: f64, high: f64| determined.then_some((high - low).abs() / 3.92);
    let with_error = |name: &str, value: f64, standard_error: Option<f64>| Parameter {
        standard_error,
        ..parameter(name, "s", value)
    };
    let least_gain = match prior.server_time {
        ServerTime::Unknown { .. } => prior.least_gain,
        ServerTime::About { .. } => 1.0,
    };
    let variance: f64 =
        posterior.candidates.iter().map(|candidate| candidate.weight * candidate.variance).sum();
    let noise = (variance * (1.0 + 1.0 / posterior.measured as f64)).sqrt();
    let parameters = vec![
        with_error("delay_s", delay_s, error(pessimistic_delay_s, optimistic_delay_s)),
        with_error("demand_s", demand_s, error(optimistic_demand_s, pessimistic_demand_s)),
        parameter("optimistic_delay_s", "s", optimistic_delay_s),
        parameter("optimistic_demand_s", "s", optimistic_demand_s),
        parameter("pessimistic_delay_s", "s", pessimistic_delay_s),
        parameter("pessimistic_demand_s", "s", pessimistic_demand_s),
        parameter("squared_variation", "1", prior.squared_variation),
        parameter("least_gain", "1", least_gain),
        parameter("relative_noise", "1", noise * student_point(posterior.degrees_of_freedom, LEVEL)?),
        parameter("servers", "1", f64::from(measurements[0].configuration.servers)),
        parameter("samples_per_step", "1", posterior.samples),
    ];
    let (workers, batch) = fitted_range(measurements);
    let network = ClosedNetwork::new(delay_s, &[demand_s])?;
    let mut relative_residuals = Vec::with_capacity(measurements.len());
    for measurement in measurements {
        let count = measurement.configuration.workers();
        let predicted_s = low_variance(&network, prior.squared_variation, count)?.cycle_s;
        // Of the throughput, as predictions are.
        relative_residuals.push(predicted_s / measurement.step_s - 1.0);
    }
    let model = MODEL.to_owned();
    Ok(FittedModel { model, parameters, covariance: Vec::new(), relative_residuals, workers, batch })
}

/// Workers of one class: what [`fit`] found of them, how many they are, and how much faster than those that it was
/// fitted to they compute.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// What was fitted.
    pub fitted: &'a FittedModel,
    /// How many workers.
    pub workers: u32,
    /// Speed of their devices, relative to the fitted ones.
    pub speed: f64,
}

/// Predicts workers of several classes at the same servers, which take as long for a step of any: exact mean-value
/// analysis of the classes, corrected by what steady stations are worth to as many equal workers. The station's time is
/// the geometric mean of what the classes were fitted to, its ends the least and the largest of theirs.
///
/// # Errors
///
/// Returns an error on any of these: no class; classes with different samples per step; a speed that is not above 0; a
/// model that lacks parameters or is of another kind.
pub fn predict_classes(classes: &[Class<'_>], servers: u32) -> Result<Prediction, InputError> {
    let workers = classes.iter().fold(0_u32, |sum, class| sum.saturating_add(class.workers));
    check::workers(PLACE, workers)?;
    let samples = needed(classes[0].fitted, "samples_per_step")?;
    for class in classes {
        check::not_positive(PLACE, "the speed of a device", class.speed)?;
        let other = needed(class.fitted, "samples_per_step")?;
        if (other / samples - 1.0).abs() > SAME_SAMPLES {
            let what = format!("the classes were measured with {samples} and {other} samples per step");
            return Err(InputError::new(PLACE, what).hint("measure all with one batch per worker"));
        }
    }
    let solve = |prefix: &str, joined: &dyn Fn(&[f64]) -> f64| -> Result<(f64, f64), InputError> {
        let mut found = Vec::with_capacity(classes.len());
        for class in classes {
            let demand_s = needed(class.fitted, &format!("{prefix}demand_s"))?;
            let scale = needed(class.fitted, "servers")? / f64::from(servers.max(1));
            let step_s = needed(class.fitted, &format!("{prefix}delay_s"))? + demand_s;
            found.push((step_s, demand_s * scale));
        }
        let demand_s = joined(&found.iter().map(|(_, demand_s)| *demand_s).collect::<Vec<_>>());
        let of_class = |(class, (step_s, _)): (&Class<'_>, &(f64, f64))| queueing::Class {
            workers: class.workers,
            delay_s: (step_s - demand_s).max(0.0) / class.speed,
            demands_s: vec![demand_s],
        };
        let stations: Vec<queueing::Class> = classes.iter().zip(&found).map(of_class).collect();
        let throughput_per_s: f64 = multiclass(&stations)?.throughput_per_s.iter().sum();
        let delays_s = stations.iter().map(|class| f64::from(class.workers) * class.delay_s);
        let equal = ClosedNetwork::new(delays_s.sum::<f64>() / f64::from(workers), &[demand_s])?;
        let steady = low_variance(&equal, needed(classes[0].fitted, "squared_variation")?, workers)?;
        let correction = steady.throughput_per_s / exact(&equal, workers)?.throughput_per_s;
        Ok((throughput_per_s * correction, equal.lone_step_s() / demand_s))
    };
    let geometric = |values: &[f64]| mean(&values.iter().map(|value| value.ln()).collect::<Vec<_>>()).exp();
    let (throughput_per_s, knee) = solve("", &geometric)?;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let (most_per_s, _) = solve("optimistic_", &least)?;
    let (least_per_s, _) = solve("pessimistic_", &largest)?;
    let mut noise = 0.0_f64;
    for class in classes {
        noise = noise.max(needed(class.fitted, "relative_noise")?);
    }
    let rates = Rates { throughput_per_s, least_per_s, most_per_s, noise, knee };
    let validity = Validity::Extrapolated("several types of device together were not measured".into());
    Ok(rates.prediction(workers, samples, validity))
}

/// Steps per second of all workers, with what the station's time leaves open.
struct Rates {
    throughput_per_s: f64,
    least_per_s: f64,
    most_per_s: f64,
    /// Half the width of the interval of a measurement, in logarithms.
    noise: f64,
    /// Workers from which on the station is what they wait for.
    knee: f64,
}

impl Rates {
    fn prediction(&self, workers: u32, samples: f64, validity: Validity) -> Prediction {
        let Rates { throughput_per_s, least_per_s, most_per_s, noise, knee } = *self;
        let down = (throughput_per_s / least_per_s).ln().max(0.0).hypot(noise).min(SPREAD_MAX);
        let up = (most_per_s / throughput_per_s).ln().max(0.0).hypot(noise).min(SPREAD_MAX);
        let examples_per_s = throughput_per_s * samples;
        Prediction {
            examples_per_s,
            low: examples_per_s * (-down).exp(),
            high: examples_per_s * up.exp(),
            step_s: f64::from(workers) / throughput_per_s,
            bottleneck: if f64::from(workers) < knee { Bottleneck::Compute } else { Bottleneck::Server },
            validity,
        }
    }
}

/// Predicts with what [`fit`] found.
///
/// The interval is for a measurement: it joins what the station's time leaves open with the noise, as if both
/// were independent; beyond the measured workers it reaches down to their [least gain](Prior::least_gain). With
/// another number of servers than fitted the station's time is divided among them evenly, and the prediction marked as
/// extrapolated.
///
/// # Errors
///
/// Returns an error on any of these: another protocol, no servers, another number of samples per worker; a model that
/// lacks parameters.
pub fn predict(fitted: &FittedModel, configuration: &Configuration) -> Result<Prediction, InputError> {
    check_protocol(PLACE, configuration)?;
    let workers = configuration.workers();
    check::workers(PLACE, workers)?;
    let samples = needed(fitted, "samples_per_step")?;
    let asked = configuration.batch as f64 / f64::from(workers);
    if (asked / samples - 1.0).abs() > SAME_SAMPLES {
        let what = format!("a worker's step has {asked} samples, and the model was fitted to {samples}");
        return Err(InputError::new(PLACE, what).hint("measure this batch too, and fit it by itself"));
    }
    let servers = needed(fitted, "servers")?;
    let scale = servers / f64::from(configuration.servers);
    let mut further = Vec::new();
    if scale != 1.0 {
        further.push(format!(
            "{} servers, measured with {servers}; the parameters are taken to be spread evenly",
            configuration.servers
        ));
    }
    let squared_variation = needed(fitted, "squared_variation")?;
    let solve = |prefix: &str, workers: u32| -> Result<(f64, f64), InputError> {
        let delay_s = needed(fitted, &format!("{prefix}delay_s"))?;
        let demand_s = needed(fitted, &format!("{prefix}demand_s"))?;
        let network = ClosedNetwork::new(delay_s, &[demand_s * scale])?;
        let solution = low_variance(&network, squared_variation, workers)?;
        Ok((solution.throughput_per_s, network.lone_step_s() / (demand_s * scale)))
    };
    let (throughput_per_s, knee) = solve("", workers)?;
    let (most_per_s, least_per_s) = (solve("optimistic_", workers)?.0, solve("pessimistic_", workers)?.0);
    let least_per_s = match fitted.value("least_gain") {
        Some(_) if workers > fitted.workers.1.max(1) => {
            let known = fitted.workers.1.max(1);
            let times = f64::from(workers) / f64::from(known);
            least_per_s.min(solve("", known)?.0 * times.powf(needed(fitted, "least_gain")?))
        }
        // Few workers, or a file of an earlier version.
        _ => least_per_s,
    };
    let noise = needed(fitted, "relative_noise")?;
    let rates = Rates { throughput_per_s, least_per_s, most_per_s, noise, knee };
    Ok(rates.prediction(workers, samples, validity(fitted, configuration, &further)))
}
