//! What a coordinator that died leaves to the next.

use std::collections::BTreeSet;

use bellwether_core::record::EarlyEnd;
use serde::{Deserialize, Serialize};

use crate::membership::WorkerId;

/// The state of a run, as its journal tells it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Resumed {
    /// Highest epoch in the journal.
    pub epoch: u64,
    /// Highest worker number in the journal.
    pub last_worker: WorkerId,
    /// Active workers of the last membership; empty when the run had been stopped in good order.
    pub active: Vec<WorkerId>,
    /// Committed steps.
    pub committed: u64,
    /// Committed steps at the last evaluation, which is told once.
    #[serde(default)]
    pub evaluated: Option<u64>,
    /// Steps that each update covered at last; 0 means 1.
    pub accumulation: u32,
    /// Workers that were found to compute wrong gradients.
    pub quarantined: BTreeSet<WorkerId>,
    /// The last step on which a verdict was given.
    #[serde(default)]
    pub decided: u64,
    /// The verdict that ends the run before the last step of its job.
    #[serde(default)]
    pub ended_early: Option<EarlyEnd>,
}
