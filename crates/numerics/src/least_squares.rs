//! Nonlinear least squares within bounds: Levenberg-Marquardt on the parameters that no bound holds.
//!
//! Our own, as the models that are fitted have at most a handful of parameters, each with bounds, and the crates
//! that offer the method have no bounds and bring a linear-algebra library along.

use std::fmt;

use crate::matrix::{cholesky, inverse, solve, squared};

/// Steps after which the search ends where it is; a well-posed fit takes about ten.
const ROUNDS_MAX: u32 = 500;

/// Relative step of numerical derivatives: about the cube root of the rounding error, for central ones.
const RELATIVE_STEP: f64 = 1e-5;

/// Damping at which no direction leads down any more.
const DAMPING_MAX: f64 = 1e20;

/// Where a parameter begins and within which ends it may move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The value to begin with; its size is also the scale on which the parameter matters.
    pub start: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value; may be infinite.
    pub high: f64,
}

/// Parameters with the smallest sum of squared residuals that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The parameters.
    pub parameters: Vec<f64>,
    /// The residuals there.
    pub residuals: Vec<f64>,
    /// Inverse of the squared Jacobian, row by row: the covariance of the parameters for residuals of variance 1.
    /// Bounds are ignored in it, so it errs to the wide side. Absent when the data do not determine every
    /// parameter.
    pub unscaled_covariance: Option<Vec<f64>>,
}

/// Why nothing can be fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unfit {
    /// No parameter, or fewer residuals than parameters.
    Undetermined {
        /// Residuals that there are.
        residuals: usize,
        /// Parameters that are asked for.
        parameters: usize,
    },
    /// Bounds that leave no room, or a start that is not finite.
    Range {
        /// Which parameter, counted from 0.
        parameter: usize,
        /// Its range.
        range: Range,
    },
    /// A residual at the start is not finite.
    Undefined,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Undetermined { residuals, parameters } => {
                write!(f, "{residuals} measurements do not determine {parameters} parameters")
            }
            Unfit::Range { range: Range { start, low, high }, .. } => {
                write!(f, "it starts at {start} between {low} and {high}")
            }
            Unfit::Undefined => write!(f, "a residual at the start is not finite"),
        }
    }
}

impl std::error::Error for Unfit {}

impl Fit {
    /// Sum of the squared residuals.
    pub fn sum_of_squares(&self) -> f64 {
        self.residuals.iter().map(|residual| residual * residual).sum()
    }

    /// Residuals less parameters.
    pub fn degrees_of_freedom(&self) -> usize {
        self.residuals.len() - self.parameters.len()
    }

    /// Standard errors of the parameters for residuals of this variance; none when undetermined.
    pub fn standard_errors(&self, residual_variance: f64) -> Option<Vec<f64>> {
        let (covariance, count) = (self.unscaled_covariance.as_ref()?, self.parameters.len());
        Some((0..count).map(|i| (covariance[i * count + i] * residual_variance).max(0.0).sqrt()).collect())
    }
}

/// Variance of a value with this gradient by the parameters (delta method).
///
/// `covariance` is that of the parameters, row by row; both lengths must agree, else it is infinite, as it is where the
/// covariance holds a NaN.
pub fn delta_variance(gradient: &[f64], covariance: &[f64]) -> f64 {
    let count = gradient.len();
    if covariance.len() != count * count || count == 0 {
        return f64::INFINITY;
    }
    let row = |i: usize| {
        let terms = covariance[i * count..(i + 1) * count].iter().zip(gradient);
        terms.map(|(c, g)| c * g).sum::<f64>()
    };
    let variance = gradient.iter().enumerate().map(|(i, g)| g * row(i)).sum::<f64>();
    // A NaN says nothing, and must not pass for certainty.
    if variance.is_nan() { f64::INFINITY } else { variance.max(0.0) }
}

