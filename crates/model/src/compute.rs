//! Time that a worker computes for one step: of the measured steps, of another batch, of the slowest of many.
//!
//! # Model
//!
//! ```text
//! t(s)          = max(floor, a + b s)                                  s samples on one worker
//! E[max of W]   = sum_i x_(i) [ (i/n)^W - ((i-1)/n)^W ]                n measured steps, sorted
//! exponential   : mean H_W,    H_W = 1 + 1/2 + ... + 1/W
//! Gaussian      : E[max of W] <= mean + sd sqrt(2 ln W)
//! ```
//!
//! | symbol | meaning                                         | unit |
//! |--------|-------------------------------------------------|------|
//! | s      | samples that one worker computes in a step      | 1    |
//! | a      | seconds of a step whatever the batch            | s    |
//! | b      | seconds per sample                              | s    |
//! | floor  | least seconds of a step; 0 where none was seen  | s    |
//! | x_(i)  | i-th smallest measured duration                 | s    |
//! | W      | workers that wait for each other                | 1    |
//!
//! # Source
//!
//! The sum is the mean of the bootstrap distribution of the maximum of W draws with replacement (B. Efron,
//! Ann. Statist. 7(1), 1979), written out: no sampling is needed, as P(max <= x_(i)) = (i/n)^W. The
//! exponential and Gaussian forms are textbook order statistics (H. A. David and H. N. Nagaraja, Order
//! Statistics, 2003; the Gaussian bound follows from Jensen's inequality).
//!
//! # Assumes
//!
//! Workers draw independently from the same durations. The empirical form knows no step slower than those
//! measured, so it is too low where W is much larger than the number of steps; the exponential form is for
//! tails known to be heavy. The linear form has a floor because a device that is not full takes as long for
//! fewer samples: a straight line through large batches falls below what small ones take. A floor is fitted
//! only where at least two measured batches show it; below the smallest measured batch the time falls
//! along the line otherwise, and not below `a`.
//!
//! # Valid
//!
//! Batches within the measured ones; W up to about the number of measured steps.
//!
//! # Checked by
//!
//! The closed forms below; `tests/it/coarse_laws.rs`: the expected maximum rises with W and stays between mean and
//! maximum, and equals a brute-force enumeration; the fit finds the line and the floor that made its data.
//!
//! ```
//! use bellwether_model::compute::Durations;
//! // Of 1 s and 3 s, the larger of two draws is 1 s with probability 1/4: 0.25 + 3 * 0.75 = 2.5 s.
//! let durations = Durations::new(&[3.0, 1.0]).expect("two durations");
//! assert!((durations.expected_maximum_s(2) - 2.5).abs() < 1e-12);
//! ```

use bellwether_core::InputError;
use bellwether_des::statistics::{mean, percentile};

use crate::common::check::{negative, not_positive};

const PLACE: &str = "compute";

/// Measured durations of the same work, in seconds; at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    sorted_s: Vec<f64>,
}

impl Durations {
    /// Takes measured seconds in any order.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no durations; a negative one; one that is not finite.
    pub fn new(seconds: &[f64]) -> Result<Durations, InputError> {
        if seconds.is_empty() {
            return Err(InputError::new(PLACE, "there are no measured steps").hint("measure at least one"));
        }
        for &duration in seconds {
            negative(PLACE, "a duration in seconds", duration)?;
        }
        let mut sorted_s = seconds.to_vec();
        sorted_s.sort_by(f64::total_cmp);
        Ok(Durations { sorted_s })
    }

    /// The same durations, each `factor` times as long: another share of the work, or another device.
    ///
    /// The relative spread is kept, as if what slows a step slowed the whole step; where the parts of a step vary
    /// independently, a small share spreads more, and a sum of many less.
    ///
    /// # Errors
    ///
    /// Returns an error for a factor that is not positive and finite.
    pub fn scaled(&self, factor: f64) -> Result<Durations, InputError> {
        not_positive(PLACE, "the factor of the durations", factor)?;
        Ok(Durations { sorted_s: self.sorted_s.iter().map(|seconds| seconds * factor).collect() })
    }

