//! Two workers computed a virtual node differently: the run stops, or the one that was wrong has to go.

use bellwether_core::record::{Event as Journal, Mismatch as Record, RunFailure};

use super::{Coordinator, Lifecycle};
use crate::membership::{Mismatch, Verdict, WorkerId};

impl Coordinator {
    /// A member says so; all of them do, and may say it again.
    pub(super) fn mismatched(&mut self, mismatch: Mismatch) {
        let Mismatch { epoch, step, node, worker, checker, verdict } = mismatch;
        let before = self.mismatch.filter(|known| (known.epoch, known.step) == (epoch, step));
        if before.is_some_and(|known| known.verdict == verdict || known.verdict != Verdict::Awaited) {
            return;
        }
        self.mismatch = Some(mismatch);
        let mut record = Record { step, node, worker, checker, wrong: None };
        if before.is_none() {
            self.journal(Journal::Mismatched(record));
            self.progress.mismatches.push(record);
        }
        match verdict {
            Verdict::Awaited => {}
            Verdict::Wrong { worker: wrong, judge } => {
                record.wrong = Some(wrong);
                if let Some(last) = self.progress.mismatches.last_mut() {
                    *last = record;
                }
                self.journal(Journal::Quarantined { worker: wrong, step, judge });
                self.quarantine(wrong, step);
            }
            Verdict::Open => {
                self.failure.get_or_insert(RunFailure::Other(record.sentence()));
                // They may have been told to go on meanwhile, and not come to the same again.
                self.stopping = true;
            }
        }
    }

    /// The worker has to go, whatever it holds is not trusted, and another takes its place.
    fn quarantine(&mut self, worker: WorkerId, step: u64) {
        self.quarantined.insert(worker);
        self.expel(worker, &format!("it computed a wrong gradient in step {step}"));
        self.strays.remove(&worker);
        if let Lifecycle::Recovering { ready, .. } = &mut self.lifecycle {
            ready.remove(&worker);
        }
    }
}