/// Finds parameters with the smallest sum of squared residuals; a local minimum, begun from the starts.
///
/// `residuals` writes `count` residuals for given parameters; it is only asked within the bounds.
///
/// # Errors
///
/// Returns an error on any of these: no parameter, or fewer residuals than parameters; bounds that leave no room, or a
/// start that is not finite; residuals that are not finite at the start.
pub fn least_squares(
    ranges: &[Range],
    count: usize,
    mut residuals: impl FnMut(&[f64], &mut [f64]),
) -> Result<Fit, Unfit> {
    check(ranges, count)?;
    let mut search = Search::new(ranges, count);
    residuals(&search.parameters, &mut search.residuals);
    if search.residuals.iter().any(|residual| !residual.is_finite()) {
        return Err(Unfit::Undefined);
    }
    let mut damping = 1e-3;
    for _ in 0..ROUNDS_MAX {
        search.differentiate(&mut residuals);
        if !search.improve(&mut damping, &mut residuals) {
            break;
        }
    }
    search.differentiate(&mut residuals);
    let unscaled_covariance = inverse(&squared(&search.jacobian, ranges.len()), ranges.len());
    Ok(Fit { parameters: search.parameters, residuals: search.residuals, unscaled_covariance })
}

fn check(ranges: &[Range], count: usize) -> Result<(), Unfit> {
    if ranges.is_empty() || count < ranges.len() {
        return Err(Unfit::Undetermined { residuals: count, parameters: ranges.len() });
    }
    let is_wrong = |range: &Range| !(range.start.is_finite() && range.low < range.high);
    match ranges.iter().position(is_wrong) {
        Some(parameter) => Err(Unfit::Range { parameter, range: ranges[parameter] }),
        None => Ok(()),
    }
}

