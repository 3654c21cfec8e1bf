//! Checkpoints by time, so that even the loss of all workers costs a bounded part of the run.

use super::Coordinator;
use crate::membership::ToWorker;

/// A checkpoint may take at most one part in this many of the time.
const SHARE: f64 = 10.0;

/// When the last checkpoint came, by whatever rule, or was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Periodic {
    last_s: f64,
    asked_s: Option<f64>,
    /// Seconds that the last one took that was asked for.
    took_s: f64,
}

impl Periodic {
    /// A checkpoint was written.
    pub(super) fn written(&mut self, now_s: f64) {
        if let Some(asked_s) = self.asked_s.take() {
            self.took_s = now_s - asked_s;
        }
        self.last_s = now_s;
    }
}

impl Coordinator {
    /// Whether it is time for a checkpoint; it counts as asked for then.
    pub(super) fn is_checkpoint_due(&mut self) -> bool {
        let period_s = self.config.checkpoint_period_s;
        // Where a verdict is due, the state is on its way.
        let is_on_its_way = self.config.verdict_needs_state && self.awaited_verdict().is_some();
        let news = self.progress.committed() > self.checkpoint.unwrap_or(0) && !is_on_its_way;
        if period_s <= 0.0 || !news || self.stopping || self.failure.is_some() {
            return false;
        }
        let periodic = &mut self.periodic;
        let due = self.now_s - periodic.last_s >= period_s.max(SHARE * periodic.took_s);
        if due {
            (periodic.last_s, periodic.asked_s) = (self.now_s, Some(self.now_s));
        }
        due
    }

    /// Asks the first member for its state, at its next boundary.
    pub(super) fn ask_for_checkpoint(&mut self) {
        let Some(first) = self.current.active.first().map(|member| member.worker) else { return };
        if self.is_checkpoint_due() {
            let (epoch, step) = (self.current.epoch, self.progress.committed());
            self.send(first, ToWorker::SendCheckpoint { epoch, step });
        }
    }
}
