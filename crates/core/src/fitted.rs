//! A model with its parameters, as calibration found them: the second arrow of the road.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::InputError;
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

/// Version of the file format that this program writes and reads.
pub const FITTED_VERSION: u32 = 1;

/// What calibration found of kinds of jobs: a file of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedFile {
    /// Version of the format, [`FITTED_VERSION`].
    pub version: u32,
    /// The kinds, each with its own model.
    pub kinds: Vec<FittedKind>,
}

/// A model of one kind of job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedKind {
    /// Its name: what a trace calls its model.
    pub name: String,
    /// Samples of a step: of all workers together where they wait for each other, else of one worker's.
    pub batch: u64,
    /// Parameter servers that it was measured with; 0 for none.
    pub servers: u32,
    /// Most workers of a node where it was measured: predictions fill nodes of that many.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub per_node: u32,
    /// Virtual nodes that share a synchronous step's samples, where they are known: the worker that has most of them
    /// sets the pace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_nodes: Option<u32>,
    /// How many measurements it was fitted to.
    pub measurements: u32,
    /// Mean absolute error, relative, of each measurement as the others predict it; absent where they are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_error: Option<f64>,
    /// The model.
    pub model: FittedModel,
}

fn one() -> u32 {
    1
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(count: &u32) -> bool {
    *count == 1
}

impl FittedFile {
    /// Whether a text is such a file, of any version, and not a profile.
    pub fn is_one(text: &str) -> bool {
        #[derive(Deserialize)]
        struct Probe {
            kinds: Option<IgnoredAny>,
        }
        serde_json::from_str(text).is_ok_and(|probe: Probe| probe.kinds.is_some())
    }

    /// Reads the JSON of such a file; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for JSON that is not of this form, another version, no kind at all, or two of one name.
    pub fn read(text: &str, place: &str) -> Result<FittedFile, InputError> {
        let again = "make it again with `bellwether fit … -o FILE.json`";
        let file: FittedFile = serde_json::from_str(text)
            .map_err(|e| InputError::new(place, format!("no fitted models: {e}")).hint(again))?;
        if file.version != FITTED_VERSION {
            let what = format!("models of version {}, and this program reads {FITTED_VERSION}", file.version);
            return Err(InputError::new(place, what).hint(again));
        }
        if file.kinds.is_empty() {
            return Err(InputError::new(place, "it holds no kind of job").hint(again));
        }
        let mut names: Vec<&str> = file.kinds.iter().map(|kind| kind.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(InputError::new(place, format!("it holds two kinds `{}`", twice[0])).hint(again));
        }
        Ok(file)
    }
}
