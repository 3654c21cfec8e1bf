//! What a prediction must beat: linear scaling, and straight lines between measured points.

/// Step time under linear scaling at a fixed global batch: `replicas` devices need that part of the time of one.
pub fn linear_scaling_s(one_replica_s: f64, replicas: u32) -> f64 {
    one_replica_s / f64::from(replicas)
}

/// The value at `x` on straight lines between `points` in logarithms of both; beyond the ends the last line
/// goes on. `points` are pairs of positive numbers, in ascending order of the first.
///
/// `None` without points.
pub fn log_log(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let [first, .., last] = points else { return points.first().map(|point| point.1) };
    if first.0 >= last.0 {
        return Some(first.1);
    }
    let right = points.partition_point(|point| point.0 < x).clamp(1, points.len() - 1);
    let (low, high) = (points[right - 1], points[right]);
    let part = (x / low.0).ln() / (high.0 / low.0).ln();
    Some(low.1 * (part * (high.1 / low.1).ln()).exp())
}
