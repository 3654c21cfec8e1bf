//! Failures of the user's own code, which end a run before it boots one worker after the other for nothing.

use bellwether_core::record::RunFailure;

use super::{Coordinator, Journal, Stage, WorkerId};
use crate::membership::Activity;

/// A failure of the user's code on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserFailure {
    what: String,
    /// Step and virtual node; none where nothing was computed yet.
    place: Option<(u64, u32)>,
}

impl Coordinator {
    /// A worker goes because the user's code failed on it. The same failure on two workers, or one before this
    /// coordinator has seen a step, ends the run: the survivors hand their state over first. A worker that joined by
    /// hand beside those that this coordinator starts may run another script: before it can train it fails alone.
    pub(super) fn user_failed(&mut self, worker: WorkerId, what: String, step: u64, node: u32) {
        let entry = self.workers.get(&worker);
        let stage = entry.and_then(|w| w.boot_stage());
        let alone = stage.is_some() && self.config.spawns && entry.is_some_and(|w| !w.is_ours);
        let place = stage.is_none_or(|stage| stage == Activity::Compiling).then_some((step, node));
        let sentence = match stage.filter(|_| place.is_none()) {
            Some(stage) => format!("{what} (worker {worker}, {stage})"),
            None => format!("{what} (worker {worker}, step {step}, virtual node {node})"),
        };
        self.journal(Journal::Warning { message: format!("worker {worker} cannot go on: {sentence}") });
        let failure = UserFailure { what, place };
        let again = |before: &UserFailure| {
            before.what == failure.what || place.is_some() && before.place == failure.place
        };
        if !alone && (!self.has_committed || self.user_failures.iter().any(again)) {
            self.failure.get_or_insert(RunFailure::Other(sentence.clone()));
            self.stopping = true;
        }
        if !alone {
            self.user_failures.push(failure);
        }
        self.gone(worker, &sentence);
    }
}

impl super::Worker {
    /// What a worker that cannot train yet is doing, as it told last.
    pub(super) fn boot_stage(&self) -> Option<Activity> {
        let told = self.position.as_ref().map_or(Activity::Idle, |(_, position)| position.activity);
        (self.stage == Stage::Booting).then_some(told)
    }
}
