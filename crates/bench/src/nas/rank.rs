//! How well one order agrees with another.

/// Kendall's τ-b of two lists of values of the same things; NaN where one of them is constant.
///
/// M. G. Kendall, Rank Correlation Methods: (P - Q) / √((P + Q + X) (P + Q + Y)), with P pairs in the same order, Q in
/// the other, X equal in the first list alone, and Y in the second alone.
pub(super) fn kendall(first: &[f64], second: &[f64]) -> f64 {
    let (mut same, mut other, mut equal_first, mut equal_second) = (0u64, 0u64, 0u64, 0u64);
    for a in 0..first.len() {
        for b in 0..a {
            let (one, two) = (first[a].total_cmp(&first[b]), second[a].total_cmp(&second[b]));
            match (one.is_eq(), two.is_eq()) {
                (true, true) => {}
                (true, false) => equal_first += 1,
                (false, true) => equal_second += 1,
                (false, false) if one == two => same += 1,
                (false, false) => other += 1,
            }
        }
    }
    let strict = same + other;
    (same as f64 - other as f64) / ((strict + equal_first) as f64 * (strict + equal_second) as f64).sqrt()
}

/// The best true value among the `k` things of the highest score; of equal scores the first count.
pub(super) fn best_of_top(scores: &[f64], truth: &[f64], k: usize) -> f64 {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.iter().take(k).map(|place| truth[*place]).fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tau_counts_pairs_in_the_same_order_and_in_the_other() {
        // By hand: of six pairs the one of the second and third thing is in the other order, P = 5 and Q = 1.
        let (first, second) = ([1.0, 2.0, 3.0, 4.0], [10.0, 30.0, 20.0, 40.0]);
        assert!((kendall(&first, &second) - 4.0 / 6.0).abs() < 1e-12, "{}", kendall(&first, &second));
        assert!((kendall(&first, &first) - 1.0).abs() < 1e-12);
        // With ties by hand: pairs (1,1) (1,2) (2,2) give P = 1, X = 1, Y = 1.
        assert!((kendall(&[1.0, 1.0, 2.0], &[1.0, 2.0, 2.0]) - 0.5).abs() < 1e-12);
        assert!(kendall(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn the_best_of_the_top_is_a_true_value() {
        let (scores, truth) = ([0.9, 0.8, 0.95, 0.1], [0.5, 0.7, 0.6, 0.99]);
        assert_eq!([1, 2, 3, 4].map(|k| best_of_top(&scores, &truth, k)), [0.6, 0.6, 0.7, 0.99]);
    }
}
