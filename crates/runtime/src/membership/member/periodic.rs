//! What a member does at boundaries beside training: evaluations and checkpoints.

use super::{Member, Stage};

impl Member {
    /// [`Evaluate`](super::Task::Evaluate) was carried out.
    pub fn evaluated(&mut self) {
        self.evaluated_at = Some(self.step);
    }

    /// [`Checkpoint`](super::Task::Checkpoint) was begun.
    pub fn checkpointed(&mut self) {
        self.checkpointed_at = Some(self.step);
        self.send_again = false;
    }

    /// The coordinator asks for the state after `step`.
    pub(super) fn send_checkpoint(&mut self, epoch: u64, step: u64) {
        // What was asked of a membership that is over is asked again.
        self.send_again = epoch == self.membership.epoch
            && (self.stage == Stage::Running || (self.stage == Stage::Finished && step == self.step));
        if self.send_again && step == self.step && self.holds() {
            // What was sent at this boundary, at which all wait, did not become a checkpoint.
            self.checkpointed_at = None;
        }
    }
}
