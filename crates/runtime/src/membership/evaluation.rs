//! What an evaluation came to.

/// One evaluation of the held-out set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvaluationRecord {
    /// Steps applied before it.
    pub step: u64,
    /// Mean loss.
    pub loss: f64,
    /// Right predictions.
    pub correct: u64,
    /// Predictions made; 0 where accuracy does not apply.
    pub predictions: u64,
    /// Samples evaluated.
    pub samples: u64,
}

impl EvaluationRecord {
    /// Right predictions, as a share; `None` where accuracy does not apply.
    pub fn accuracy(&self) -> Option<f64> {
        (self.predictions > 0).then(|| self.correct as f64 / self.predictions as f64)
    }
}
