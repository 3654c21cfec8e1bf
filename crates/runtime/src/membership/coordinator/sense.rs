//! What a worker may say: a holder of the token may say anything, and none of it may break the coordinator.

use super::Coordinator;
use crate::membership::{
    FromWorker, Mismatch, Position, Report, ServerReport, StepRecord, UnitRecord, Verdict, WorkerId,
};

/// Numbers of workers, epochs and steps are below this: they can be counted up for ever without an overflow, and every
/// double holds them.
const NUMBERS_MAX: u64 = 1 << 53;

/// Units that a worker may want to hold at once.
const WANT_MAX: u32 = 1 << 16;

/// Others for whom a worker may wait.
const WAITS_MAX: usize = 1 << 16;

impl Coordinator {
    /// Whether this number is one that a worker may have.
    pub fn is_number(worker: WorkerId) -> bool {
        worker < NUMBERS_MAX
    }

    /// A held state of which one can speak.
    pub(super) fn sensible(&self, held: Option<(u64, u64)>) -> Option<(u64, u64)> {
        held.filter(|(epoch, step)| *epoch < NUMBERS_MAX && *step <= self.steps_max())
    }

    fn steps_max(&self) -> u64 {
        self.total_steps.unwrap_or(NUMBERS_MAX)
    }

    /// What makes no sense in a message, if anything.
    pub(super) fn nonsense(&self, message: &FromWorker) -> Option<&'static str> {
        let is_step = |step: u64| step <= self.steps_max();
        // No worker can speak of a membership that was never planned.
        let is_epoch = |epoch: u64| epoch <= self.last_epoch;
        let (epoch, step) = match message {
            FromWorker::Ready { epoch, step, last, trained } => {
                if *last > *step || trained.0 > *epoch || trained.1 > self.config.max_accumulation.max(1) {
                    return Some("it holds a result that is older than itself");
                }
                (*epoch, *step)
            }
            FromWorker::Lost { epoch, step, .. }
            | FromWorker::CaughtUp { epoch, step }
            | FromWorker::Left { epoch, step } => (*epoch, *step),
            FromWorker::Report(report) if !self.is_account(report) => {
                return Some("its account has no sensible numbers");
            }
            FromWorker::Report(report) => (report.epoch, report.step),
            FromWorker::Units { epoch, done, want } => {
                let units_max = self.steps_max().saturating_mul(self.config.units_per_step.max(1));
                if *want > WANT_MAX || !done.iter().all(|unit| unit.unit < units_max && is_unit(unit)) {
                    return Some("its units have no sensible numbers");
                }
                (*epoch, 0)
            }
            FromWorker::ServerLost { epoch, .. }
            | FromWorker::Lacking { epoch, .. }
            | FromWorker::Serving { epoch }
            | FromWorker::ShadowLost { epoch, .. } => (*epoch, 0),
            FromWorker::ServerReport(report) if !is_server_account(report) => {
                return Some("its account has no sensible numbers");
            }
            FromWorker::ServerReport(report) => (report.epoch, report.handed_over.unwrap_or(0)),
            FromWorker::Mismatched(mismatch) if !self.is_mismatch(mismatch) => {
                return Some("a check that was not asked for");
            }
            FromWorker::Mismatched(mismatch) => (mismatch.epoch, mismatch.step),
            FromWorker::Finished { step, .. }
            | FromWorker::NotFinite { step, .. }
            | FromWorker::UserFailed { step, .. }
            | FromWorker::CheckpointFailed { step, .. }
            | FromWorker::CheckpointDamaged { step, .. } => (0, *step),
            FromWorker::SlicesWritten(written) if !is_time(written.stall_s) => {
                return Some("its checkpoint has no sensible numbers");
            }
            FromWorker::SlicesWritten(written) => (written.epoch, written.step),
            FromWorker::Booted(boot) if !boot.stages().into_iter().all(|(_, seconds)| is_time(seconds)) => {
                return Some("its start has no sensible numbers");
            }
            FromWorker::At(position) if !is_position(position) => {
                return Some("where it stands has no sensible numbers");
            }
            FromWorker::Heartbeat
            | FromWorker::At(_)
            | FromWorker::Warmed(_)
            | FromWorker::Booted(_)
            | FromWorker::LinkMeasured { .. }
            | FromWorker::Leave { .. }
            | FromWorker::Failed { .. } => return None,
        };
        if !is_epoch(epoch) {
            return Some("a membership that was never planned");
        }
        (!is_step(step)).then_some("a step beyond the last")
    }

    /// A worker's verdict about one of two others.
    fn is_mismatch(&self, mismatch: &Mismatch) -> bool {
        let Mismatch { node, worker, checker, verdict, .. } = mismatch;
        let two = [worker, checker];
        let fair = match verdict {
            Verdict::Wrong { worker, judge } => two.contains(&worker) && !two.contains(&judge),
            Verdict::Awaited | Verdict::Open => true,
        };
        fair && *node < self.config.virtual_nodes && two.iter().all(|worker| Self::is_number(**worker))
    }

    fn is_account(&self, report: &Report) -> bool {
        let steps_max = self.steps_max();
        let most = u64::from(self.config.max_accumulation.max(1));
        let in_time = |record: &StepRecord| {
            record.step < steps_max && record.steps() <= most && {
                let StepRecord { duration_s, compute_s, data_wait_s, exchange_s, hidden_s, update_s, .. } =
                    record;
                let times = [duration_s, compute_s, data_wait_s, exchange_s, hidden_s, update_s];
                times.into_iter().all(|seconds| is_time(*seconds))
            }
        };
        report.steps.iter().all(in_time)
            && report.evaluations.iter().all(|evaluation| evaluation.step <= steps_max)
            && report.switches.iter().all(|switch| {
                switch.epoch <= self.last_epoch && switch.step <= steps_max && is_time(switch.stall_s)
            })
    }
}

/// Seconds that one can add up.
fn is_time(seconds: f64) -> bool {
    (0.0..1e12).contains(&seconds)
}

fn is_unit(unit: &UnitRecord) -> bool {
    let times = [unit.duration_s, unit.compute_s, unit.data_wait_s, unit.wait_s];
    times.into_iter().all(is_time) && unit.samples < NUMBERS_MAX
}

fn is_position(position: &Position) -> bool {
    let Position { since_s, starved_s, usual_s, allowance_s, .. } = position;
    [*since_s, *starved_s, usual_s.unwrap_or(0.0), allowance_s.unwrap_or(0.0)].into_iter().all(is_time)
        && position.waits_for.len() <= WAITS_MAX
}

fn is_server_account(report: &ServerReport) -> bool {
    is_time(report.apply_s) && report.handed_over.is_none_or(|step| step < NUMBERS_MAX)
}
