//! A checkpoint that turns out to be damaged when it is loaded: the run goes on from the one before.

use bellwether_core::record::{Event as Journal, RunFailure};

use super::{Coordinator, Lifecycle, WorkerId};
use crate::membership::Load;

impl Coordinator {
    /// A worker was told to load the checkpoint of `step`, which is not what was written.
    pub(super) fn checkpoint_damaged(&mut self, worker: WorkerId, step: u64, why: &str) {
        // All who load it say so; the first is enough.
        let Lifecycle::Recovering { load: Some(Load::Checkpoint(loads)), .. } = self.lifecycle else {
            return;
        };
        if loads != step || self.current.rank(worker).is_none() {
            return;
        }
        self.journal(Journal::CheckpointFailed { step, reason: why.into() });
        self.settled.remove(&step);
        let older = &mut self.last_checkpoint.older;
        older.retain(|older| *older < step);
        self.checkpoint = (!older.is_empty()).then(|| older.remove(0));
        if self.checkpoint.is_none() {
            let failure = RunFailure::Other(format!("no checkpoint can be used: {why}"));
            self.failure.get_or_insert(failure);
        }
        self.fall_back();
    }
}
