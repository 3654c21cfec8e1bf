//! When a training loss no longer falls quickly.

use serde::{Deserialize, Serialize};

/// Blocks of losses that are compared: the mean of the older half with that of the newer one.
const BLOCKS: usize = 10;
/// Share of all steps that they span.
const SPAN: f64 = 0.05;
/// A fall is slow when it is less than this part of the fastest one.
const SLOW: f64 = 0.1;

/// The falls of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Fall {
    /// Relative improvement of the smoothed loss over the newest span; negative where it rose.
    pub(super) last: f64,
    /// The same over the span in which it was largest.
    pub(super) fastest: f64,
}

/// Means of the newest losses, by blocks of steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Losses {
    /// Steps of a block.
    block: u64,
    /// Means, the oldest first; as many as are compared at most.
    means: Vec<f64>,
    /// Sum and number of the losses of the block that is not full yet.
    sum: f64,
    count: u64,
    fastest: f64,
}

impl Losses {
    /// For a run of this many steps. A short one is looked at in spans of ten steps.
    pub(super) fn new(total_steps: u64) -> Losses {
        let block = (SPAN * total_steps as f64 / BLOCKS as f64).ceil().max(1.0) as u64;
        Losses { block, means: Vec::new(), sum: 0.0, count: 0, fastest: 0.0 }
    }

    /// Takes in the loss of the next step; answers the falls when the newest is slow. A NaN loss is passed over, and
    /// nothing is slow before something was quick.
    pub(super) fn take(&mut self, loss: f64) -> Option<Fall> {
        if !loss.is_finite() {
            return None;
        }
        (self.sum, self.count) = (self.sum + loss, self.count + 1);
        if self.count < self.block {
            return None;
        }
        if self.means.len() == BLOCKS {
            self.means.remove(0);
        }
        self.means.push(self.sum / self.count as f64);
        (self.sum, self.count) = (0.0, 0);
        if self.means.len() < BLOCKS {
            return None;
        }
        let (older, newer) = self.means.split_at(BLOCKS / 2);
        let (older, newer) = (older.iter().sum::<f64>(), newer.iter().sum::<f64>());
        let last = if older > 0.0 { 1.0 - newer / older } else { 0.0 };
        self.fastest = self.fastest.max(last);
        (last < SLOW * self.fastest).then_some(Fall { last, fastest: self.fastest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step at which a loss of this form is found to fall slowly.
    fn found(total_steps: u64, loss: impl Fn(f64) -> f64) -> Option<u64> {
        let mut losses = Losses::new(total_steps);
        (0..total_steps).find(|step| losses.take(loss(*step as f64 / total_steps as f64)).is_some())
    }

    #[test]
    fn a_loss_that_falls_by_a_law_is_slow_where_the_law_says() {
        // exp(-t/c) falls by the same part in every span, for ever.
        assert_eq!(found(1000, |t| (-t / 0.2).exp()), None);
        // On a floor of 1, it is slow when exp(-t/0.1) is worth a tenth of what it was: between t = 0.2 and 0.4.
        let at = found(2000, |t| 1.0 + 2.0 * (-t / 0.1).exp());
        assert!(at.is_some_and(|step| (400..800).contains(&step)), "{at:?}");
        // A plateau before anything was learnt, as under a rising learning rate, is not the end.
        let at = found(2000, |t| if t < 0.2 { 3.0 } else { 1.0 + 2.0 * (-(t - 0.2) / 0.1).exp() });
        assert!(at.is_some_and(|step| (800..1200).contains(&step)), "{at:?}");
    }

    #[test]
    fn nothing_is_slow_in_the_first_span() {
        // It does not fall after the first step.
        assert_eq!(found(1000, |t| if t == 0.0 { 9.0 } else { 1.0 }), Some(54));
        assert_eq!(found(40, |t| if t == 0.0 { 9.0 } else { 1.0 }), Some(10));
        assert_eq!(found(1000, |_| 1.0), None);
        assert_eq!(found(1000, |_| f64::NAN), None);
        assert_eq!(found(0, |_| 1.0), None);
    }
}
