//! Lengths of trials: the rungs that a trial climbs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the length of a trial is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Passes over the training set.
    #[default]
    Epochs,
    /// Optimizer steps.
    Steps,
}

impl Unit {
    /// Its name in a sweep file.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Epochs => "epochs",
            Unit::Steps => "steps",
        }
    }
}

/// The lengths at which it is decided whether a trial goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// The first of them, at least 1.
    pub minimum: u64,
    /// Length of a whole trial, at least `minimum`.
    pub maximum: u64,
    /// How many times as long the next one is, at least 2.
    pub reduction: u64,
}

impl Ladder {
    /// All rungs from the `from`th on; the last one is the whole trial.
    ///
    /// ```
    /// # use bellwether_core::sweep::Ladder;
    /// let ladder = Ladder { minimum: 1, maximum: 10, reduction: 3 };
    /// assert_eq!(ladder.rungs(0), [1, 3, 9, 10]);
    /// assert_eq!(ladder.rungs(2), [9, 10]);
    /// assert_eq!(ladder.rungs(7), [10]);
    /// ```
    pub fn rungs(&self, from: u32) -> Vec<u64> {
        let length =
            |rung: u32| self.reduction.checked_pow(rung).and_then(|factor| factor.checked_mul(self.minimum));
        let mut rungs: Vec<u64> =
            (from..64).map_while(length).take_while(|length| *length < self.maximum).collect();
        rungs.push(self.maximum);
        rungs
    }
}
