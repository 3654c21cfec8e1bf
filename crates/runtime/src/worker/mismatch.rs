//! What a worker does when two of them computed a virtual node differently.

use std::sync::Arc;

use bellwether_core::job::{Job, OnMismatch};

use super::Worker;
use super::engine::Found;
use crate::membership::{FromWorker, Mismatch, Verdict};
use crate::verification::Check;

/// What a worker must know of mismatches.
#[derive(Debug)]
pub(super) struct Doubt {
    /// Whether a third worker is to tell whose computation was wrong.
    quarantines: bool,
    /// That of the last step, which was not applied.
    last: Option<Mismatch>,
}

impl Doubt {
    pub(super) fn of(job: &Job) -> Self {
        Doubt { quarantines: job.on_mismatch == OnMismatch::Quarantine, last: None }
    }

    /// A step was applied.
    pub(super) fn is_over(&mut self) {
        self.last = None;
    }
}

impl Worker {
    /// Nothing of the step was applied: says so, and hears whose computation was wrong where that is asked for.
    pub(super) fn mismatched(&mut self, found: &Found) {
        self.flush();
        let Check { step, node, worker, checker, judge } = found.check;
        let asks = self.doubt.quarantines && judge.is_some();
        let verdict = if asks { Verdict::Awaited } else { Verdict::Open };
        let epoch = self.member.membership().epoch;
        let mut mismatch = Mismatch { epoch, step, node, worker, checker, verdict };
        self.doubt.last = Some(mismatch);
        self.tell_mismatch();
        if asks {
            let mailbox = Arc::clone(&self.connection.mailbox);
            mismatch.verdict = match self.engine.judge(found, &|| mailbox.urgent()) {
                Ok(verdict) => verdict,
                // The step is done again, and with it the check.
                Err(fault) => return self.fault(fault),
            };
            self.doubt.last = Some(mismatch);
            self.tell_mismatch();
        }
        let effects = self.member.mismatched(&mismatch);
        self.carry_out(effects);
    }

    /// Says it, also to a coordinator that came back and may have missed it.
    pub(super) fn tell_mismatch(&self) {
        if let Some(mismatch) = self.doubt.last {
            self.connection.say(FromWorker::Mismatched(mismatch));
        }
    }
}
