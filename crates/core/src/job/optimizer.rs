//! The tables `[optimizer]` and `[schedule]` of a job file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The update rule. Rates and decays are per step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate before the schedule's factor.
        learning_rate: f64,
        /// Momentum, 0…1.
        #[serde(default)]
        momentum: f64,
        /// Nesterov's look-ahead; needs momentum.
        #[serde(default)]
        nesterov: bool,
        /// Weight decay, added to the gradient.
        #[serde(default)]
        weight_decay: f64,
        /// Largest Euclidean norm of the global gradient; a longer one is scaled down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64>,
    },
    /// Adam, with weight decay added to the gradient.
    Adam {
        /// Learning rate before the schedule's factor.
        learning_rate: f64,
        /// Decay rates of the first and second moment.
        #[serde(default = "betas")]
        betas: [f64; 2],
        /// Added to the denominator.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Weight decay, added to the gradient.
        #[serde(default)]
        weight_decay: f64,
        /// Largest Euclidean norm of the global gradient; a longer one is scaled down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64>,
    },
    /// Adam with weight decay decoupled from the gradient.
    Adamw {
        /// Learning rate before the schedule's factor.
        learning_rate: f64,
        /// Decay rates of the first and second moment.
        #[serde(default = "betas")]
        betas: [f64; 2],
        /// Added to the denominator.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Weight decay, applied to the parameters, times the learning rate.
        #[serde(default = "adamw_decay")]
        weight_decay: f64,
        /// Largest Euclidean norm of the global gradient; a longer one is scaled down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64>,
    },
    /// An element-wise rule of the model's own program, such as PyTorch's RAdam or Optax's Lion; the program also
    /// schedules its rates.
    Own {
        /// What it is called there.
        name: String,
        /// All its numbers and the digest of its schedule, in the program's words; a run is only resumed with the same.
        #[serde(default)]
        settings: String,
        /// The vectors that it keeps, each as long as the parameters.
        #[serde(default)]
        slots: Vec<String>,
        /// Largest Euclidean norm of the global gradient; a longer one is scaled down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64>,
    },
}

impl Optimizer {
    /// Learning rate before the schedule's factor; none where the rule is the program's own.
    pub fn learning_rate(&self) -> Option<f64> {
        match self {
            Optimizer::Sgd { learning_rate, .. }
            | Optimizer::Adam { learning_rate, .. }
            | Optimizer::Adamw { learning_rate, .. } => Some(*learning_rate),
            Optimizer::Own { .. } => None,
        }
    }

    /// Largest Euclidean norm of the global gradient.
    pub fn clip_norm(&self) -> Option<f64> {
        match self {
            Optimizer::Sgd { clip_norm, .. }
            | Optimizer::Adam { clip_norm, .. }
            | Optimizer::Adamw { clip_norm, .. }
            | Optimizer::Own { clip_norm, .. } => *clip_norm,
        }
    }

    /// Whether the rule is the program's own.
    pub fn is_own(&self) -> bool {
        matches!(self, Optimizer::Own { .. })
    }
}

fn betas() -> [f64; 2] {
    [0.9, 0.999]
}
fn epsilon() -> f64 {
    1e-8
}
fn adamw_decay() -> f64 {
    0.01
}

/// Factor on the learning rate, by step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// Always 1.
    Constant {
        /// Steps over which the rate rises linearly from 0.
        #[serde(default)]
        warm_up_steps: u64,
    },
    /// Multiplied by `factor` at each of the given steps.
    Step {
        /// Steps at which the rate changes, rising.
        at: Vec<u64>,
        /// Factor at each of them.
        factor: f64,
        /// Steps over which the rate rises linearly from 0.
        #[serde(default)]
        warm_up_steps: u64,
    },
    /// Half a cosine from 1 down to `floor` at the last step.
    Cosine {
        /// Factor at the end, 0…1.
        #[serde(default)]
        floor: f64,
        /// Steps over which the rate rises linearly from 0.
        #[serde(default)]
        warm_up_steps: u64,
    },
    /// A factor for each step; the last one holds for all later steps.
    Table {
        /// The factors, at most 16,384.
        factors: Vec<f64>,
    },
}

/// Most factors in the table of a schedule: the job travels in one message.
pub const SCHEDULE_TABLE_MAX: usize = 16_384;

impl Schedule {
    /// Steps at which the rate falls at once, to half or less of what it was, in rising order: the first step with the
    /// lower rate, counted from 0.
    pub fn falls(&self) -> Vec<u64> {
        const FALL: f64 = 0.5;
        match self {
            Schedule::Step { at, factor, .. } if *factor <= FALL => at.clone(),
            Schedule::Table { factors } => {
                let fallen = |step: &usize| {
                    factors[*step] < factors[step - 1] && factors[*step] <= FALL * factors[step - 1]
                };
                (1..factors.len()).filter(fallen).map(|step| step as u64).collect()
            }
            Schedule::Constant { .. } | Schedule::Cosine { .. } | Schedule::Step { .. } => Vec::new(),
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::Constant { warm_up_steps: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_are_where_the_rate_is_halved_at_once() {
        let step = |factor| Schedule::Step { at: vec![300, 600], factor, warm_up_steps: 9 };
        assert_eq!((step(0.1).falls(), step(0.9).falls()), (vec![300, 600], vec![]));
        let table = Schedule::Table { factors: vec![0.5, 1.0, 0.9, 0.09, 0.09, 0.0, 0.0] };
        // What is nothing already falls no further.
        assert_eq!(table.falls(), [3, 5]);
        assert!(
            Schedule::Table { factors: vec![] }.falls().is_empty() && Schedule::default().falls().is_empty()
        );
        assert!(Schedule::Cosine { floor: 0.0, warm_up_steps: 0 }.falls().is_empty());
    }
}
