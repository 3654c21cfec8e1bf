//! The slowest of workers whose devices differ: the mean of the largest of independent durations.

use crate::compute::Durations;

/// Mean of the largest among workers: the number before each of these durations is how many workers draw from it.
///
/// Exact for the empirical distributions: the integral of one less the product of the distribution functions, which are
/// steps.
pub(super) fn expected_maximum_s(classes: &[(u32, Durations)]) -> f64 {
    let mut edges: Vec<f64> =
        classes.iter().flat_map(|(_, durations)| durations.sorted_s()).copied().collect();
    edges.sort_by(f64::total_cmp);
    let mut mean_s = edges.first().copied().unwrap_or(0.0);
    for pair in edges.windows(2) {
        let mut all_below = 1.0;
        for (count, durations) in classes {
            let below = durations.sorted_s().partition_point(|seconds| *seconds <= pair[0]) as f64;
            all_below *= (below / durations.count() as f64).powf(f64::from(*count));
        }
        mean_s += (1.0 - all_below) * (pair[1] - pair[0]);
    }
    mean_s
}
