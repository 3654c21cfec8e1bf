//! A worker's half of a recovery: what it holds is kept, loaded, or dropped.

#[cfg(doc)]
use super::Task;
use super::{Effect, Member, Stage};
use crate::membership::{FromWorker, Load, Membership, WorkerId};

impl Member {
    /// Whether nothing more is trained because the loss was not finite: the state that led there replaces no
    /// checkpoint.
    pub fn has_diverged(&self) -> bool {
        self.halted && self.diverged
    }

    /// Whether everything is done but for what the coordinator may ask for once more.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    pub(super) fn recover(&mut self, membership: Membership, load: Option<Load>, keep: bool) {
        self.prepared.clear();
        self.agreed = None;
        self.overtaken = membership.epoch;
        if membership.rank(self.id).is_some() {
            // Loading overwrites what is held.
            self.has_state &= load.is_none();
            self.stage = Stage::Forming(load);
        } else if keep && self.has_state {
            // It remains the state of the membership in which it was trained.
            self.stage = Stage::Broken;
            return;
        } else {
            // What a worker outside the membership holds grows stale.
            self.has_state = false;
            self.stage = Stage::Standby;
        }
        self.verdicts.begin(membership.decided);
        self.membership = membership;
    }

    /// Whether a membership is later than all that this worker was in or was told to forget.
    pub(super) fn is_news(&self, membership: &Membership) -> bool {
        membership.epoch > self.membership.epoch.max(self.overtaken)
    }

    /// [`Task::Form`] was carried out; `loaded` is the step of a newly loaded state.
    pub fn formed(
        &mut self,
        epoch: u64,
        loaded: Option<u64>,
        result: Result<(), (Option<WorkerId>, String)>,
    ) -> Vec<Effect> {
        if let Some(step) = loaded {
            (self.step, self.last, self.trained, self.loaded) = (step, 0, (0, 0), epoch);
            self.has_state = true;
            self.halted = false;
        }
        if !matches!(self.stage, Stage::Forming(_)) || self.membership.epoch != epoch {
            return vec![];
        }
        match result {
            Ok(()) if self.has_state => {
                self.stage = Stage::Ready;
                vec![Effect::Send(FromWorker::Ready {
                    epoch,
                    step: self.step,
                    last: self.last,
                    trained: self.trained,
                })]
            }
            Ok(()) => self.broken(Some(self.id), "it holds no state".into()),
            Err((peer, why)) => self.broken(peer, why),
        }
    }
}
