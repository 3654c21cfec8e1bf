//! The largest size that still pays by a curve through the measured ones.
//!
//! # Idea
//!
//! From three sizes on, `a k + b`, `a - b / k` and `a ln k + b` are fitted to the throughput, and the one with the
//! least squared error says which increments pay. A round at most doubles the workers; what the curve chose is tested
//! against the increment below it by measurement.
//!
//! # Bad when
//!
//! Three noisy points extrapolate badly, and no curve of the three ever falls and rises.

use bellwether_model::regression::LeastSquares;

use super::search::{Size, Test, efficiency, tests, walk};
use super::{Decision, Heuristic, Reason, Situation};

/// Follows the best of three curves.
#[derive(Debug, Clone, Copy)]
pub struct CurveFitting {
    /// The least efficiency that is paid for, 0 to 1.
    pub threshold: f64,
}

/// How a curve depends on the workers.
const FORMS: [fn(f64) -> f64; 3] = [|workers| workers, |workers| -1.0 / workers, f64::ln];

impl Heuristic for CurveFitting {
    fn decide(&self, situation: &Situation) -> Decision {
        let sizes: Vec<Size> = situation.history.sizes().collect();
        let test =
            |smaller: Size, larger: Size| Test { gain: efficiency(smaller, larger), needed: self.threshold };
        let Some(curve) = best(&sizes) else { return walk(situation, test) };
        let (bounds, largest) = (situation.bounds, sizes.last().map_or(0, |size| size.0));
        let most = bounds.most.min(largest.saturating_mul(2));
        let grid = bounds.sizes();
        let pays = |pair: &[u32]| {
            let (before, after) = (curve(pair[0]), curve(pair[1]));
            (after - before) / f64::from(pair[1] - pair[0]) > self.threshold * before / f64::from(pair[0])
        };
        let passed = grid.windows(2).take_while(|pair| pair[1] <= most && pays(pair)).count();
        let target = grid[passed];
        let known = |workers: u32| situation.history.at(workers).is_some();
        if !known(target) {
            return Decision::Resize(target, Reason::Curve { target });
        }
        let below = grid[passed.saturating_sub(1)];
        if !known(below) {
            return Decision::Resize(below, Reason::LookingDown { smallest: target });
        }
        // What was measured has the last word.
        let failed =
            tests(situation, test).into_iter().find(|(_, larger, test)| larger.0 <= target && !test.passes());
        match failed {
            Some(((smaller, _), (larger, _), Test { gain, needed })) => {
                Decision::Resize(smaller, Reason::Settled { smaller, larger, gain, needed })
            }
            None => Decision::Resize(target, Reason::Curve { target }),
        }
    }
}

/// The curve with the least squared error; `None` below three sizes.
fn best(sizes: &[Size]) -> Option<impl Fn(u32) -> f64> {
    if sizes.len() < 3 {
        return None;
    }
    let targets: Vec<f64> = sizes.iter().map(|(_, measured)| measured.examples_per_s()).collect();
    let fits = FORMS.into_iter().filter_map(|form| {
        let rows: Vec<Vec<f64>> = sizes.iter().map(|(workers, _)| vec![form(f64::from(*workers))]).collect();
        Some((form, LeastSquares::fit(&rows, &targets).ok()?))
    });
    let (form, line) = fits.min_by(|a, b| a.1.residual_sd.total_cmp(&b.1.residual_sd))?;
    // Slope, then the constant.
    Some(move |workers: u32| line.coefficients[1] * form(f64::from(workers)) + line.coefficients[0])
}
