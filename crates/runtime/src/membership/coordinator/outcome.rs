//! How a run ends.

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How.
    pub kind: OutcomeKind,
    /// Why, when it failed.
    pub reason: String,
    /// Digest that all workers agree on.
    pub digest: Option<[u8; 32]>,
}

/// How a run ended, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    /// All steps are done.
    Finished,
    /// It was asked to stop; it can be resumed.
    Stopped,
    /// It cannot go on: exit code 1.
    Failed,
    /// Workers disagree about the result: a bug of ours, exit code 3.
    Broken,
}
