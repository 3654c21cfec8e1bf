//! What is learnt of jobs that end before their work is done, by their kind.

use std::collections::BTreeMap;

use bellwether_core::knowledge::Knowledge;
use bellwether_model::early_end::{Departure, Ends};
use serde::{Deserialize, Serialize};

/// What is learnt of early ends, and whether policies are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyEnds {
    /// What policies are told of the work that remains.
    pub remaining: Knowledge,
    /// How jobs ended, by their kind.
    kinds: BTreeMap<String, Ends>,
}

impl Default for EarlyEnds {
    fn default() -> Self {
        EarlyEnds { remaining: Knowledge::Nominal, kinds: BTreeMap::new() }
    }
}

impl EarlyEnds {
    /// The same with what follows from it.
    #[must_use]
    pub fn restored(mut self) -> EarlyEnds {
        self.kinds.values_mut().for_each(|ends| *ends = std::mem::take(ends).restored());
        self
    }

    /// A job of this kind left when it had done the part `done`, while others of the kind have done the parts
    /// `running`. Returns by which part of it the mean of a whole job has changed.
    pub(crate) fn observe(&mut self, kind: String, done: f64, how: Departure, running: &[f64]) -> f64 {
        let ends = self.kinds.entry(kind).or_default();
        let before = ends.mean_rest(0.0);
        ends.observe(done, how, running);
        (ends.mean_rest(0.0) / before - 1.0).abs()
    }

    /// The mean part that is to be expected after the part `done` of a job of this kind, where policies are told that.
    pub(crate) fn mean_rest(&self, kind: &str, done: f64) -> Option<f64> {
        let ends = self.kinds.get(kind).filter(|_| self.remaining == Knowledge::Expected)?;
        Some(ends.mean_rest(done))
    }
}
