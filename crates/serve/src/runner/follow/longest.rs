//! How long the steps of a run take.

/// How long a step takes: the longest of the last ones, no matter how many workers share it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::runner) struct LongestStep {
    /// Seconds that one worker takes for the whole step.
    alone_s: Option<f64>,
}

impl LongestStep {
    /// A step was done.
    pub(in crate::runner) fn see(&mut self, duration_s: f64, workers: u32) {
        let alone_s = duration_s * f64::from(workers.max(1));
        // What was long once is forgotten over some tens of steps.
        let before_s = self.alone_s.map_or(0.0, |before_s| 0.9 * before_s + 0.1 * alone_s);
        self.alone_s = Some(alone_s.max(before_s)).filter(|s| s.is_finite());
    }

    /// Seconds that one takes at most with this many workers, as far as is known.
    pub(in crate::runner) fn shared_by(&self, workers: u32) -> Option<f64> {
        self.alone_s.map(|alone_s| alone_s / f64::from(workers.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_step_counts_until_it_is_long_ago() {
        let mut steps = LongestStep::default();
        assert_eq!(steps.shared_by(2), None);
        steps.see(10.0, 4);
        assert_eq!((steps.shared_by(4), steps.shared_by(1)), (Some(10.0), Some(40.0)));
        steps.see(1.0, 4);
        assert!(steps.shared_by(4).is_some_and(|s| s > 9.0));
        (0..100).for_each(|_| steps.see(1.0, 4));
        assert!(steps.shared_by(4).is_some_and(|s| s < 1.1));
    }
}
