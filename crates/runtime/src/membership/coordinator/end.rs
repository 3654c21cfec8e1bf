//! How a run ends.

use bellwether_core::record::RunOutcome;

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// How it ended.
    pub how: RunOutcome,
    /// Digest that all workers agree on.
    pub digest: Option<[u8; 32]>,
}
