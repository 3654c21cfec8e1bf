//! The slowest of workers whose devices differ: the mean of the largest of independent durations.

use crate::compute::Durations;

/// Mean of the largest among workers, of whom `count` have each `speed`; all draw from `durations` over their
/// speed.
///
/// Exact for the empirical distribution: the integral of one less the product of the distribution functions,
/// which are steps.
pub(super) fn expected_maximum_s(durations: &Durations, speeds: &[(u32, f64)]) -> f64 {
    let sorted_s = durations.sorted_s();
    let n = sorted_s.len() as f64;
    let mut edges: Vec<f64> =
        speeds.iter().flat_map(|(_, speed)| sorted_s.iter().map(move |seconds| seconds / speed)).collect();
    edges.sort_by(f64::total_cmp);
    let mut mean_s = edges.first().copied().unwrap_or(0.0);
    for pair in edges.windows(2) {
        let mut all_below = 1.0;
        for (count, speed) in speeds {
            let below = sorted_s.partition_point(|seconds| seconds / speed <= pair[0]) as f64;
            all_below *= (below / n).powf(f64::from(*count));
        }
        mean_s += (1.0 - all_below) * (pair[1] - pair[0]);
    }
    mean_s
}
