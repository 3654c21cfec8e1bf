//! Collects what a worker tells the coordinator about its progress, and sends it not too often.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bellwether_core::record::Traffic;

use super::engine::Applied;
use super::session::Connection;
use crate::membership::{
    EvaluationRecord, FromWorker, Membership, Report, StepRecord, SwitchRecord, reporting,
};

/// Steps kept for a coordinator that comes back and may have missed them.
const KEPT_STEPS: usize = 1024;

/// Reports between two looks at the memory, in which the system walks all of its pages: some 5 ms for each GiB.
const MEMORY_PERIOD: u32 = 64;

/// What a worker tells of an update, its times left out.
pub(super) fn record(steps: &Range<u64>, applied: &Applied, times: StepRecord) -> StepRecord {
    StepRecord {
        step: steps.start,
        loss: Some(applied.loss),
        accumulation: u32::try_from(steps.end - steps.start).unwrap_or(u32::MAX),
        noise_scale: applied.noise_scale,
        learning_rate_factor: applied.rate_factor,
        ..times
    }
}

#[derive(Debug)]
pub(super) struct Reporter {
    pending: Report,
    /// Without details: all of them travel in one message, which has a limit.
    recent: VecDeque<StepRecord>,
    last_evaluation: Option<EvaluationRecord>,
    sent: Option<Instant>,
    urgent: bool,
    reports: u32,
}

impl Reporter {
    pub(super) fn new() -> Self {
        Reporter {
            pending: Report::default(),
            recent: VecDeque::new(),
            last_evaluation: None,
            sent: None,
            urgent: true,
            reports: 0,
        }
    }

    pub(super) fn step(&mut self, record: StepRecord) {
        let record = StepRecord { traffic: Traffic::reported(record.traffic), ..record };
        if self.recent.len() == KEPT_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back(record.without_details());
        self.pending.steps.push(record);
    }

    pub(super) fn evaluated(&mut self, record: EvaluationRecord) {
        self.last_evaluation = Some(record);
        self.pending.evaluations.push(record);
        self.urgent = true;
    }

    pub(super) fn switched(&mut self, record: SwitchRecord) {
        self.pending.switches.push(record);
        self.urgent = true;
    }

    /// The next step is reported at once: someone waits to hear that things go on.
    pub(super) fn urgent(&mut self) {
        self.urgent = true;
    }

    /// Whether someone waits for the next report.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Whether steps were done that no report told of.
    pub(super) fn has_steps(&self) -> bool {
        !self.pending.steps.is_empty()
    }

    /// The state was replaced by another: what was done to the old one is of no interest any more.
    pub(super) fn forget(&mut self) {
        self.recent.clear();
        self.pending.steps.clear();
    }

    /// A new coordinator may have missed the last reports of the old session.
    pub(super) fn resend(&mut self) {
        self.pending.steps = self.recent.iter().cloned().collect();
        self.pending.evaluations = self.last_evaluation.into_iter().collect();
        self.urgent = true;
    }

    pub(super) fn flush_if_due(&mut self, connection: &Connection, membership: &Membership, step: u64) {
        let period = reporting::period(membership.active.len());
        if self.urgent || self.sent.is_none_or(|at| at.elapsed() >= period) {
            self.flush(connection, membership.epoch, step);
        }
    }

    pub(super) fn flush(&mut self, connection: &Connection, epoch: u64, step: u64) {
        let mut report = std::mem::take(&mut self.pending);
        (report.epoch, report.step) = (epoch, step);
        // Most of the memory is taken in the first steps, and a short run has no later ones.
        if self.reports < 4 || self.reports.is_power_of_two() || self.reports.is_multiple_of(MEMORY_PERIOD) {
            report.resident_bytes = peak_resident_bytes();
        }
        self.reports += 1;
        (self.sent, self.urgent) = (Some(Instant::now()), false);
        connection.say(FromWorker::Report(report));
    }
}

/// The largest resident memory this process had; 0 where the system does not tell. What it reads in the memory of peers
/// is theirs, too: of that it has its part.
fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = kib(&status, "VmHWM:");
    let shared = kib(&status, "RssShmem:");
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let of_others =
        if rollup.contains("Pss_Shmem:") { shared.saturating_sub(kib(&rollup, "Pss_Shmem:")) } else { 0 };
    peak.saturating_sub(of_others) * 1024
}

/// The number behind a name in a file of the kernel; 0 if it is not there.
fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::control::convert;

    #[test]
    fn what_is_sent_again_fits_a_message() {
        let mut reporter = Reporter::new();
        for step in 0..2 * KEPT_STEPS as u64 {
            let (nodes_s, traffic) = (vec![0.5; 4096], vec![Traffic::default(); 64]);
            reporter.step(StepRecord { step, nodes_s, traffic, ..StepRecord::default() });
        }
        reporter.resend();
        let steps: Vec<u64> = reporter.pending.steps.iter().map(|record| record.step).collect();
        assert_eq!(steps, (KEPT_STEPS as u64..2 * KEPT_STEPS as u64).collect::<Vec<_>>());
        let message = convert::write_from_worker(&FromWorker::Report(reporter.pending.clone()));
        // The control plane takes 4 MiB in one message.
        assert!(message.encoded_len() < 1 << 20, "{}", message.encoded_len());
    }
}
