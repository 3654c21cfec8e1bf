//! Nonlinear least squares within bounds: Levenberg-Marquardt on the parameters that no bound holds.
//!
//! Our own, as models here have at most a handful of parameters, each with bounds, and the crates that offer the
//! method have no bounds and bring a linear-algebra library along.

use bellwether_core::InputError;

const PLACE: &str = "least squares";

/// Steps after which the search ends where it is; a well-posed fit takes about ten.
const ROUNDS_MAX: u32 = 500;

/// Relative step of numerical derivatives: about the cube root of the rounding error, for central ones.
const RELATIVE_STEP: f64 = 1e-5;

/// A parameter's correlation with the others beyond which it counts as undetermined: `1 - R^2` below this.
const SINGULAR: f64 = 1e-10;

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
    /// Whether each parameter lies at one of its bounds.
    pub at_bound: Vec<bool>,
    /// Inverse of the squared Jacobian, row by row: the covariance of the parameters for residuals of variance 1.
    /// Bounds are ignored in it, so it errs to the wide side. Absent when the data do not determine every
    /// parameter.
    pub unscaled_covariance: Option<Vec<f64>>,
}

impl Fit {
    /// Sum of the squared residuals.
    pub fn sum_of_squares(&self) -> f64 {
        self.residuals.iter().map(|residual| residual * residual).sum()
    }

    /// Residuals less parameters.
    pub fn degrees_of_freedom(&self) -> usize {
        self.residuals.len() - self.parameters.len()
    }

    /// Estimated variance of a residual; none when there are as many parameters as residuals.
    pub fn residual_variance(&self) -> Option<f64> {
        let degrees = self.degrees_of_freedom();
        (degrees > 0).then(|| self.sum_of_squares() / degrees as f64)
    }

    /// Standard errors of the parameters for residuals of this variance; none when undetermined.
    pub fn standard_errors(&self, residual_variance: f64) -> Option<Vec<f64>> {
        let (covariance, count) = (self.unscaled_covariance.as_ref()?, self.parameters.len());
        Some((0..count).map(|i| (covariance[i * count + i] * residual_variance).max(0.0).sqrt()).collect())
    }
}

/// Variance of a value with this gradient by the parameters (delta method).
///
/// `covariance` is that of the parameters, row by row; both lengths must agree, else it is infinite.
pub fn delta_variance(gradient: &[f64], covariance: &[f64]) -> f64 {
    let count = gradient.len();
    if covariance.len() != count * count || count == 0 {
        return f64::INFINITY;
    }
    let row = |i: usize| {
        let terms = covariance[i * count..(i + 1) * count].iter().zip(gradient);
        terms.map(|(c, g)| c * g).sum::<f64>()
    };
    gradient.iter().enumerate().map(|(i, g)| g * row(i)).sum::<f64>().max(0.0)
}

/// Finds parameters with the smallest sum of squared residuals; a local minimum, begun from the starts.
///
/// `residuals` writes `count` residuals for given parameters; it is only asked within the bounds.
///
/// # Errors
///
/// No parameter, or fewer residuals than parameters; bounds that leave no room, or a start that is no finite
/// number; residuals that are no finite numbers at the start.
pub fn least_squares(
    ranges: &[Range],
    count: usize,
    mut residuals: impl FnMut(&[f64], &mut [f64]),
) -> Result<Fit, InputError> {
    check(ranges, count)?;
    let mut search = Search::new(ranges, count);
    residuals(&search.parameters, &mut search.residuals);
    if search.residuals.iter().any(|residual| !residual.is_finite()) {
        return Err(InputError::new(PLACE, "a residual at the start is no finite number")
            .hint("start from parameters for which the model is defined"));
    }
    let mut damping = 1e-3;
    for _ in 0..ROUNDS_MAX {
        search.differentiate(&mut residuals);
        if !search.improve(&mut damping, &mut residuals) {
            break;
        }
    }
    search.differentiate(&mut residuals);
    let at_bound = search.parameters.iter().zip(ranges).map(|(p, r)| *p <= r.low || *p >= r.high).collect();
    let unscaled_covariance = inverse(&search.squared_jacobian(), ranges.len());
    Ok(Fit { parameters: search.parameters, residuals: search.residuals, at_bound, unscaled_covariance })
}

