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

    /// Whether this is the boundary at which the members wait for the next membership.
    pub(super) fn holds(&self) -> bool {
        let Some(at) = self.membership.hold_at else { return false };
        // The step to wait at may lie within the update before the boundary.
        let is_here = at <= self.step && at.saturating_add(self.reach()) > self.step;
        // A plan that was made before the boundary that it names was passed knows of none after it, and no verdict has
        // let it pass one.
        is_here || at < self.step && self.is_verdict_due()
    }

    fn is_verdict_due(&self) -> bool {
        let every = self.rules.verdict_every;
        every > 0 && self.step.is_multiple_of(every) && self.step < self.rules.total_steps
    }

    /// Whether the members wait for a verdict on this step, which is neither part of a step nor of a switch.
    pub fn awaits_verdict(&self) -> bool {
        self.is_active() && self.is_verdict_due() && self.holds()
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
