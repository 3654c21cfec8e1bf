//! Members whose sessions say nothing: packets vanish, or the process stands still.
//!
//! They are lost once the heartbeat's time is over. People hear of it earlier.

use super::{ASK_S, Coordinator, Late, Lifecycle, Told};
use crate::membership::{ToWorker, WorkerId};

/// Seconds after its last word after which a member is asked for one; a heartbeat comes every second.
const WORD_S: (f64, f64) = (0.35, 1.15);

/// Seconds for an answer, beside what answers take.
const ANSWER_S: f64 = 0.5;

impl Coordinator {
    /// A worker says something.
    pub(in crate::membership::coordinator) fn heard(&mut self, worker: WorkerId) {
        let Some(entry) = self.workers.get_mut(&worker) else { return };
        if entry.asked_s > entry.heard_s {
            self.watch.limits.spoke(self.now_s - entry.heard_s, self.now_s);
        }
        entry.heard_s = self.now_s;
    }

    /// Seconds of silence after which a worker or server is lost: the heartbeat's time-out, and more where the machines
    /// are so busy that some were nearly as silent of late, and spoke.
    pub(in crate::membership::coordinator) fn silence_timeout_s(&self) -> f64 {
        self.watch.limits.loss_s(self.config.heartbeat_timeout_s)
    }

    /// Asks who has been silent for longer than its steps explain, and tells who does not answer.
    pub(super) fn hear_the_silent(&mut self) {
        if !matches!(
            self.lifecycle,
            Lifecycle::Running | Lifecycle::Recovering { .. } | Lifecycle::Asynchronous
        ) {
            return;
        }
        self.watch.limits.calm_down(self.now_s);
        let now_s = self.now_s;
        let word_s = (WORD_S.0 + 1.5 * self.usual_step_s()).min(WORD_S.1);
        let limits = &self.watch.limits;
        let limit_s = limits.patience() * (word_s + ANSWER_S) + limits.answer_s();
        let limit_s = limit_s.max(limits.silence_s());
        let timeout_s = self.silence_timeout_s();
        for worker in self.relied_on() {
            let Some(entry) = self.workers.get_mut(&worker) else { continue };
            let silent_s = now_s - entry.heard_s;
            if silent_s > word_s && now_s - entry.asked_s > ASK_S {
                entry.asked_s = now_s;
                self.send(worker, ToWorker::Inquire { explain: false });
            }
            let who = (worker, None);
            let told = self.watch.told.get(&who).is_some_and(|told| told.silent);
            if silent_s > limit_s && !self.watch.told.contains_key(&who) && limit_s < timeout_s {
                let since_s = now_s - silent_s;
                self.watch.told.insert(who, Told { since_s, told_s: now_s, silent: true });
                let doing = "its session says nothing and answers nothing".into();
                let late =
                    Late { worker, peer: None, doing, seconds: silent_s, warn_s: limit_s, lose_s: timeout_s };
                self.journal_late(&late, &format!("it is lost after {timeout_s} s"));
            } else if told && silent_s < limit_s {
                self.is_in_time(who);
            }
        }
        let gone: Vec<(WorkerId, Option<WorkerId>)> = self
            .watch
            .told
            .keys()
            .copied()
            .filter(|(worker, _)| !self.workers.contains_key(worker) && !self.is_server(*worker))
            .collect();
        for who in gone {
            self.watch.told.remove(&who);
        }
    }
}