    /// All of them, shortest first.
    pub(crate) fn sorted_s(&self) -> &[f64] {
        &self.sorted_s
    }

    /// Number of measured steps.
    pub fn count(&self) -> usize {
        self.sorted_s.len()
    }

    /// Mean seconds.
    pub fn mean_s(&self) -> f64 {
        mean(&self.sorted_s)
    }

    /// Standard deviation in seconds, of the sample (divided by n - 1); 0 of a single duration.
    pub fn standard_deviation_s(&self) -> f64 {
        let mean = self.mean_s();
        let squares: f64 = self.sorted_s.iter().map(|seconds| (seconds - mean).powi(2)).sum();
        (squares / (self.sorted_s.len() - 1).max(1) as f64).sqrt()
    }

    /// Squared coefficient of variation: variance over squared mean; 0 where the mean is 0.
    pub fn squared_variation(&self) -> f64 {
        let mean = self.mean_s();
        if mean > 0.0 { (self.standard_deviation_s() / mean).powi(2) } else { 0.0 }
    }

    /// The duration that the fraction `p` of the steps does not exceed, interpolated between neighbours; `p`
    /// is clamped to 0..=1.
    pub fn percentile_s(&self, p: f64) -> f64 {
        percentile(&self.sorted_s, p).expect("there is at least one duration")
    }

    /// Mean of the slowest of `workers` independent draws, exact for the measured distribution; the mean
    /// for 0 and 1.
    pub fn expected_maximum_s(&self, workers: u32) -> f64 {
        let count = self.sorted_s.len() as f64;
        let exponent = f64::from(workers.max(1));
        let mut below = 0.0;
        let mut expected = 0.0;
        for (index, seconds) in self.sorted_s.iter().enumerate() {
            let up_to = ((index + 1) as f64 / count).powf(exponent);
            expected += seconds * (up_to - below);
            below = up_to;
        }
        expected
    }
}

/// Mean of the slowest of `workers` draws from an exponential distribution: `mean_s` times the harmonic number.
///
/// # Errors
///
/// Returns an error for a negative mean.
pub fn exponential_maximum_s(mean_s: f64, workers: u32) -> Result<f64, InputError> {
    negative(PLACE, "the mean in seconds", mean_s)?;
    Ok(mean_s * harmonic_number(workers.max(1)))
}

/// Upper bound of the mean of the slowest of `workers` Gaussian draws: `mean_s + sd_s sqrt(2 ln W)`.
///
/// # Errors
///
/// Returns an error for a negative mean or standard deviation.
pub fn gaussian_maximum_bound_s(mean_s: f64, sd_s: f64, workers: u32) -> Result<f64, InputError> {
    negative(PLACE, "the mean in seconds", mean_s)?;
    negative(PLACE, "the standard deviation in seconds", sd_s)?;
    Ok(mean_s + sd_s * (2.0 * f64::from(workers.max(1)).ln()).sqrt())
}

/// Sum of the reciprocals of 1 to `n`; from 1,000 on by Euler's expansion, which is exact to 1e-14 there.
fn harmonic_number(n: u32) -> f64 {
    const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;
    if n <= 1_000 {
        (1..=n).map(|i| 1.0 / f64::from(i)).sum()
    } else {
        let n = f64::from(n);
        n.ln() + EULER_GAMMA + 1.0 / (2.0 * n) - 1.0 / (12.0 * n * n)
    }
}

/// Seconds of a worker's step by its batch: `max(floor_s, fixed_s + per_sample_s * samples)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchTime {
    /// Seconds whatever the batch, at least 0.
    pub fixed_s: f64,
    /// Seconds per sample, at least 0.
    pub per_sample_s: f64,
    /// Least seconds of a step; 0 where the measurements show no floor.
    pub floor_s: f64,
}