fn check(ranges: &[Range], count: usize) -> Result<(), InputError> {
    if ranges.is_empty() || count < ranges.len() {
        let what = format!("{count} measurements do not determine {} parameters", ranges.len());
        return Err(InputError::new(PLACE, what).hint("measure more configurations, or fit less"));
    }
    for (index, range) in ranges.iter().enumerate() {
        if !(range.start.is_finite() && range.low < range.high) {
            let what = format!("it starts at {} between {} and {}", range.start, range.low, range.high);
            return Err(InputError::new(format!("{PLACE}, parameter {index}"), what)
                .hint("the start must be finite, and the lower bound below the upper"));
        }
    }
    Ok(())
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

    fn squared_jacobian(&self) -> Vec<f64> {
        let width = self.ranges.len();
        let mut squared = vec![0.0; width * width];
        for row in self.jacobian.chunks_exact(width) {
            for i in 0..width {
                for j in 0..width {
                    squared[i * width + j] += row[i] * row[j];
                }
            }
        }
        squared
    }

    /// Goes down once, with as much damping as it takes; `false` where nothing leads down any more.
    fn improve(&mut self, damping: &mut f64, residuals: &mut impl FnMut(&[f64], &mut [f64])) -> bool {
        let width = self.ranges.len();
        let squared = self.squared_jacobian();
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

/// Inverse of a symmetric matrix; none when it is singular to rounding.
fn inverse(matrix: &[f64], size: usize) -> Option<Vec<f64>> {
    // Scaled to a unit diagonal, so that the units of the parameters do not decide what is singular.
    let scales: Vec<f64> = (0..size).map(|i| matrix[i * size + i].sqrt()).collect();
    if scales.iter().any(|scale| !(*scale > 0.0 && scale.is_finite())) {
        return None;
    }
    let scaled: Vec<f64> = matrix
        .iter()
        .enumerate()
        .map(|(at, value)| value / (scales[at / size] * scales[at % size]))
        .collect();
    let factor = cholesky(&scaled, size)?;
    if (0..size).any(|i| factor[i * size + i].powi(2) < SINGULAR) {
        return None;
    }
    let mut inverted = vec![0.0; size * size];
    let mut unit = vec![0.0; size];
    for j in 0..size {
        unit[j] = 1.0;
        for (i, value) in solve(&factor, size, &unit).into_iter().enumerate() {
            inverted[i * size + j] = value / (scales[i] * scales[j]);
        }
        unit[j] = 0.0;
    }
    Some(inverted)
}

/// Lower triangular factor of a symmetric matrix; none when it is not positive definite.
fn cholesky(matrix: &[f64], size: usize) -> Option<Vec<f64>> {
    let mut factor = vec![0.0; size * size];
    for i in 0..size {
        for j in 0..=i {
            let inner: f64 = (0..j).map(|k| factor[i * size + k] * factor[j * size + k]).sum();
            let rest = matrix[i * size + j] - inner;
            if i != j {
                factor[i * size + j] = rest / factor[j * size + j];
            } else if rest > 0.0 && rest.is_finite() {
                factor[i * size + i] = rest.sqrt();
            } else {
                return None;
            }
        }
    }
    Some(factor)
}

/// Solves with a factor of [`cholesky`]: forward, then backward.
fn solve(factor: &[f64], size: usize, right: &[f64]) -> Vec<f64> {
    let mut solution = right.to_vec();
    for i in 0..size {
        let inner: f64 = (0..i).map(|k| factor[i * size + k] * solution[k]).sum();
        solution[i] = (solution[i] - inner) / factor[i * size + i];
    }
    for i in (0..size).rev() {
        let inner: f64 = (i + 1..size).map(|k| factor[k * size + i] * solution[k]).sum();
        solution[i] = (solution[i] - inner) / factor[i * size + i];
    }
    solution
}
