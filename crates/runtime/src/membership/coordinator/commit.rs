//! What workers report, and when a step is committed: once all active members have applied it, or others prove that
//! they have.

use super::{Action, Coordinator, Journal, Lifecycle, Report, WorkerId, progress};

impl Coordinator {
    /// A worker tells what it has done.
    pub(super) fn reported(&mut self, worker: WorkerId, mut report: Report) {
        let switched =
            report.switches.iter().find(|s| s.epoch == report.epoch).map_or(report.step, |s| s.step);
        // A newcomer may be ahead of the members in following a plan.
        let proposal = self.proposed.iter().find(|p| p.membership.epoch == report.epoch);
        if proposal.is_some_and(|p| p.membership.rank(worker).is_some()) {
            self.adopted(report.epoch, switched);
        }
        let mut applied = self.applied.take().unwrap_or_else(|| self.count_applied());
        let Some(entry) = self.workers.get_mut(&worker) else { return };
        let epoch = self.current.epoch;
        if report.epoch >= entry.epoch && report.epoch == epoch {
            let before = entry.applied_in(epoch);
            entry.step = report.step;
            // A membership that has not begun makes no state newer.
            if self.lifecycle == Lifecycle::Running {
                entry.epoch = report.epoch;
            }
            if self.current.rank(worker).is_some() {
                applied.moves(before, entry.applied_in(epoch));
            }
        }
        debug_assert_eq!(applied, self.count_applied());
        for evaluation in self.progress.take(&mut report) {
            let (step, loss, accuracy) = (evaluation.step, evaluation.loss, evaluation.accuracy());
            // The journal's JSON cannot hold a number that is not finite.
            self.journal(match loss.is_finite() {
                true => Journal::Evaluated { step, loss, accuracy },
                false => {
                    Journal::Warning { message: format!("the held-out loss after step {step} is {loss}") }
                }
            });
        }
        for switch in &report.switches {
            self.progress.stalled(switch.epoch, switch.stall_s);
        }
        let (least, _) = applied.ends();
        self.applied = Some(applied);
        self.commit_up_to(least);
    }

    /// Commits what all active members have applied, as they told or as others prove. The latter is left to the looks
    /// at all workers: a moment later most have told themselves, each with its own account of the step.
    pub(super) fn commit(&mut self) {
        let applied = self.applied.take();
        if self.lifecycle != Lifecycle::Running {
            return;
        }
        let epoch = self.current.epoch;
        let (least, most) = applied.unwrap_or_else(|| self.count_applied()).ends();
        // The result of an update contains every member's part, and a member that lacks the previous update has no part
        // in it. So a member that does not report has applied the previous one all the same.
        let before = match self.config.max_accumulation {
            0 | 1 => most.checked_sub(1),
            _ => self.progress.before(most),
        };
        let proven = before.filter(|before| *before >= self.begun_step).unwrap_or(0);
        if proven > least {
            for member in &self.current.active {
                if let Some(w) = self.workers.get_mut(&member.worker) {
                    (w.epoch, w.step) = (epoch, w.step.max(proven));
                }
            }
        }
        self.commit_up_to(least.max(proven));
    }

    fn commit_up_to(&mut self, step: u64) {
        if self.lifecycle == Lifecycle::Running && step > self.progress.committed() {
            self.has_committed = true;
            if step > self.furthest {
                // Steps that are only done again show no progress.
                (self.furthest, self.barren_crashes) = (step, 0);
            }
            self.lagging.clear();
            // All members have it, so that no other worker is needed.
            self.strays.clear();
            self.commit_to(step);
        }
    }

    pub(super) fn commit_to(&mut self, step: u64) {
        self.follow_phases(step);
        let (first, records) = self.progress.commit(step);
        let moves = self.config.max_accumulation > 1;
        for (first, last, accumulation) in progress::phases(first, step, &records, moves) {
            self.journal(Journal::Committed { first, last, accumulation });
        }
        self.actions.push(Action::Committed(records));
        for crash in self.progress.recovered(self.now_s) {
            self.journal(crash);
        }
    }
}
