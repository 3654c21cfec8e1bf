//! How gradients travel between workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How gradients are summed over virtual nodes, and travel between workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Numbers in which gradients are summed: `"f32"` (the default), or `"bf16"`, which takes half the bytes.
    #[serde(default)]
    pub precision: Precision,
}

impl Exchange {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_default(&self) -> bool {
        *self == Exchange::default()
    }
}

/// Numbers in which gradients are summed over virtual nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits (bfloat16): the gradient of each virtual node, and each sum of two, is rounded to the nearest number
    /// with 8 bits of precision. The rounding decides bits, and is the same for any number of workers.
    Bf16,
}

impl Precision {
    /// Bytes of a gradient's value between workers.
    pub fn bytes(self) -> u64 {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }
}
