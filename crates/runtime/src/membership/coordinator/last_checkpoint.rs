//! The last checkpoint: each holder of the result keeps it until it is written, and is asked for it again.

use bellwether_core::record::{Event as Journal, RunFailure, RunOutcome};

use super::{Coordinator, End};
use crate::membership::ToWorker;

/// The phase of a run that is over but for a checkpoint that could not be written.
pub const WAITS_FOR_CHECKPOINT: &str = "waiting to write the last checkpoint";

/// Seconds between the first failure and the next try; each further one doubles them.
const RETRY_S: f64 = 0.25;

/// Most seconds between two tries.
const RETRY_MAX_S: f64 = 10.0;

/// Older checkpoints that are remembered; most of them are pruned by then.
const OLDER_MAX: usize = 16;

/// What is known of a checkpoint that all members wait for.
#[derive(Debug, Clone, Default)]
pub(super) struct LastCheckpoint {
    /// Its step, and since when they wait.
    waits: Option<(u64, f64)>,
    /// When the next holder is asked, unless it has come by then.
    again_s: f64,
    /// How many were asked.
    asked: usize,
    /// The last failure, with its step, and how many there were in a row.
    failed: Option<(u64, String)>,
    failures: u32,
    /// How many times an end was asked for meanwhile.
    stops: u32,
    /// Whether the journal says that they wait.
    told: bool,
    /// Checkpoints before the newest that may do where that is damaged, the newest first.
    pub(super) older: Vec<u64>,
}

impl LastCheckpoint {
    /// Whether the run is over but for a checkpoint that could not be written.
    pub(super) fn is_overdue(&self) -> bool {
        self.waits.is_some_and(|(step, _)| self.has_failed(step))
    }

    /// Everything that is not committed is done again: workers that waited no longer do.
    pub(super) fn restart(&mut self) {
        self.waits = None;
    }

    pub(super) fn stop_asked(&mut self) {
        self.stops += u32::from(self.waits.is_some());
    }

    fn has_failed(&self, step: u64) -> bool {
        self.failed.as_ref().is_some_and(|(failed, _)| *failed == step)
    }
}

/// Seconds to the next try after this many failures in a row.
pub(super) fn retry_s(failures: u32) -> f64 {
    (RETRY_S * f64::from(2u32.saturating_pow(failures.saturating_sub(1)))).min(RETRY_MAX_S)
}

impl Coordinator {
    /// The state after `step` is here, and about to be written.
    pub(super) fn state_received(&mut self, step: u64) {
        self.received.insert(step);
        self.writing.insert(step);
    }

    /// The state after `step` is on disk, or it is known why not.
    pub(super) fn checkpoint_came(&mut self, step: u64, result: Result<(), String>) {
        self.writing.remove(&step);
        match result {
            Ok(()) => self.checkpoint_written(step),
            Err(why) => self.checkpoint_failed(step, why),
        }
    }

    /// The state after `step` is on disk.
    fn checkpoint_written(&mut self, step: u64) {
        self.settled.insert(step);
        if let Some(before) = self.checkpoint.filter(|before| *before < step && self.config.slices) {
            self.last_checkpoint.older.insert(0, before);
            self.last_checkpoint.older.truncate(OLDER_MAX);
        }
        self.checkpoint = self.checkpoint.max(Some(step));
        self.periodic.written(self.now_s);
    }

    /// Whether the state after `step` is being written, or was sent by its number.
    pub(super) fn is_kept_anyway(&self, step: u64) -> bool {
        let every = self.config.checkpoint_every;
        let by_number = every > 0 && step.is_multiple_of(every) && step > self.checkpoint.unwrap_or(0);
        self.writing.contains(&step) || by_number
    }

    /// The state after `step` did not come, or could not be written.
    pub(super) fn checkpoint_failed(&mut self, step: u64, why: String) {
        self.verdicts.checkpoint_failed(step, self.now_s);
        let last = &mut self.last_checkpoint;
        last.failures = if last.has_failed(step) { last.failures.saturating_add(1) } else { 1 };
        last.failed = Some((step, why));
        if last.waits.is_some_and(|(waits, _)| waits == step) {
            last.again_s = self.now_s + retry_s(last.failures);
        }
    }

    /// All members are done and hold the state after `step`: it is asked for until it is written, or for as long as the
    /// run's owner wants to wait.
    pub(super) fn await_last_checkpoint(&mut self, step: u64, digest: [u8; 32]) {
        let (limit_s, wait_s) = (self.transfer_limit_s(), self.config.last_checkpoint_wait_s);
        let last = &mut self.last_checkpoint;
        let (_, since_s) = *last.waits.get_or_insert_with(|| {
            // The first member of the membership sends it unasked.
            (last.asked, last.again_s) = (1, self.now_s + limit_s);
            if last.failed.as_ref().is_some_and(|(failed, _)| *failed == step) {
                last.again_s = self.now_s + RETRY_S;
            }
            (step, self.now_s)
        });
        let overdue = last.has_failed(step);
        // A user who stops a run whose last checkpoint is on its way may have meant the run.
        let abandoned = last.stops > u32::from(!overdue);
        if abandoned || self.now_s - since_s > wait_s {
            let why = match last.failed.take() {
                Some((failed, why)) if failed == step => why,
                _ => "it did not come".into(),
            };
            let failure = RunFailure::Unsaved { step, waited_s: (!abandoned).then_some(wait_s), why };
            // What is lost of a run that has failed is a state that led nowhere.
            let failure = self.failure.take().filter(|_| self.diverged).unwrap_or(failure);
            return self.end(End { how: RunOutcome::Failed(failure), digest: Some(digest) });
        }
        if self.now_s < last.again_s {
            return;
        }
        last.again_s = self.now_s + limit_s;
        let active = self.current.active.iter().map(|member| member.worker);
        let holders: Vec<_> = match self.config.slices || self.config.sharded {
            true => active.collect(),
            false => active.skip(last.asked % self.current.active.len()).take(1).collect(),
        };
        last.asked += 1;
        let told = std::mem::replace(&mut last.told, true);
        if !told {
            let message = format!(
                "the checkpoint of the last step, {step}, is not written yet; the workers hold the state, and it is tried again \
                 for {wait_s:.0} s (stop the run once more to end it without)"
            );
            self.journal(Journal::Warning { message });
        }
        let epoch = self.current.epoch;
        for holder in holders {
            self.send(holder, ToWorker::SendCheckpoint { epoch, step });
        }
    }
}
