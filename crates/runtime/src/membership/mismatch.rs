//! What members tell of a virtual node that two of them computed differently.

use super::WorkerId;

/// What is known of whose computation was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A third worker computes the node.
    Awaited,
    /// This worker's was wrong: the judge computed what the other did.
    Wrong {
        /// Who.
        worker: WorkerId,
        /// The third worker.
        judge: WorkerId,
    },
    /// It cannot be told.
    Open,
}

/// A virtual node that two workers computed differently: nothing of its step was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The membership.
    pub epoch: u64,
    /// The step.
    pub step: u64,
    /// The virtual node.
    pub node: u32,
    /// Whose node it is.
    pub worker: WorkerId,
    /// Who computed it again.
    pub checker: WorkerId,
    /// Whose was wrong.
    pub verdict: Verdict,
}