impl BatchTime {
    /// Seconds of a step of `samples`.
    pub fn seconds(&self, samples: u64) -> f64 {
        self.floor_s.max(self.fixed_s + self.per_sample_s * samples as f64)
    }

    /// Fits line and floor to measured (samples, seconds), by relative least squares.
    ///
    /// Every cut of the sorted batches into a flat beginning (at least two batches, or none) and a line
    /// (at least two batches) is tried, and the one with the smallest residuals kept; of equals, the one with
    /// the shorter floor.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: fewer than two different batches; durations that are not positive.
    pub fn fit(measured: &[(u64, f64)]) -> Result<BatchTime, InputError> {
        for &(_, seconds) in measured {
            not_positive(PLACE, "a step's seconds", seconds)?;
        }
        let mut points = measured.to_vec();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // Indices at which a new batch begins.
        let starts: Vec<usize> =
            (0..points.len()).filter(|&i| i == 0 || points[i].0 != points[i - 1].0).collect();
        if starts.len() < 2 {
            let what = format!("{} different batches do not determine a line", starts.len());
            return Err(InputError::new(PLACE, what).hint("measure at least two different batches"));
        }
        let mut best = (f64::INFINITY, BatchTime { fixed_s: 0.0, per_sample_s: 0.0, floor_s: 0.0 });
        for flat in (0..=starts.len() - 2).filter(|&flat| flat != 1) {
            let (below, above) = points.split_at(starts[flat]);
            let (fixed_s, per_sample_s) = relative_line(above);
            let candidate = BatchTime { fixed_s, per_sample_s, floor_s: relative_constant(below) };
            let squares = points.iter().map(|&(s, t)| (candidate.seconds(s) / t - 1.0).powi(2)).sum::<f64>();
            if squares < best.0 * (1.0 - 1e-9) - 1e-24 || best.0.is_infinite() {
                best = (squares, candidate);
            }
        }
        let BatchTime { fixed_s, per_sample_s, floor_s } = best.1;
        if !(fixed_s + per_sample_s + floor_s).is_finite() {
            return Err(InputError::new(PLACE, "no line can be told from these durations")
                .hint("measure batches that are further apart"));
        }
        Ok(best.1)
    }
}

/// The constant with the least squared relative residuals; 0 without points.
fn relative_constant(points: &[(u64, f64)]) -> f64 {
    let (mut first, mut second) = (0.0, 0.0);
    for (_, seconds) in points {
        first += 1.0 / seconds;
        second += 1.0 / (seconds * seconds);
    }
    if second > 0.0 { first / second } else { 0.0 }
}

/// Intercept and slope, both at least 0, with the least squared relative residuals.
fn relative_line(points: &[(u64, f64)]) -> (f64, f64) {
    let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(samples, seconds) in points {
        let (x, weight) = (samples as f64, 1.0 / (seconds * seconds));
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wy += weight * seconds;
        wxy += weight * x * seconds;
    }
    let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    let intercept = (wy - slope * wx) / w;
    if slope < 0.0 {
        (wy / w, 0.0)
    } else if intercept < 0.0 {
        (0.0, wxy / wxx)
    } else {
        (intercept, slope)
    }
}

/// Virtual nodes of the worker that holds most of them, when `workers` share them as evenly as they go.
///
/// # Errors
///
/// Returns an error on any of these: no worker, no virtual node, or more workers than virtual nodes.
pub fn most_virtual_nodes(virtual_nodes: u32, workers: u32) -> Result<u32, InputError> {
    if virtual_nodes == 0 || workers == 0 || workers > virtual_nodes {
        let what = format!("{workers} workers cannot share {virtual_nodes} virtual nodes");
        return Err(InputError::new(PLACE, what).hint("take from 1 worker to as many as virtual nodes"));
    }
    Ok(virtual_nodes.div_ceil(workers))
}
