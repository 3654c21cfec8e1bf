//! What may change while a job is trained: nothing, the kernels of its workers, or the batch and with it the learning
//! rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may change while the job is trained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Mode {
    /// Nothing: the trained parameters are the same bytes for any number of workers.
    #[default]
    Exact,
    /// The kernels: workers of any kernel class train together. Samples, order and batch are those of mode `exact`; how
    /// a gradient is rounded depends on which worker computes it.
    Mixed,
    /// The batch grows where larger batches train faster, and the learning rate with it. The trained parameters are the
    /// same bytes for the same changes of the batch, for any number of workers.
    Goodput(Goodput),
}

/// How the batch may move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Goodput {
    /// Most samples per update. The batch is a multiple of `batch.size`, which it never falls below.
    pub max_batch: u64,
    /// How the learning rate follows the batch; by default `"adascale"` for SGD and `"square-root"` for Adam.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RateRule>,
    /// The batch from given steps on, as pairs `[step, factor on batch.size]`; without it the batch is chosen by what
    /// is measured while the job is trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<(u64, u32)>,
}

/// How the learning rate follows the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateRule {
    /// As many times larger as the measured noise of the gradient allows (for SGD).
    Adascale,
    /// As many times larger as the batch (for SGD).
    Linear,
    /// By the square root of that; decay rates of Adam's moments are applied once per step of the batch.
    SquareRoot,
}

impl Goodput {
    /// The most steps of `batch` samples that an update may cover, at least 1.
    pub fn max_accumulation(&self, batch: u64) -> u32 {
        u32::try_from(self.max_batch / batch.max(1)).unwrap_or(u32::MAX).max(1)
    }

    /// The factor that the schedule asks for from `step` on; 1 before its first entry, `None` without a schedule.
    ///
    /// ```
    /// use bellwether_core::job::Goodput;
    /// let goodput = Goodput { max_batch: 512, rule: None, schedule: vec![(100, 2), (200, 4)] };
    /// assert_eq!([0, 99, 100, 250].map(|step| goodput.scheduled(step)), [Some(1), Some(1), Some(2), Some(4)]);
    /// ```
    pub fn scheduled(&self, step: u64) -> Option<u32> {
        let last = self.schedule.iter().rev().find(|(at, _)| *at <= step);
        (!self.schedule.is_empty()).then(|| last.map_or(1, |(_, factor)| *factor))
    }
}

impl Mode {
    /// How the batch may move, if it may.
    pub fn goodput(&self) -> Option<&Goodput> {
        match self {
            Mode::Exact | Mode::Mixed => None,
            Mode::Goodput(goodput) => Some(goodput),
        }
    }

    /// Whether workers of any kernel class train together.
    pub fn is_mixed(&self) -> bool {
        *self == Mode::Mixed
    }
}
