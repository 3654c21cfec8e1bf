//! Cross-entropy of scores, with its gradient, computed directly.
//!
//! In plain Rust rather than in tensor operations: the sum of losses gets the precision of `f64`, the
//! exponential comes from the `libm` crate instead of the system's library, and one pass over the
//! scores replaces a chain of tensors. Its gradient enters the back-propagation as a constant.

/// Results of [`cross_entropy`].
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Losses {
    /// Sum over all rows.
    pub(crate) sum: f64,
    /// Rows whose largest score is the target's; the first of equal scores counts as the largest.
    pub(crate) correct: u64,
    /// Derivative of the sum with respect to each score.
    pub(crate) gradient: Vec<f32>,
}

/// The sum over rows of −log softmax(scores)\[target\], times `factor`. `each` is told of every row its loss without
/// the factor, and the class with the largest score.
pub(crate) fn cross_entropy(
    scores: &[f32],
    targets: &[u32],
    factor: f64,
    mut each: impl FnMut(f64, u32),
) -> Losses {
    let mut losses = Losses { gradient: vec![0.0; scores.len()], ..Losses::default() };
    let classes = scores.len() / targets.len().max(1);
    let rows = scores.chunks_exact(classes.max(1)).zip(losses.gradient.chunks_exact_mut(classes.max(1)));
    for ((row, gradient), target) in rows.zip(targets) {
        let target = *target as usize;
        let mut best = 0;
        for (class, score) in row.iter().enumerate() {
            if *score > row[best] {
                best = class;
            }
        }
        losses.correct += u64::from(best == target);
        let mut total = 0.0f64;
        for (slot, score) in gradient.iter_mut().zip(row) {
            *slot = libm::expf(score - row[best]);
            total += f64::from(*slot);
        }
        let loss = libm::log(total) - f64::from(row[target] - row[best]);
        each(loss, best as u32);
        losses.sum += factor * loss;
        let scale = (factor / total) as f32;
        gradient.iter_mut().for_each(|slot| *slot *= scale);
        gradient[target] -= factor as f32;
    }
    losses
}
