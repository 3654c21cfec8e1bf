//! Local steps: each virtual node trains by itself from the parameters that all share, for the steps of a round. What
//! it has moved takes the place of its gradient, and an outer step the place of the update.
//!
//! # Semantics
//!
//! A virtual node begins a round without moments: its optimizer's slots are zero. So nothing but parameters passes from
//! round to round, a virtual node may be on another worker in each, and none of its history is lost with a worker. The
//! trained bits are those of any number of workers, as everywhere else. A virtual node's step takes the mean gradient
//! of its own micro-batch, clipped by itself, at the learning rate of the job.
//!
//! What is summed is `n (p - q)` of each virtual node, where `p` are the parameters at the beginning, `q` those that
//! it has come to, and `n` its samples. The outer step takes the sum over all samples as a gradient.
//!
//! # Source
//!
//! Douillard et al., DiLoCo, 2023 (local steps of AdamW, an outer step of Nesterov's form), where each replica keeps
//! its moments; that they may begin again at zero: Sani et al., Photon, 2024. One local step of plain SGD with an
//! outer rate of 1 and without outer momentum is synchronous SGD, but for the rounding.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bellwether_core::job::Job;

use super::gradients::{Computing, compute};
use super::{Engine, Fault, square_sum};
use crate::membership::Activity;
use crate::optimizer::{Optimizer, Update};
use crate::order::micro_batch_seed;
use crate::rounds::Rounds;
use crate::state::TrainingState;
use crate::transfer::read;
use crate::workload::Layout;

/// What local steps need, in a job that has some.
#[derive(Debug)]
pub(super) struct Local {
    rounds: Rounds,
    /// What a virtual node trains.
    own: TrainingState,
}

impl Local {
    /// That of a job; none where all wait for all in every step.
    pub(super) fn of(job: &Job, total_steps: u64, layout: &Layout, rule: &Optimizer) -> Option<Local> {
        let rounds = Rounds::of(job, total_steps)?;
        Some(Local { rounds, own: TrainingState::zeros(layout, rule.local_slots()) })
    }

    /// Writes to all of its memory, which is slow at its first use.
    pub(super) fn touch(&mut self) {
        let TrainingState { parameters, slots, .. } = &mut self.own;
        slots.iter_mut().chain([parameters]).for_each(|values| values.fill(0.0));
    }
}

impl Engine {
    /// Whether virtual nodes train by themselves in this step.
    pub(super) fn is_local(&self, step: u64) -> bool {
        self.local.as_ref().is_some_and(|local| local.rounds.are_local(step))
    }

    /// Adds what this worker's virtual nodes move in a round to the sums in the accumulator.
    pub(super) fn local_round(
        &mut self,
        steps: &Range<u64>,
        computing: &mut Computing,
        urgent: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let mut local = self.local.take().expect("the job has local steps");
        let result = self.accumulator.range().try_for_each(|node| {
            let began = Instant::now();
            computing.leaves.push(self.local_node(steps, node, &mut local.own, urgent)?);
            self.accumulator.push();
            computing.note_time(began, self.workload.take_data_wait_s());
            Ok(())
        });
        self.local = Some(local);
        // What was computed last was not with the parameters that all share.
        self.version += 1;
        result
    }

    /// Trains one virtual node in `own`, and writes what it has moved into the accumulator's next leaf; returns its
    /// loss, 0, and the loss's weight.
    fn local_node(
        &mut self,
        steps: &Range<u64>,
        node: u32,
        own: &mut TrainingState,
        urgent: &dyn Fn() -> bool,
    ) -> Result<[f64; 3], Fault> {
        let shared = Arc::clone(&self.state);
        let shared = read(&shared);
        own.parameters.copy_from_slice(&shared.parameters);
        own.model_state.copy_from_slice(&shared.model_state);
        own.slots.iter_mut().for_each(|slot| slot.fill(0.0));
        self.part.resize(self.length, 0.0);
        let (mut sums, mut samples, mut first) = ([0.0; 3], 0, None);
        for step in steps.clone() {
            if urgent() {
                return Err(Fault::interrupted());
            }
            self.part(Activity::Computing, step);
            self.order.micro_batch(step, node, &mut self.samples);
            if self.samples.is_empty() {
                continue;
            }
            self.version += 1;
            let seed = micro_batch_seed(self.seed, step, node);
            let loss =
                compute(self.workload.as_mut(), own, self.version, &self.samples, seed, &mut self.part)
                    .map_err(|error| Fault::Workload(error, Some((step, node))))?;
            let (gradient, left) = self.part.split_at(own.parameters.len());
            let squares = if self.optimizer.clips() { square_sum(gradient) } else { 0.0 };
            let scale = self.optimizer.scale(loss.weight, squares);
            let update = Update::local(step, *first.get_or_insert(step), scale);
            let mut slots: Vec<&mut [f32]> = own.slots.iter_mut().map(Vec::as_mut_slice).collect();
            self.optimizer.update(update, &mut own.parameters, &mut slots, gradient);
            let count = self.samples.len() as f32;
            own.model_state.iter_mut().zip(left).for_each(|(value, sum)| *value = sum / count);
            samples += self.samples.len() as u64;
            sums[0] += loss.sum;
            sums[2] += loss.weight;
        }
        let count = samples as f32;
        let (moved, left) = self.accumulator.leaf().split_at_mut(own.parameters.len());
        for ((moved, before), after) in moved.iter_mut().zip(&shared.parameters).zip(&own.parameters) {
            *moved = count * (before - after);
        }
        left.iter_mut().zip(&own.model_state).for_each(|(sum, value)| *sum = count * value);
        Ok(sums)
    }
}
