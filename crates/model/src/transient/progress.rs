//! The work of one run between two changes of its workers: working, checkpoints and pauses, without an event for each.

use super::job::Checkpoints;

/// How far a run has come.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    now_s: f64,
    done: f64,
    /// What the last complete checkpoint holds.
    saved: f64,
    per_s: f64,
    paused_until_s: f64,
    /// Place in the cycle of one period of work and one checkpoint.
    cycle_s: f64,
    checkpoints: Option<Checkpoints>,
}

impl Progress {
    pub(super) fn new(checkpoints: Option<Checkpoints>) -> Progress {
        Progress {
            now_s: 0.0,
            done: 0.0,
            saved: 0.0,
            per_s: 0.0,
            paused_until_s: 0.0,
            cycle_s: 0.0,
            checkpoints,
        }
    }

    /// Works at the present speed until a time not after the end of the work.
    pub(super) fn advance(&mut self, to_s: f64) {
        let span_s = (to_s - self.now_s.max(self.paused_until_s)).max(0.0);
        self.now_s = to_s;
        if self.per_s <= 0.0 {
            return;
        }
        let Some(Checkpoints { period_s, time_s }) = self.checkpoints else {
            self.done += self.per_s * span_s;
            return;
        };
        let length_s = period_s + time_s;
        let total_s = self.cycle_s + span_s;
        let cycles = (total_s / length_s).floor();
        let place_s = (total_s - cycles * length_s).max(0.0);
        let worked_s = cycles * period_s + place_s.min(period_s) - self.cycle_s.min(period_s);
        self.done += self.per_s * worked_s;
        if cycles >= 1.0 {
            self.saved = self.done - self.per_s * place_s.min(period_s);
        }
        self.cycle_s = place_s;
    }

    /// When `work` will be done at the present speed; never, when no worker works.
    pub(super) fn end_s(&self, work: f64) -> f64 {
        if self.per_s <= 0.0 {
            return f64::INFINITY;
        }
        let begin_s = self.now_s.max(self.paused_until_s);
        let left_s = ((work - self.done) / self.per_s).max(0.0);
        let Some(Checkpoints { period_s, time_s }) = self.checkpoints else {
            return begin_s + left_s;
        };
        let (wait_s, until_checkpoint_s) = if self.cycle_s <= period_s {
            (0.0, period_s - self.cycle_s)
        } else {
            (period_s + time_s - self.cycle_s, period_s)
        };
        let pauses = ((left_s - until_checkpoint_s) / period_s).ceil().max(0.0);
        begin_s + wait_s + left_s + pauses * time_s
    }

    /// From now on the speed is another.
    pub(super) fn set_speed(&mut self, per_s: f64) {
        self.per_s = per_s;
    }

    /// No worker works for these seconds from now; pauses at one time overlap.
    pub(super) fn pause(&mut self, pause_s: f64) {
        self.paused_until_s = self.paused_until_s.max(self.now_s + pause_s);
    }

    /// Goes back to the last complete checkpoint, and returns the work that is lost.
    pub(super) fn roll_back(&mut self) -> f64 {
        let lost = self.done - self.saved;
        self.done = self.saved;
        self.cycle_s = 0.0;
        lost
    }
}
