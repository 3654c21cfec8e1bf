//! The batch of a run whose job lets it move: what was asked for, and what the updates tell.

use bellwether_core::job::Job;
use bellwether_core::record::{BatchChange, Event as Journaled};

use super::Run;
use crate::membership::StepRecord;
use crate::membership::coordinator::Event;

/// A batch that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPlan {
    /// Steps that an update is to cover.
    pub accumulation: u32,
    /// Samples per second that are expected then.
    pub expected_examples_per_s: f64,
    /// Progress per sample that is expected then, relative to the job's own batch.
    pub expected_efficiency: f64,
    /// Why.
    pub reason: String,
}

/// The account of the batch.
#[derive(Debug)]
pub(super) struct Batches {
    /// Samples of a step.
    size: u64,
    /// Whether the job fixes the batch in advance.
    fixed: bool,
    /// Steps that the updates cover, by the last one that is known.
    accumulation: u64,
    asked: Option<BatchPlan>,
    changes: Vec<BatchChange>,
}

impl Batches {
    /// The account of a job whose last known update covered this many steps (0 for none).
    pub(super) fn new(job: &Job, accumulation: u32) -> Self {
        Batches {
            size: job.batch.size,
            fixed: job.mode.goodput().is_some_and(|goodput| !goodput.schedule.is_empty()),
            accumulation: u64::from(accumulation.max(1)),
            asked: None,
            changes: Vec::new(),
        }
    }

    /// Samples of an update.
    pub(super) fn samples(&self) -> u64 {
        self.size * self.accumulation
    }

    /// Changes since this coordinator began.
    pub(super) fn changes(&self) -> &[BatchChange] {
        &self.changes
    }

    /// Takes an update in; returns the change that it shows, with the plan behind it.
    fn take(&mut self, record: &StepRecord) -> Option<(BatchChange, Option<BatchPlan>)> {
        let steps = record.steps();
        if steps == self.accumulation {
            return None;
        }
        let before = std::mem::replace(&mut self.accumulation, steps);
        let plan = self.asked.take_if(|plan| u64::from(plan.accumulation) == steps);
        let reason = match &plan {
            Some(plan) => plan.reason.clone(),
            None if self.fixed => "the job's schedule".into(),
            None => "what was asked for before the coordinator came back".into(),
        };
        let change = BatchChange {
            step: record.step,
            from: self.size * before,
            to: self.size * steps,
            learning_rate_factor: record.learning_rate_factor.unwrap_or(1.0),
            reason,
        };
        self.changes.push(change.clone());
        Some((change, plan))
    }
}

impl Run {
    /// Passes a plan on, unless the job does not allow any.
    pub(super) fn accumulate(&mut self, plan: BatchPlan) {
        if self.options.job.mode.goodput().is_none() || self.batches.fixed {
            let message = format!("the batch of this job may not move: not to {} steps", plan.accumulation);
            return self.write(&Journaled::Warning { message });
        }
        let accumulation = plan.accumulation;
        self.batches.asked = Some(plan);
        self.handle(Event::Accumulate(accumulation));
    }

    /// Notes the changes of the batch that these updates show.
    pub(super) fn note_batches(&mut self, records: &[StepRecord]) {
        // Rounds of local steps are not larger batches.
        if self.options.job.mode.goodput().is_none() {
            return;
        }
        let end = self.total_steps();
        for record in records {
            // The last update takes the steps that are left.
            let rest = record.step + record.steps() == end && record.steps() < self.batches.accumulation;
            if rest {
                continue;
            }
            let Some((change, plan)) = self.batches.take(record) else { continue };
            let BatchChange { step, from, to, learning_rate_factor, reason } = change;
            self.write(&Journaled::BatchChanged {
                step,
                from,
                to,
                learning_rate_factor,
                noise_scale: record.noise_scale,
                expected_examples_per_s: plan.as_ref().map(|plan| plan.expected_examples_per_s),
                expected_efficiency: plan.as_ref().map(|plan| plan.expected_efficiency),
                reason,
            });
        }
    }
}
