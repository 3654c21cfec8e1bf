//! What an `ElasticJob` says of the programs that train.

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FieldError;

/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// A pattern that its author gave, with a bound on what it takes.
///
/// # Errors
///
/// A text that is not a regular expression, or a very large one.
pub(crate) fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(PATTERN_BYTES).build()
}

/// Groups of a pattern from which a speed follows.
const SPEEDS: [&str; 3] = ["samples_per_second", "samples", "step"];

/// How the workers of a job work together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Bellwether trains the job file: workers come and go between two steps, and the result has the same bits for any
    /// number of them.
    #[default]
    Native,
    /// The template's command is a PyTorch script that finds what `torchrun` sets. When its size changes, all pods
    /// start again from the script's own checkpoint.
    Torchrun,
    /// The template's command is a TensorFlow script that finds `TF_CONFIG`. When its size changes, all pods start
    /// again from the script's own checkpoint.
    Tensorflow,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Backend {
    /// Its name, as it stands in the resource.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Native => "native",
            Backend::Torchrun => "torchrun",
            Backend::Tensorflow => "tensorflow",
            Backend::Unknown => "unknown",
        }
    }
}

/// How the workers of a job find each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rendezvous {
    /// How the workers work together: `native` (the job file), `torchrun` (a PyTorch script) or `tensorflow` (a
    /// TensorFlow script). It cannot be changed once the job was accepted.
    pub backend: Backend,
    /// Port of the coordinator, or of the first pod.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: u16,
    /// Where the speed of a script is read, for backends other than `native`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Rendezvous { backend: Backend::Native, port: 29_500, throughput: None }
    }
}

/// Where the speed of a script is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// A regular expression that fits a line of what the script prints, with one of the named groups
    /// `samples_per_second`, `samples` (in all so far) or `step`, and perhaps `loss`: `step (?<step>\d+)`. With `step`,
    /// `spec.work.batchSize` says how many samples a step takes.
    #[schemars(length(min = 1, max = 1024))]
    pub pattern: String,
}

impl Throughput {
    /// The compiled pattern.
    ///
    /// # Errors
    ///
    /// A text that is not a regular expression, or from which no speed follows.
    pub fn compile(&self) -> Result<Regex, FieldError> {
        let wrong = |what: String| FieldError::new("spec.rendezvous.throughput.pattern", what);
        let regex = pattern(&self.pattern).map_err(|error| {
            // The message shows the pattern, with a mark under what is wrong.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            wrong(format!("not a regular expression: {reason}"))
        })?;
        if !regex.capture_names().flatten().any(|name| SPEEDS.contains(&name)) {
            let hint = r"write for example (?<samples_per_second>[\d.]+) samples/s, or step (?<step>\d+)";
            return Err(wrong(format!("it has none of the named groups {}", SPEEDS.join(", "))).hint(hint));
        }
        Ok(regex)
    }

    /// Whether only steps are counted, so that the size of a batch has to be known.
    pub(super) fn counts_steps(regex: &Regex) -> bool {
        let has = |wanted: &str| regex.capture_names().flatten().any(|name| name == wanted);
        has("step") && !has("samples") && !has("samples_per_second")
    }
}

/// What there is to do, where no job file says it: schedulers have to know the work that remains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Work {
    /// Samples that the script trains on in all, repetitions included. Exactly one of `samples` and `steps` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub samples: Option<u64>,
    /// Optimizer steps in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub steps: Option<u64>,
    /// Samples of an optimizer step, over all workers; needed with `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_size: Option<u64>,
}

impl Work {
    /// Samples in all; `None` where it does not say.
    pub fn all_samples(&self) -> Option<u64> {
        self.samples.or_else(|| Some(self.steps?.saturating_mul(self.batch_size?)))
    }
}

/// What the scheduler may assume until it has measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Samples of an epoch of a native job, where its data is on volumes that the operator does not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub training_samples: Option<u64>,
    /// Most samples of a step, over all workers, with which a script still learns: a step's, where `work` does not say
    /// it. A native job's batch stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_global_batch: Option<u64>,
    /// Fewest samples of a step that are worth a worker: there are no more workers than that leaves room for, though
    /// at least `minReplicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_local_batch: Option<u64>,
}
