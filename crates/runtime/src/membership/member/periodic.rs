//! What a member does at boundaries beside training: evaluations and checkpoints.

use super::{Member, Stage};
use crate::membership::Offer;

impl Member {
    /// Whether a multiple of `every` lies behind that the boundary `done` and those before it do not cover: every
    /// member comes to the same answer, whatever it was told when.
    pub(super) fn is_due(&self, every: u64, done: Option<u64>) -> bool {
        self.is_due_at(self.step, every, done)
    }

    /// The same for another boundary.
    fn is_due_at(&self, step: u64, every: u64, done: Option<u64>) -> bool {
        let since = step.saturating_sub(self.reach()).max(done.unwrap_or(0));
        every > 0 && step / every > since / every
    }

    /// [`Evaluate`](super::Task::Evaluate) was carried out.
    pub fn evaluated(&mut self) {
        self.evaluated_at = Some(self.step);
    }

    /// [`Checkpoint`](super::Task::Checkpoint) was begun.
    pub fn checkpointed(&mut self) {
        self.checkpointed_at = Some(self.step);
        self.send_again = false;
    }

    /// Whether slices that this member wrote are still on their way: no further checkpoint is begun meanwhile.
    pub fn uploads(&mut self, uploading: bool) {
        self.uploading = uploading;
    }

    /// The boundary at which the first member would have all write their slices, if it is this one; otherwise 0, or
    /// that this member cannot.
    pub(super) fn proposed_checkpoint(&self, boundary: u64) -> u64 {
        if self.rules.slices && self.uploading {
            return Offer::STILL_WRITES;
        }
        let is_first = self.rules.slices && self.membership.rank(self.id) == Some(0);
        let due = || self.is_due_at(boundary, self.rules.checkpoint_every, self.checkpointed_at);
        let proposes = is_first && boundary < self.rules.total_steps;
        if proposes && (self.send_again || due()) { boundary } else { 0 }
    }

    /// All members heard the same in the round that ended at this boundary.
    pub(super) fn agree_on_checkpoint(&mut self, offers: &[Offer]) {
        let first = offers.first().map_or(0, |offer| offer.checkpoint);
        let all_can = offers.iter().all(|offer| offer.checkpoint != Offer::STILL_WRITES);
        let agreed = self.rules.slices && all_can && first == self.step && first > 0;
        self.slices_at = agreed.then_some(first);
    }

    /// Whether the state is to be sent, or its slices written, at this boundary.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let is_new = self.checkpointed_at != Some(self.step);
        if self.rules.slices {
            let agreed = self.slices_at == Some(self.step);
            return agreed && is_new && self.membership.rank(self.id).is_some();
        }
        let is_first = self.membership.rank(self.id) == Some(0);
        let is_due = || self.is_due(self.rules.checkpoint_every, self.checkpointed_at);
        is_first && (self.send_again && is_new || is_due())
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
