//! Units that workers have done: which count, and what becomes of them.

use super::{Coordinator, Part};
use crate::membership::coordinator::{Lifecycle, Stage};
use crate::membership::{Report, StepRecord, ToWorker, UnitRecord, WorkerId};

/// Least time between two commits within a phase.
const COMMIT_PERIOD_S: f64 = 0.02;

impl Coordinator {
    /// A worker has done units, and asks to hold this many.
    pub(in crate::membership::coordinator) fn units(
        &mut self,
        worker: WorkerId,
        epoch: u64,
        done: Vec<UnitRecord>,
        want: u32,
    ) {
        if self.lifecycle != Lifecycle::Asynchronous || epoch != self.current.epoch {
            return;
        }
        let numbers: Vec<u64> = done.iter().map(|record| record.unit).collect();
        let counted = match self.asynchronous.work_queue.done(worker, &numbers) {
            Ok(counted) => counted,
            Err(wrong) => return self.gone(worker, &wrong.to_string()),
        };
        self.asynchronous.work_queue.want(worker, want);
        let per_step = self.asynchronous.per_step;
        for unit in done.into_iter().filter(|unit| counted.contains(&unit.unit)) {
            let step = unit.unit / per_step;
            self.asynchronous.tally.entry(step).or_default().units.push(UnitRecord { worker, ..unit });
        }
        if self.asynchronous.part == Part::Training {
            // A line of the journal for every step would be more than a person or a disk wants.
            if self.asynchronous.work_queue.is_over()
                || self.now_s - self.asynchronous.boundary_s >= COMMIT_PERIOD_S
            {
                self.commit_units();
            }
            self.evaluate_if_due();
        }
    }

    /// Commits the steps of which all units are done.
    pub(super) fn commit_units(&mut self) {
        let (first, end) = (self.progress.committed(), self.asynchronous.work_queue.steps_complete());
        if end <= first {
            return;
        }
        let duration_s = (self.now_s - self.asynchronous.boundary_s) / (end - first) as f64;
        self.asynchronous.boundary_s = self.now_s;
        let later = self.asynchronous.tally.split_off(&end);
        let tally = std::mem::replace(&mut self.asynchronous.tally, later);
        let steps = tally.into_iter().map(|(step, record)| summed(step, duration_s, record.units)).collect();
        self.barren_crashes = 0;
        self.progress.take(&mut Report { steps, ..Report::default() });
        self.commit_to(end);
    }

    /// Lets one worker evaluate where the job asks for it.
    fn evaluate_if_due(&mut self) {
        let (every, step) = (self.config.evaluate_every, self.progress.committed());
        let over = self.total_steps.is_some_and(|total| step >= total);
        if every == 0 || over || step / every <= self.asynchronous.evaluated / every {
            return;
        }
        self.asynchronous.evaluated = step;
        if let Some(worker) = self.staged(Stage::Active).first().copied() {
            let epoch = self.current.epoch;
            self.send(worker, ToWorker::EvaluateAlone { epoch, step });
        }
    }
}

/// The account of a step from those of its units.
fn summed(step: u64, duration_s: f64, units: Vec<UnitRecord>) -> StepRecord {
    let count = units.len().max(1) as f64;
    let sum = |of: fn(&UnitRecord) -> f64| units.iter().map(of).sum::<f64>();
    let samples: u64 = units.iter().map(|unit| unit.samples).sum();
    StepRecord {
        step,
        loss: Some(sum(|unit| unit.loss_sum) / samples.max(1) as f64),
        duration_s,
        compute_s: sum(|unit| unit.compute_s) / count,
        data_wait_s: sum(|unit| unit.data_wait_s) / count,
        exchange_s: sum(|unit| unit.wait_s) / count,
        unit_count: units.len() as u32,
        units,
        ..StepRecord::default()
    }
}
