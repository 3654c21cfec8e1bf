//! Failures of the user's own code, which end a run before it boots one worker after the other for nothing.

use bellwether_core::record::RunFailure;

use super::{Coordinator, Journal, WorkerId};

/// A failure of the user's code on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserFailure {
    what: String,
    /// Step and virtual node.
    place: (u64, u32),
}

impl Coordinator {
    /// A worker goes because the user's code failed on it. The same failure on two workers, or one before this
    /// coordinator has seen a step, ends the run: the survivors hand their state over first.
    pub(super) fn user_failed(&mut self, worker: WorkerId, what: String, step: u64, node: u32) {
        let sentence = format!("{what} (worker {worker}, step {step}, virtual node {node})");
        self.journal(Journal::Warning { message: format!("worker {worker} cannot go on: {sentence}") });
        let failure = UserFailure { what, place: (step, node) };
        let again = |before: &UserFailure| before.what == failure.what || before.place == failure.place;
        if !self.has_committed || self.user_failures.iter().any(again) {
            self.failure.get_or_insert(RunFailure::Other(sentence.clone()));
            self.stopping = true;
        }
        self.user_failures.push(failure);
        self.gone(worker, &sentence);
    }
}
