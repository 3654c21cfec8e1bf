//! Where the worker of a Python script computes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// On the processor.
    #[default]
    Cpu,
    /// On a GPU of its own, which `CUDA_VISIBLE_DEVICES` names.
    Cuda,
}

impl Device {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_cpu(&self) -> bool {
        *self == Device::Cpu
    }
}
