//! A model with its parameters, as calibration found them: the second arrow of the road.

use serde::{Deserialize, Serialize};

use crate::prediction::Configuration;

/// Throughput that was measured in one configuration: what a run leaves for calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Where and how the job ran.
    pub configuration: Configuration,
    /// Mean seconds of a step (of one worker's step where no worker waits).
    pub step_s: f64,
    /// Seconds of it spent on exchanging gradients, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_s: Option<f64>,
}

/// One parameter of a fitted model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name in the model's specification.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// Its standard error; absent when the data do not determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
}

/// What a fitted model says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FittedModel {
    /// Name of the model: the module that holds its equation.
    pub model: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Covariance of the parameters, row by row, in their order; empty when it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covariance: Vec<f64>,
    /// Relative residuals (measured over fitted, less 1) of the measurements it was fitted to.
    pub relative_residuals: Vec<f64>,
    /// Smallest and largest number of workers that it was fitted to.
    pub workers: (u32, u32),
    /// Smallest and largest global batch that it was fitted to.
    pub batch: (u64, u64),
}

impl FittedModel {
    /// The value of a parameter.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.parameters.iter().find(|parameter| parameter.name == name).map(|parameter| parameter.value)
    }

    /// Mean absolute relative residual.
    pub fn mean_absolute_residual(&self) -> f64 {
        let total: f64 = self.relative_residuals.iter().map(|residual| residual.abs()).sum();
        total / self.relative_residuals.len().max(1) as f64
    }
}
