//! Who holds which part of the state, and whose part counts when the members are lost.

use std::collections::BTreeMap;

use super::{Coordinator, Kept, Ready, Stage};
use crate::membership::{Membership, ToWorker, WorkerId};

impl Coordinator {
    /// Of the workers that hold a state, those that can go on together; none if a checkpoint is newer.
    pub(super) fn best_holders(&self, holding: &[WorkerId]) -> Vec<WorkerId> {
        let step = |id: &WorkerId| self.workers[id].step;
        // Where the batch may move, steps done again after a loss may be other updates than before: only the latest
        // count.
        let moves = self.config.max_accumulation > 1;
        let latest = holding.iter().map(|id| self.workers[id].epoch).max().unwrap_or(0);
        let holding: Vec<WorkerId> =
            holding.iter().copied().filter(|id| !moves || self.workers[id].epoch == latest).collect();
        let Some(newest) = holding.iter().map(step).max() else { return Vec::new() };
        let exact = |id: &WorkerId| self.workers[id].kept == Kept::Exactly;
        if Some(newest) < self.checkpoint && holding.iter().all(exact) {
            return Vec::new();
        }
        // A worker that may be further than is known will tell when it is ready.
        let (mut members, others): (Vec<WorkerId>, Vec<WorkerId>) =
            holding.iter().copied().partition(|id| step(id) == newest || !exact(id));
        // Of those behind, only members of the same epoch can be sure that the last result was kept for them.
        let epoch = |id: &WorkerId| self.workers[id].epoch;
        let same_epoch = |id: &WorkerId| members.iter().all(|m| epoch(m) == epoch(id));
        let update = u64::from(self.config.max_accumulation.max(1));
        let near: Vec<WorkerId> =
            others.into_iter().filter(|id| step(id) + update >= newest && same_epoch(id)).collect();
        members.extend(near);
        members.truncate(self.config.virtual_nodes as usize);
        members.sort_unstable();
        members
    }

    /// Whether the run may go on from a state that this worker handed over. Where the batch may move, those who went on
    /// without it may have done the same steps otherwise; elsewhere all states of a step are the same.
    pub fn state_counts(&self, from: WorkerId) -> bool {
        let may_go_on = || self.workers.get(&from).is_some_and(|w| w.kept != Kept::Nothing);
        self.config.max_accumulation <= 1
            || self.is_relied_on(from)
            || self.strays.contains(&from)
            || may_go_on()
    }

    /// Whether a state that is later than this step is here and not yet written, and matters: where committed steps are
    /// missing, or where the batch may move and steps done again would make it the state of another history. It is soon
    /// known whether it becomes a checkpoint.
    pub(super) fn waits_for_writing(&self, step: u64) -> bool {
        let later = |writing: &u64| *writing > step && Some(*writing) > self.checkpoint;
        let matters = step < self.progress.committed() || self.config.max_accumulation > 1;
        matters && self.writing.iter().any(later)
    }

    /// Whether a worker outside the membership holds more steps, and may go on with them instead of the members.
    pub(super) fn is_further(&self, ready: &BTreeMap<WorkerId, Ready>, step: u64) -> bool {
        let latest = ready.keys().filter_map(|id| self.workers.get(id)).map(|w| w.epoch).max();
        self.workers.values().any(|w| {
            // As for the best holders: where the batch may move, only the latest count.
            let counts = self.config.max_accumulation == 1 || Some(w.epoch) >= latest;
            w.stage == Stage::Standby && w.kept != Kept::Nothing && w.step > step && counts
        })
    }

    /// The members go on: what others hold grows stale, and where the batch may move it may become another state of the
    /// same step than the members'.
    pub(super) fn forget_other_states(&mut self, formed: &Membership) {
        if self.config.max_accumulation == 1 {
            return;
        }
        self.strays.clear();
        let others: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(id, w)| w.kept != Kept::Nothing && formed.rank(**id).is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in others {
            self.workers.entry(id).and_modify(|w| w.kept = Kept::Nothing);
            self.send(id, ToWorker::Recover { membership: formed.clone(), load: None, keep: false });
        }
    }
}
