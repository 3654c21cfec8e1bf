//! Newcomers and servers that get no further: the run does not wait for them for ever.

use super::{Coordinator, Kept, Lifecycle, Stage};
use crate::membership::{FLOOR_BYTES_PER_S, WorkerId};

/// Least seconds within which a state is to arrive.
const LEAST_S: f64 = 10.0;

/// How many times as long as ever before a state may take.
const PATIENCE: f64 = 8.0;

/// Times that members may give a newcomer up before it has to go.
const GIVEN_UP_MAX: u32 = 2;

impl Coordinator {
    /// Seconds within which a worker or a server must have received the whole state, from its size and from what others
    /// took.
    pub(super) fn transfer_limit_s(&self) -> f64 {
        let layout = self.workload.as_ref().map(|workload| &workload.layout);
        // Two slots, as the hungriest optimizer has them.
        let numbers = layout.map_or(0, |layout| 3 * layout.parameter_count() + layout.state_count());
        let expected_s = match self.slowest_transfer_s {
            Some(seconds) => PATIENCE * seconds,
            None => 4.0 * numbers as f64 / FLOOR_BYTES_PER_S,
        };
        LEAST_S + expected_s
    }

    /// A shadow has received the whole state.
    pub(super) fn note_transfer(&mut self, seconds: f64) {
        self.slowest_transfer_s = Some(self.slowest_transfer_s.map_or(seconds, |s: f64| s.max(seconds)));
    }

    /// Shadows that have not received the state in time, though they say that they live.
    pub(super) fn stuck_shadows(&self) -> Vec<(WorkerId, String)> {
        let limit_s = self.transfer_limit_s();
        self.workers
            .iter()
            .filter(|(_, w)| w.stage == Stage::Shadow && self.now_s - w.started_s > limit_s)
            .map(|(id, _)| (*id, format!("it has not received the state within {limit_s:.0} s")))
            .collect()
    }

    /// A member sends a shadow nothing any more, because it does not take it.
    pub(super) fn shadow_lost(&mut self, member: WorkerId, epoch: u64, shadow: WorkerId) {
        if self.lifecycle != Lifecycle::Running
            || epoch != self.current.epoch
            || self.current.rank(member).is_none()
        {
            return;
        }
        let Some(entry) = self.workers.get_mut(&shadow) else { return };
        if !matches!(entry.stage, Stage::Shadow | Stage::CaughtUp) || !self.current.shadows(shadow) {
            return;
        }
        entry.given_up += 1;
        let (step, given_up) = (entry.step, entry.given_up);
        if given_up >= GIVEN_UP_MAX {
            let why = format!("it does not take what worker {member} sends, for the second time");
            self.expel(shadow, &why);
            return;
        }
        self.failed_to_join(shadow, step);
        if let Some(entry) = self.workers.get_mut(&shadow).filter(|w| w.kept == Kept::Exactly) {
            // It may have gone on.
            entry.kept = Kept::AtLeast;
        }
    }

    /// A worker has to go, and may not come back: another takes its place.
    pub(super) fn expel(&mut self, worker: WorkerId, why: &str) {
        self.say_goodbye(worker, why.into(), true);
        self.gone(worker, why);
    }
}
