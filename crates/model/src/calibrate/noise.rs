//! What is known of the noise of throughput measurements before any is taken.

use bellwether_core::InputError;
use bellwether_des::statistics::student_quantile;

use crate::common::check;

/// Prior knowledge of the relative standard deviation of a measurement: a scaled inverse chi-squared
/// distribution of the variance.
///
/// The default says 2 %, and weighs as much as 3 measurements: 95 % of it lies between 1.1 % and 7.5 %. Repeated
/// measurements of training throughput on rented machines scatter by 1 to 3 %, seldom by up to 7 %
/// (S. Li et al., CM-DARE, ICDCS 2020: published standard deviations of its runs).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Expected relative standard deviation.
    pub relative_deviation: f64,
    /// Measurements that this knowledge weighs as much as.
    pub weight: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Noise { relative_deviation: 0.02, weight: 3.0 }
    }
}

impl Noise {
    /// Refuses what is not a distribution.
    pub(super) fn check(&self) -> Result<(), InputError> {
        check::not_positive("noise", "the relative standard deviation", self.relative_deviation)?;
        check::not_positive("noise", "the weight in measurements", self.weight)
    }

    /// Sum of squares of the prior and of a fit together, and their degrees of freedom.
    pub(super) fn with(&self, sum_of_squares: f64, degrees_of_freedom: f64) -> (f64, f64) {
        let prior = self.weight * self.relative_deviation.powi(2);
        (prior + sum_of_squares, self.weight + degrees_of_freedom)
    }
}

/// The point that Student's distribution exceeds with probability `(1 - level)/2`.
pub(super) fn student_point(degrees_of_freedom: f64, level: f64) -> Result<f64, InputError> {
    check::not_positive("noise", "the degrees of freedom", degrees_of_freedom)?;
    Ok(student_quantile((1.0 + level) / 2.0, degrees_of_freedom))
}
