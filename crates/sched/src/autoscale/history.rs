//! What the steps of a job took, by number of workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The weight of a step is never less than one part in this many, so that what was measured long ago fades.
const MEMORY: u64 = 1000;

/// What was measured at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Samples of the global batch.
    pub batch: u64,
    /// Steps.
    pub steps: u64,
    /// Mean seconds of a step.
    pub step_s: f64,
    /// Variance of the seconds of a step.
    pub variance: f64,
    /// Mean seconds of exchange, where every step told.
    pub exchange_s: Option<f64>,
}

/// All measured sizes, and since when the present one holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    sizes: BTreeMap<u32, Measured>,
    present: u32,
    since_change: u64,
}

impl Measured {
    /// Samples per second of all workers together.
    pub fn examples_per_s(&self) -> f64 {
        self.batch as f64 / self.step_s
    }

    /// Standard error of the mean step, relative to it.
    pub fn relative_error(&self) -> f64 {
        (self.variance / self.steps.clamp(1, MEMORY) as f64).sqrt() / self.step_s
    }

    fn add(&mut self, step_s: f64, exchange_s: Option<f64>) {
        self.steps += 1;
        let weight = 1.0 / self.steps.min(MEMORY) as f64;
        let difference = step_s - self.step_s;
        self.step_s += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
        let mean = |mean: f64, value: f64| mean + weight * (value - mean);
        self.exchange_s = self.exchange_s.zip(exchange_s).map(|(known, new)| mean(known, new));
    }
}

impl History {
    /// Takes in a step of this many workers with a global batch of `batch` samples that took `step_s` seconds from
    /// boundary to boundary; in `exchange_s` of them the slowest worker only exchanged, where that was measured.
    ///
    /// The first step after a change of size is dropped, as is one that took no time or did nothing; a changed batch
    /// discards what the size has measured.
    pub fn record(&mut self, workers: u32, batch: u64, step_s: f64, exchange_s: Option<f64>) {
        if workers != self.present {
            self.present = workers;
            self.since_change = 0;
            return;
        }
        if !(step_s.is_finite() && step_s > 0.0 && batch > 0) {
            return;
        }
        self.since_change += 1;
        match self.sizes.get_mut(&workers) {
            Some(measured) if measured.batch == batch => measured.add(step_s, exchange_s),
            _ => {
                self.sizes.insert(workers, Measured { batch, steps: 1, step_s, variance: 0.0, exchange_s });
            }
        }
    }

    /// Measured sizes, ascending.
    pub fn sizes(&self) -> impl DoubleEndedIterator<Item = (u32, &Measured)> {
        self.sizes.iter().map(|(workers, measured)| (*workers, measured))
    }

    /// What was measured at a size.
    pub fn at(&self, workers: u32) -> Option<&Measured> {
        self.sizes.get(&workers)
    }

    /// Steps that count since the job last came to this size; 0 when it is not there.
    pub fn steps_since_change(&self, workers: u32) -> u64 {
        if workers == self.present { self.since_change } else { 0 }
    }

    /// Seconds that this many samples would take at the slowest measured pace; 0 when nothing is known.
    pub(super) fn slowest_s(&self, samples: f64) -> f64 {
        self.sizes.values().map(|measured| samples / measured.examples_per_s()).fold(0.0, f64::max)
    }
}
