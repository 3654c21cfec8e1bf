//! The sweep file: which keys of a job file are varied, how trials are chosen, and what the search may cost.
//!
//! A trial is the job file with one value for each varied key. [`read`] makes a [`Sweep`] of the text of a sweep file,
//! and later code need not ask again whether a range is empty or a condition names a key that is not there. Whether
//! the job file has the varied keys is known once a sample is laid over it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::InputError;
use crate::job::Metric;
use crate::units::{Dollars, DollarsPerHour, Seconds};

mod check;
mod resource;
mod space;
mod value;

pub use resource::{Ladder, Unit};
pub use space::{Condition, Domain, Parameter, Space};
pub use value::{Sample, Value, overrides};

/// Most trials of a sweep.
pub const TRIALS_MAX: u64 = 100_000;

/// What begins the name of an argument of the job's script, in place of a key of the job file.
pub const ARGUMENT: &str = "--";

/// A search over jobs, as its author describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// The job file, or the Python script that declares its job; a relative path starts at the sweep file's folder.
    pub job: PathBuf,
    /// Keys of the job file that have one value in all trials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// Slots for the workers of all trials, where the sweep runs without a daemon; one for each core if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Trials that train at the same time; as many as there are slots if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// The varied keys: dotted keys of the job file in quotes, or arguments of its script (`"--width"`).
    pub space: BTreeMap<String, Range>,
    /// What is compared.
    #[serde(default)]
    pub objective: Objective,
    /// How values are chosen.
    #[serde(default)]
    pub sampler: Sampler,
    /// Which trials go on.
    #[serde(default)]
    pub scheduler: TrialScheduler,
    /// When no more trials begin.
    #[serde(default)]
    pub budget: Budget,
}

/// The values that a key may take: `choices`, or all from `low` to `high`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Values without an order, each as it would stand in the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    /// The least value. Where it and `high` are integers, so are all values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Value>,
    /// The largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Value>,
    /// Distance of the values from `low` on, on a linear scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Value>,
    /// Values of a grid between `low` and `high`, both included, where there is no `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u32>,
    /// Whether equal differences or equal ratios are equally likely.
    #[serde(default)]
    pub scale: Scale,
    /// The key is varied only where these other keys have this value, or one of these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Value>,
}

/// What is equally likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences.
    #[default]
    Linear,
    /// Equal ratios.
    Log,
}

/// What of the held-out samples is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// The accuracy, which is to be high, or the loss, which is to be low.
    #[serde(default = "accuracy")]
    pub metric: Metric,
}

impl Default for Objective {
    fn default() -> Self {
        Objective { metric: accuracy() }
    }
}

fn accuracy() -> Metric {
    Metric::Accuracy
}

/// How the values of trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampler {
    /// The method.
    #[serde(default)]
    pub kind: SamplerKind,
    /// Seed of everything random in it.
    #[serde(default)]
    pub seed: u64,
    /// Trials that are drawn at random before TPE looks at what trials gave; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_trials: Option<u64>,
}

/// A method that chooses values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplerKind {
    /// Every combination, in order.
    Grid,
    /// Independent draws.
    Random,
    /// Points of a Sobol sequence, which fill the space evenly.
    Sobol,
    /// The tree-structured Parzen estimator, which draws where good trials were.
    #[default]
    Tpe,
}

/// Which trials go on, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TrialScheduler {
    /// Every trial is trained to its end.
    #[default]
    None,
    /// Asynchronous successive halving: the best part of each rung goes on as soon as it is known to be that.
    Asha(Resources),
    /// Synchronous brackets that begin with many short trials, and with few long ones.
    Hyperband(Resources),
    /// A trial ends whose best value is worse than the median of what the others had by then on average.
    Median(Resources),
}

/// Lengths of trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// One in this many trials of a rung goes on to the next one, which is this many times as long.
    #[serde(default = "three")]
    pub reduction: u64,
    /// Length of the first rung; of `median`, the length between two looks.
    #[serde(default = "one")]
    pub minimum: u64,
    /// Length of a whole trial; the job file's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
    /// What lengths are counted in.
    #[serde(default)]
    pub unit: Unit,
}

fn three() -> u64 {
    3
}
fn one() -> u64 {
    1
}

impl TrialScheduler {
    /// The lengths, where trials may be shorter than their job.
    pub fn resources(&self) -> Option<&Resources> {
        match self {
            TrialScheduler::None => None,
            TrialScheduler::Asha(resources)
            | TrialScheduler::Hyperband(resources)
            | TrialScheduler::Median(resources) => Some(resources),
        }
    }

    /// Its name in a sweep file.
    pub fn name(&self) -> &'static str {
        match self {
            TrialScheduler::None => "none",
            TrialScheduler::Asha(_) => "asha",
            TrialScheduler::Hyperband(_) => "hyperband",
            TrialScheduler::Median(_) => "median",
        }
    }
}

/// What a sweep may cost. At the first limit that is reached no trial goes on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Trials that begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<u64>,
    /// Hours of all workers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_hours: Option<f64>,
    /// Time while the sweep is at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Seconds>,
    /// Money, at `price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Dollars>,
    /// Price of a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<DollarsPerHour>,
}

/// A sweep file that was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// What its author wrote.
    pub file: SweepFile,
    /// The varied keys, each after those that its condition names.
    pub space: Space,
}

impl SweepFile {
    /// The JSON schema of the sweep file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(SweepFile).to_value()
    }

    /// Checks what the type system cannot: ranges, conditions, lengths.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with the key it concerns.
    pub fn check(self) -> Result<Sweep, InputError> {
        let space = check::sweep(&self)?;
        Ok(Sweep { file: self, space })
    }
}

/// Reads a sweep from the text of a TOML file, which errors call `place`.
///
/// # Errors
///
/// Returns what is wrong first: the syntax, a misspelt key, a range without values, a condition that cannot hold.
///
/// ```
/// # use bellwether_core::sweep::read;
/// let text = "job = \"job.toml\"\n[budget]\ntrials = 9\n[space]\n\
///     \"optimizer.learning_rate\" = { low = 0.0, high = 1.0, scale = \"log\" }\n";
/// let error = read(text, "sweep.toml").unwrap_err();
/// assert_eq!(error.place, "sweep.toml: space.\"optimizer.learning_rate\".low");
/// assert!(error.hint.contains("above 0"), "{error}");
/// ```
pub fn read(text: &str, place: &str) -> Result<Sweep, InputError> {
    check::unquoted(text, place)?;
    let file: SweepFile = crate::parse::document(text, place)?;
    file.check().map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })
}

#[cfg(test)]
mod tests;