struct Search<'a> {
    ranges: &'a [Range],
    parameters: Vec<f64>,
    residuals: Vec<f64>,
    /// Row by row: one row per residual.
    jacobian: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(ranges: &'a [Range], count: usize) -> Self {
        Search {
            ranges,
            parameters: ranges.iter().map(|range| range.start.clamp(range.low, range.high)).collect(),
            residuals: vec![0.0; count],
            jacobian: vec![0.0; count * ranges.len()],
        }
    }

    /// Central differences, cut off at the bounds.
    fn differentiate(&mut self, residuals: &mut impl FnMut(&[f64], &mut [f64])) {
        let (width, count) = (self.ranges.len(), self.residuals.len());
        let (mut above, mut below) = (vec![0.0; count], vec![0.0; count]);
        let mut at = self.parameters.clone();
        for (j, range) in self.ranges.iter().enumerate() {
            let here = self.parameters[j];
            let scale = if here != 0.0 { here.abs() } else { range.start.abs() };
            let step = RELATIVE_STEP * if scale > 0.0 { scale } else { 1.0 };
            let (high, low) = ((here + step).min(range.high), (here - step).max(range.low));
            at[j] = high;
            residuals(&at, &mut above);
            at[j] = low;
            residuals(&at, &mut below);
            at[j] = here;
            for i in 0..count {
                let slope = (above[i] - below[i]) / (high - low);
                self.jacobian[i * width + j] = if slope.is_finite() { slope } else { 0.0 };
            }
        }
    }

    /// Goes down once, with as much damping as it takes; `false` where nothing leads down any more.
    fn improve(&mut self, damping: &mut f64, residuals: &mut impl FnMut(&[f64], &mut [f64])) -> bool {
        let width = self.ranges.len();
        let squared = squared(&self.jacobian, width);
        let gradient: Vec<f64> = (0..width)
            .map(|j| self.jacobian.chunks_exact(width).zip(&self.residuals).map(|(row, r)| row[j] * r).sum())
            .collect();
        // A parameter at a bound that the gradient presses against stays there.
        let free: Vec<usize> = (0..width)
            .filter(|&j| {
                let (here, range) = (self.parameters[j], self.ranges[j]);
                !(here <= range.low && gradient[j] > 0.0 || here >= range.high && gradient[j] < 0.0)
                    && squared[j * width + j] > 0.0
            })
            .collect();
        let before: f64 = self.residuals.iter().map(|r| r * r).sum();
        let mut candidate_residuals = vec![0.0; self.residuals.len()];
        while !free.is_empty() && before > 0.0 && *damping < DAMPING_MAX {
            let mut matrix = Vec::with_capacity(free.len() * free.len());
            for &i in &free {
                for &j in &free {
                    let damped = if i == j { 1.0 + *damping } else { 1.0 };
                    matrix.push(squared[i * width + j] * damped);
                }
            }
            let mut candidate = self.parameters.clone();
            if let Some(factor) = cholesky(&matrix, free.len()) {
                let right: Vec<f64> = free.iter().map(|&j| -gradient[j]).collect();
                for (&j, step) in free.iter().zip(solve(&factor, free.len(), &right)) {
                    candidate[j] = (candidate[j] + step).clamp(self.ranges[j].low, self.ranges[j].high);
                }
                residuals(&candidate, &mut candidate_residuals);
                let after: f64 = candidate_residuals.iter().map(|r| r * r).sum();
                if after < before {
                    self.parameters = candidate;
                    self.residuals = candidate_residuals;
                    *damping = (*damping / 5.0).max(1e-15);
                    return before - after > 1e-15 * before;
                }
            }
            *damping *= 4.0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(start: f64) -> Range {
        Range { start, low: 0.0, high: f64::INFINITY }
    }

    fn mean_of_three(p: &[f64], r: &mut [f64]) {
        for (r, y) in r.iter_mut().zip([1.0, 2.0, 6.0]) {
            *r = p[0] - y;
        }
    }

    #[test]
    fn a_curved_minimum_is_found_from_far_away() {
        // y = 3 exp(-0.5 x) at ten points.
        let decay = |p: &[f64], r: &mut [f64]| {
            for (x, r) in r.iter_mut().enumerate() {
                *r = p[0] * (-p[1] * x as f64).exp() - 3.0 * (-0.5 * x as f64).exp();
            }
        };
        let fit = least_squares(&[from(0.1), from(5.0)], 10, decay).unwrap();
        assert!((fit.parameters[0] - 3.0).abs() < 1e-6 && (fit.parameters[1] - 0.5).abs() < 1e-6, "{fit:?}");
        assert_eq!(fit.degrees_of_freedom(), 8);
        assert!(fit.sum_of_squares() < 1e-11);
    }

    #[test]
    fn errors_are_those_of_the_textbook() {
        // The mean of 1, 2, 6: s^2 = 7, and 7/3 of the mean.
        let fit = least_squares(&[from(1.0)], 3, mean_of_three).unwrap();
        let variance = fit.sum_of_squares() / fit.degrees_of_freedom() as f64;
        assert!((variance - 7.0).abs() < 1e-6);
        let error = fit.standard_errors(variance).unwrap()[0];
        assert!((error * error - 7.0 / 3.0).abs() < 1e-6);
        let covariance = fit.unscaled_covariance.as_deref().unwrap();
        assert!((delta_variance(&[2.0], covariance) - 4.0 / 3.0).abs() < 1e-6);
        // What cannot be said is not certain.
        assert_eq!(delta_variance(&[1.0, 2.0], covariance), f64::INFINITY);
        assert_eq!(delta_variance(&[1.0], &[f64::NAN]), f64::INFINITY);
    }

    #[test]
    fn a_bound_bites() {
        let fit = least_squares(&[Range { start: 5.0, low: 4.0, high: 9.0 }], 3, mean_of_three).unwrap();
        assert_eq!(fit.parameters, [4.0]);
    }

    #[test]
    fn what_only_matters_together_has_no_covariance() {
        let sum = |p: &[f64], r: &mut [f64]| {
            for (r, y) in r.iter_mut().zip([1.0, 2.0, 6.0]) {
                *r = p[0] + p[1] - y;
            }
        };
        let fit = least_squares(&[from(1.0), from(1.0)], 3, sum).unwrap();
        assert!((fit.parameters[0] + fit.parameters[1] - 3.0).abs() < 1e-6);
        assert_eq!(fit.unscaled_covariance, None);
        assert_eq!(fit.standard_errors(1.0), None);
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        let range = |low, high| Range { start: 1.0, low, high };
        let unfit = |ranges: &[Range], residual: f64| {
            least_squares(ranges, 1, |_, r| r[0] = residual).expect_err("it cannot be fitted")
        };
        assert_eq!(unfit(&[range(0.0, 2.0); 2], 0.0), Unfit::Undetermined { residuals: 1, parameters: 2 });
        let empty = range(2.0, 2.0);
        assert_eq!(unfit(&[empty], 0.0), Unfit::Range { parameter: 0, range: empty });
        assert_eq!(unfit(&[range(0.0, 2.0)], f64::NAN), Unfit::Undefined);
    }
}
