//! Smallest value of a smooth function of a few bounded parameters.
//!
//! # Model
//!
//! ```text
//! minimise f(x)  subject to  lower <= x <= upper
//!
//! direction   d = -H g on the free parameters, 0 on those held by a bound that -g pushes against
//! step        x' = clip(x + t d), t = 1, 1/2, 1/4, ... until f(x') <= f(x) + 1e-4 g (x' - x)
//! curvature   H by the BFGS update from x' - x and g' - g; forgotten when the free set changes
//! polish      Nelder-Mead simplex around the best point, then the above once more
//! ```
//!
//! | symbol | meaning                                     | unit            |
//! |--------|---------------------------------------------|-----------------|
//! | x      | parameters                                  | the caller's    |
//! | f      | function                                    | the caller's    |
//! | g      | its gradient, by central differences        | f per parameter |
//! | H      | estimate of the inverse Hessian             |                 |
//!
//! # Source
//!
//! Bertsekas, SIAM J. Control Optim. 20(2), 1982, for the projected Newton step with the held set; Nocedal
//! and Wright, Numerical Optimization, 2006, for BFGS; Nelder and Mead, Computer Journal 7(4), 1965.
//!
//! # Assumes
//!
//! Parameters scaled by the caller, so that a change of 1 matters (take logarithms of quantities that span orders of
//! magnitude). NaN values count as infinitely bad.
//!
//! # Valid
//!
//! Up to about ten parameters. Finds the best of the valleys that the given starts lead into, and no proof
//! that there is no deeper one. The same input gives the same answer.
//!
//! # Checked by
//!
//! Functions with known minima, inside and at bounds, in this file's tests; the reference cases of the models that
//! are fitted with it.

use std::fmt;

mod bfgs;
mod simplex;

/// Smallest and largest value of each parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    lower: Vec<f64>,
    upper: Vec<f64>,
}

/// Where a function is smallest.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimum {
    /// The parameters.
    pub x: Vec<f64>,
    /// The function there.
    pub value: f64,
}

/// Why ranges cannot bound a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BoundsError {
    /// Not one lower and one upper end per parameter.
    Lengths {
        /// Lower ends that were given.
        lower: usize,
        /// Upper ends that were given.
        upper: usize,
    },
    /// An end that is not finite, or a lower end above the upper one.
    Range {
        /// Which parameter, counted from 0.
        parameter: usize,
        /// Its lower end.
        low: f64,
        /// Its upper end.
        high: f64,
    },
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundsError::Lengths { lower, upper } => write!(f, "{lower} lower ends and {upper} upper ends"),
            BoundsError::Range { parameter, low, high } => {
                write!(f, "parameter {parameter} may lie between {low} and {high}")
            }
        }
    }
}

impl std::error::Error for BoundsError {}

impl Bounds {
    /// One range per parameter; equal ends hold a parameter fixed.
    ///
    /// # Errors
    ///
    /// Returns an error for lists of different lengths, an end that is not finite, or a lower end above the upper one.
    pub fn new(lower: Vec<f64>, upper: Vec<f64>) -> Result<Bounds, BoundsError> {
        if lower.len() != upper.len() {
            return Err(BoundsError::Lengths { lower: lower.len(), upper: upper.len() });
        }
        for (parameter, (&low, &high)) in lower.iter().zip(&upper).enumerate() {
            if !(low.is_finite() && high.is_finite() && low <= high) {
                return Err(BoundsError::Range { parameter, low, high });
            }
        }
        Ok(Bounds { lower, upper })
    }

    /// Holds parameter `index` at `value`.
    ///
    /// # Panics
    ///
    /// When there is no such parameter.
    pub fn fix(&mut self, index: usize, value: f64) {
        self.lower[index] = value;
        self.upper[index] = value;
    }

    /// Number of parameters.
    pub(crate) fn len(&self) -> usize {
        self.lower.len()
    }

    /// Whether parameter `index` cannot move.
    pub(crate) fn is_fixed(&self, index: usize) -> bool {
        self.lower[index] >= self.upper[index]
    }

    /// Moves every parameter into its range.
    pub(crate) fn clip(&self, x: &mut [f64]) {
        for ((value, low), high) in x.iter_mut().zip(&self.lower).zip(&self.upper) {
            *value = value.clamp(*low, *high);
        }
    }
}

