//! The order in which samples are visited, where a job names one.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Data;

/// Blocks of samples that lie next to each other are visited in an order that is another in every epoch, and so are the
/// samples inside of each: reading stays within one block for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockOrder {
    /// Samples of a block; the last block takes what is left.
    pub block: NonZeroU64,
}

impl Data {
    /// Samples of a block of the order in which samples are visited, where there are blocks.
    pub fn order_block(&self) -> Option<NonZeroU64> {
        let (Data::Digits { order, .. }
        | Data::Idx { order, .. }
        | Data::Cifar10 { order, .. }
        | Data::Csv { order, .. }
        | Data::Text { order, .. }
        | Data::Tokens { order, .. }
        | Data::Records { order, .. }
        | Data::Teacher { order, .. }
        | Data::Custom { order, .. }
        | Data::Python { order, .. }
        | Data::Indices { order, .. }) = self;
        order.map(|order| order.block)
    }
}
