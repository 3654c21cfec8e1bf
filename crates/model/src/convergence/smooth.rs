//! What a curve has come down to, less its jitter.

use super::curve::Observation;

/// Points on each side that a running median looks at.
const REACH: usize = 2;

/// Running median of 5. The first points look at fewer; the last ones look back at the last five, so that no lone low
/// point counts as a loss that was reached.
pub(super) fn smoothed(points: &[Observation]) -> Vec<Observation> {
    let level = |index: usize| {
        if index + REACH >= points.len() {
            return last_level(points);
        }
        let reach = REACH.min(index);
        median(&points[index - reach..=index + reach])
    };
    points.iter().enumerate().map(|(index, point)| Observation { loss: level(index), ..*point }).collect()
}

/// Median of the last five losses, or of all where there are fewer.
fn last_level(points: &[Observation]) -> f64 {
    median(&points[points.len().saturating_sub(2 * REACH + 1)..])
}

/// Median of the losses of `points`, of which there is at least one.
pub(super) fn median(points: &[Observation]) -> f64 {
    let mut losses: Vec<f64> = points.iter().map(|point| point.loss).collect();
    losses.sort_by(f64::total_cmp);
    losses[losses.len() / 2]
}

/// The loss at a progress between the first and the last of `points`, on the straight line between its neighbours.
pub(super) fn between(points: &[Observation], progress: f64) -> f64 {
    let after = points.partition_point(|point| point.progress < progress).min(points.len() - 1);
    let (right, left) = (points[after], points[after.saturating_sub(1)]);
    let width = right.progress - left.progress;
    let part = if width > 0.0 { ((progress - left.progress) / width).clamp(0.0, 1.0) } else { 1.0 };
    left.loss + part * (right.loss - left.loss)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(losses: &[f64]) -> Vec<Observation> {
        let point = |(index, loss): (usize, &f64)| Observation { progress: index as f64, loss: *loss };
        losses.iter().enumerate().map(point).collect()
    }

    #[test]
    fn one_low_point_is_nothing_that_was_reached() {
        let losses = |points: &[f64]| smoothed(&curve(points)).iter().map(|p| p.loss).collect::<Vec<f64>>();
        assert_eq!(losses(&[9.0, 7.0, 8.0, 0.0, 6.0, 5.0, 0.0]), [9.0, 8.0, 7.0, 6.0, 5.0, 5.0, 5.0]);
        assert_eq!(losses(&[3.0, 1.0]), [3.0, 3.0]);
        assert_eq!(losses(&[]), [] as [f64; 0]);
    }

    #[test]
    fn between_two_points_lies_a_line() {
        let points = curve(&[4.0, 2.0, 2.0]);
        assert_eq!([-1.0, 0.5, 1.0, 1.5, 9.0].map(|at| between(&points, at)), [4.0, 3.0, 2.0, 2.0, 2.0]);
    }
}
