//! The varied keys after their check.

use serde::{Deserialize, Serialize};

use super::value::{Sample, Value};

/// The varied keys, each after those that its condition names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// They.
    pub parameters: Vec<Parameter>,
}

/// A varied key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The key.
    pub key: String,
    /// Its values.
    pub domain: Domain,
    /// When it is varied at all: all of these hold.
    pub when: Vec<Condition>,
}

/// Another key has one of these values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The other key.
    pub key: String,
    /// The values.
    pub among: Vec<Value>,
}

/// The values of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Domain {
    /// Numbers from `low` to `high`, both finite and `low < high`.
    Real {
        /// The least.
        low: f64,
        /// The largest.
        high: f64,
        /// Whether equal ratios are equally likely; `low` is above 0 then.
        log: bool,
        /// Values of a grid.
        points: Option<u32>,
    },
    /// Whole multiples of `step` from `low` on, up to `high`.
    Integer {
        /// The least.
        low: i64,
        /// The largest, a whole number of steps above `low`.
        high: i64,
        /// Their distance, at least 1; 1 on a logarithmic scale.
        step: i64,
        /// Whether equal ratios are equally likely; `low` is above 0 then.
        log: bool,
        /// Values of a grid.
        points: Option<u32>,
    },
    /// Numbers `low + k step`, where k is 0, 1, … `steps`.
    Steps {
        /// The least.
        low: f64,
        /// Their distance.
        step: f64,
        /// How many there are beside the least.
        steps: u32,
    },
    /// These values, which have no order.
    Choice(Vec<Value>),
}

impl Parameter {
    /// Whether it is varied beside these values of the keys before it.
    pub fn is_active(&self, sample: &Sample) -> bool {
        let holds = |condition: &Condition| {
            sample.get(&condition.key).is_some_and(|value| condition.among.contains(value))
        };
        self.when.iter().all(holds)
    }
}

impl Domain {
    /// Whether it has this value.
    pub fn has(&self, value: &Value) -> bool {
        match (self, value) {
            (Domain::Choice(choices), value) => choices.contains(value),
            (Domain::Integer { low, high, step, .. }, Value::Integer(number)) => {
                low <= number && number <= high && (number - low) % step == 0
            }
            (Domain::Real { low, high, .. }, value) => {
                value.number().is_some_and(|number| *low <= number && number <= *high)
            }
            (Domain::Steps { low, step, steps }, value) => {
                let at = |k: u32| low + f64::from(k) * step;
                value
                    .number()
                    .is_some_and(|number| (0..=*steps).any(|k| (at(k) - number).abs() <= 1e-9 * step))
            }
            (Domain::Integer { .. }, _) => false,
        }
    }

    /// How many values it has; `None` where they are a continuum.
    pub fn count(&self) -> Option<u64> {
        match self {
            Domain::Real { .. } => None,
            Domain::Integer { low, high, step, .. } => Some((high.abs_diff(*low)) / step.unsigned_abs() + 1),
            Domain::Steps { steps, .. } => Some(u64::from(*steps) + 1),
            Domain::Choice(choices) => Some(choices.len() as u64),
        }
    }
}

impl Space {
    /// Whether the sample has a value of its domain for each key that is varied beside the others, and no other key.
    pub fn has(&self, sample: &Sample) -> bool {
        let active = self.parameters.iter().filter(|parameter| parameter.is_active(sample));
        let mut keys = 0;
        for parameter in active {
            if !sample.get(&parameter.key).is_some_and(|value| parameter.domain.has(value)) {
                return false;
            }
            keys += 1;
        }
        keys == sample.len()
    }
}