/// The smallest value of `f` within `bounds`, searched from every one of `starts`; a start outside of the
/// bounds is moved in, and one that is missing is the middle of the bounds.
pub fn minimize(f: impl Fn(&[f64]) -> f64, bounds: &Bounds, starts: &[Vec<f64>]) -> Minimum {
    let f = |x: &[f64]| {
        let value = f(x);
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let mut starts: Vec<Vec<f64>> =
        starts.iter().filter(|start| start.len() == bounds.len()).cloned().collect();
    if starts.is_empty() {
        starts.push(bounds.lower.iter().zip(&bounds.upper).map(|(low, high)| 0.5 * (low + high)).collect());
    }
    let mut best: Option<Minimum> = None;
    for mut start in starts {
        bounds.clip(&mut start);
        let found = bfgs::descend(&f, bounds, start);
        if best.as_ref().is_none_or(|best| found.value < best.value) {
            best = Some(found);
        }
    }
    let best = best.expect("there is at least one start");
    let polished = simplex::polish(&f, bounds, best);
    bfgs::descend(&f, bounds, polished.x)
}

/// The square of a small `size`, and of a large one what grows in proportion to it: errors beyond 1.345 standard
/// deviations do not pull with their square, so that outliers hardly count (Huber, Ann. Math. Stat. 35, 1964).
pub fn huber(size: f64) -> f64 {
    const BEND: f64 = 1.345;
    let size = size.abs();
    if size <= BEND { size * size } else { BEND * (2.0 * size - BEND) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds(lower: &[f64], upper: &[f64]) -> Bounds {
        Bounds::new(lower.to_vec(), upper.to_vec()).unwrap()
    }

    #[test]
    fn a_minimum_at_a_bound_by_hand() {
        // (x - 3)^2 + (y + 1)^2 with y >= 0: the minimum is at the bound, (3, 0), with the value 1.
        let f = |p: &[f64]| (p[0] - 3.0).powi(2) + (p[1] + 1.0).powi(2);
        let found = minimize(f, &bounds(&[-10.0, 0.0], &[10.0, 10.0]), &[vec![0.0, 5.0]]);
        assert!((found.x[0] - 3.0).abs() < 1e-6 && found.x[1] == 0.0 && (found.value - 1.0).abs() < 1e-9);
    }

    #[test]
    fn large_errors_count_by_their_size() {
        assert_eq!((huber(-1.0), huber(0.0)), (1.0, 0.0));
        // The slope is the same on both sides of the bend, and constant beyond it.
        let slope = |at: f64| (huber(at + 1e-6) - huber(at - 1e-6)) / 2e-6;
        assert!((slope(1.344) - 2.688).abs() < 1e-5 && (slope(50.0) - 2.69).abs() < 1e-5);
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        let rosenbrock =
            |p: &[f64]| 100.0 * (p[1] - p[0] * p[0]).powi(2) + (1.0 - p[0]).powi(2) + (p[2] - 0.5).powi(4);
        let found = minimize(rosenbrock, &bounds(&[-5.0; 3], &[5.0; 3]), &[vec![-1.2, 1.0, 0.0]]);
        assert!((found.x[0] - 1.0).abs() < 1e-4 && (found.x[1] - 1.0).abs() < 1e-4, "{found:?}");
        assert!(found.value < 1e-8, "{found:?}");
    }

    #[test]
    fn a_bound_holds_and_the_rest_still_moves() {
        let f = |p: &[f64]| (p[0] + p[1] - 3.0).powi(2) + 0.1 * (p[0] - p[1]).powi(2);
        let found = minimize(f, &bounds(&[0.0, 0.0], &[1.0, 9.0]), &[vec![0.5, 0.5]]);
        // At x0 = 1 the derivative by x1 is 2 (x1 - 2) + 0.2 (x1 - 1) = 0.
        assert!(found.x[0] == 1.0 && (found.x[1] - 4.2 / 2.2).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn the_best_of_several_valleys_is_taken() {
        let f = |p: &[f64]| (p[0] * p[0] - 4.0).powi(2) + p[0];
        let one = minimize(f, &bounds(&[-5.0], &[5.0]), &[vec![3.0]]);
        let two = minimize(f, &bounds(&[-5.0], &[5.0]), &[vec![3.0], vec![-3.0]]);
        assert!(two.value < one.value - 3.0 && two.x[0] < 0.0, "{one:?} {two:?}");
    }

    #[test]
    fn a_kink_is_reached() {
        let f = |p: &[f64]| {
            ((p[0] - 1.0).powi(2) + (p[1] - 2.0).powi(2)).sqrt() + 0.3 * (p[0] - p[1] + 1.0).abs()
        };
        let found = minimize(f, &bounds(&[-9.0; 2], &[9.0; 2]), &[vec![5.0, -5.0]]);
        assert!(found.value < 1e-4, "{found:?}");
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        assert!(Bounds::new(vec![1.0], vec![0.0]).is_err());
        assert!(Bounds::new(vec![f64::NAN], vec![0.0]).is_err());
        assert!(Bounds::new(vec![0.0], vec![]).is_err());
    }

    proptest! {
        #[test]
        fn a_quadratic_in_a_box_is_clipped(centre in prop::collection::vec(-3.0f64..3.0, 1..6), start in -1.0f64..1.0) {
            let n = centre.len();
            let f = |p: &[f64]| p.iter().zip(&centre).enumerate().map(|(i, (x, c))| (i + 1) as f64 * (x - c).powi(2)).sum();
            let found = minimize(f, &bounds(&vec![-1.0; n], &vec![1.0; n]), &[vec![start; n]]);
            for (x, c) in found.x.iter().zip(&centre) {
                prop_assert!((x - c.clamp(-1.0, 1.0)).abs() < 1e-5, "{found:?} {centre:?}");
            }
        }

        #[test]
        fn nothing_leaves_the_bounds(lower in -2.0f64..0.0, width in 0.0f64..2.0, slope in -5.0f64..5.0) {
            let box_ = bounds(&[lower, lower], &[lower + width, lower + width]);
            let f = |p: &[f64]| if p[0] < lower || p[0] > lower + width { f64::NAN } else { slope * p[0] + p[1] * p[1] };
            let found = minimize(f, &box_, &[vec![100.0, -100.0]]);
            prop_assert!(found.value.is_finite());
            prop_assert!(found.x.iter().all(|x| (lower..=lower + width).contains(x)), "{found:?}");
        }
    }
}
