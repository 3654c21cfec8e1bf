//! The gradient of one unit: some virtual nodes of one step, with parameters that come from elsewhere.

use std::ops::Range;

use super::{Engine, Fault, square_sum};
use crate::membership::EvaluationRecord;
use crate::optimizer::{Optimizer, Update};
use crate::order::micro_batch_seed;
use crate::state::all_finite;
use crate::transfer::{read, write};
use crate::workload::{
    Evaluation, MicroBatch, Parameters, TensorExchange, Weights, WorkloadError, tensor_ranges,
};

/// Samples of the held-out set that one call of `evaluate` gets at most.
const EVALUATION_BATCH: u64 = 256;

/// What a unit's gradient is.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::worker) struct UnitGradient {
    /// Samples in it.
    pub(in crate::worker) samples: u64,
    /// Sum of their losses.
    pub(in crate::worker) loss_sum: f64,
}

/// Parts that are given only once all of them are there.
struct Withheld<'a>(&'a mut dyn TensorExchange);

impl TensorExchange for Withheld<'_> {
    fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
        self.0.pull(tensor, out)
    }

    fn push(&mut self, _tensor: usize, _gradient: &[f32]) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// Parameters that are here already, and gradients that stay.
struct Here;

impl TensorExchange for Here {
    fn pull(&mut self, _tensor: usize, _out: &mut [f32]) -> Result<(), WorkloadError> {
        Ok(())
    }

    fn push(&mut self, _tensor: usize, _gradient: &[f32]) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// The loss of samples that all weigh the same. An asynchronous update is divided by what its workers know without
/// each other, which is the number of samples.
fn unweighted(loss_sum: f64, weight: f64, samples: usize) -> Result<f64, Fault> {
    if weight == samples as f64 {
        return Ok(loss_sum);
    }
    let what = "losses have weights of their own, which only synchronous training among the workers can sum; \
                leave the weights out, or use sync.policy = \"bsp\" with reduce = \"all-reduce\"";
    Err(Fault::Workload(WorkloadError::of_user(what), None))
}

impl Engine {
    /// Samples of the virtual nodes `nodes` of `step`.
    pub(in crate::worker) fn unit_samples(&mut self, step: u64, nodes: Range<u32>) -> u64 {
        let mut samples = 0;
        for node in nodes {
            self.order.micro_batch(step, node, &mut self.samples);
            samples += self.samples.len() as u64;
        }
        samples
    }

    /// The gradient sum of a unit, taken from and given to `parts` tensor by tensor; `state` is the model state that it
    /// begins with, and becomes what its samples left: the mean over them, or (`summed`) the sum. Where a unit has
    /// several virtual nodes nothing is given before all is computed.
    pub(in crate::worker) fn unit(
        &mut self,
        step: u64,
        nodes: Range<u32>,
        parts: &mut dyn TensorExchange,
        state: &mut [f32],
        summed: bool,
    ) -> Result<UnitGradient, Fault> {
        let ranges = tensor_ranges(self.workload.layout());
        let whole = nodes.len() == 1;
        self.version += 1;
        if whole {
            let unit = self.node(step, nodes.start, parts, state)?;
            if summed {
                state.iter_mut().for_each(|value| *value *= unit.samples as f32);
            }
            return self.checked(step, unit);
        }
        let failed = |e: WorkloadError| Fault::Workload(e, None);
        {
            let mut held = write(&self.state);
            for (tensor, range) in ranges.iter().enumerate() {
                parts.pull(tensor, &mut held.parameters[range.clone()]).map_err(failed)?;
            }
            held.model_state.copy_from_slice(state);
        }
        self.accumulator.assign(self.order.virtual_nodes, nodes.clone());
        self.accumulator.reset();
        let mut unit = UnitGradient::default();
        for node in nodes {
            let [loss_sum, _, weight] = self.micro_batch(step, node, true)?;
            self.progress.moved();
            unit.loss_sum += unweighted(loss_sum, weight, self.samples.len())?;
            unit.samples += self.samples.len() as u64;
            self.accumulator.push();
        }
        let length = self.out.len();
        let partials = self.accumulator.partials();
        let (first, others) = partials.split_first().expect("a unit has virtual nodes");
        self.out[..length].copy_from_slice(first);
        for other in others {
            self.out.iter_mut().zip(*other).for_each(|(sum, value)| *sum += value);
        }
        let unit = self.checked(step, unit)?;
        let (gradient, left) = self.out.split_at(length - state.len());
        let share = if summed { 1.0 } else { 1.0 / unit.samples.max(1) as f32 };
        state.iter_mut().zip(left).for_each(|(value, sum)| *value = sum * share);
        for (tensor, range) in ranges.iter().enumerate().rev() {
            parts.push(tensor, &gradient[range.clone()]).map_err(failed)?;
        }
        Ok(unit)
    }

    /// The gradient of one virtual node, given while it is computed.
    fn node(
        &mut self,
        step: u64,
        node: u32,
        parts: &mut dyn TensorExchange,
        state: &mut [f32],
    ) -> Result<UnitGradient, Fault> {
        self.order.micro_batch(step, node, &mut self.samples);
        let mut held = write(&self.state);
        let (gradient, left) = self.out.split_at_mut(held.parameters.len());
        if self.samples.is_empty() {
            // The last steps of an epoch may leave virtual nodes without samples; the others count on their zeros.
            gradient.fill(0.0);
            state.fill(0.0);
            for (tensor, range) in tensor_ranges(self.workload.layout()).iter().enumerate() {
                let failed = |e: WorkloadError| Fault::Workload(e, None);
                parts.pull(tensor, &mut held.parameters[range.clone()]).map_err(failed)?;
                parts.push(tensor, &gradient[range.clone()]).map_err(failed)?;
            }
            return Ok(UnitGradient::default());
        }
        let batch = MicroBatch { samples: &self.samples };
        let seed = micro_batch_seed(self.seed, step, node);
        let (parameters, version) = (Parameters::Coming(&mut held.parameters), self.version);
        let loss =
            self.workload.gradient_by_parts(parts, parameters, state, version, batch, seed, gradient, left);
        let loss = loss.map_err(|error| Fault::Workload(error, Some((step, node))))?;
        let loss_sum = unweighted(loss.sum, loss.weight, self.samples.len())?;
        state.copy_from_slice(left);
        Ok(UnitGradient { samples: self.samples.len() as u64, loss_sum })
    }

    /// As [`unit`](Engine::unit), with the gradient clipped: nothing is given before all is computed.
    pub(in crate::worker) fn unit_clipped(
        &mut self,
        step: u64,
        nodes: Range<u32>,
        parts: &mut dyn TensorExchange,
        state: &mut [f32],
    ) -> Result<UnitGradient, Fault> {
        let unit = self.unit(step, nodes, &mut Withheld(parts), state, false)?;
        let parameters = self.out.len() - state.len();
        let gradient = &mut self.out[..parameters];
        let samples = unit.samples.max(1);
        let factor = self.optimizer.scale(samples as f64, square_sum(gradient)) * samples as f32;
        if factor < 1.0 {
            gradient.iter_mut().for_each(|value| *value *= factor);
        }
        for (tensor, range) in tensor_ranges(self.workload.layout()).iter().enumerate().rev() {
            parts.push(tensor, &self.out[range.clone()]).map_err(|error| Fault::Workload(error, None))?;
        }
        Ok(unit)
    }

    /// The seed of the job.
    pub(in crate::worker) fn seed(&self) -> u64 {
        self.seed
    }

    /// The gradient sum of a unit at the parameters that this worker holds, in place of the last result.
    pub(in crate::worker) fn unit_held(
        &mut self,
        step: u64,
        nodes: Range<u32>,
    ) -> Result<UnitGradient, Fault> {
        let mut state = read(&self.state).model_state.clone();
        let unit = self.unit(step, nodes, &mut Here, &mut state, false)?;
        write(&self.state).model_state.copy_from_slice(&state);
        Ok(unit)
    }

    /// Factor on the gradient sum of the last unit: clipping over samples.
    pub(in crate::worker) fn unit_scale(&self, samples: u64) -> f32 {
        let parameters = read(&self.state).parameters.len();
        let squares = if self.optimizer.clips() { square_sum(&self.out[..parameters]) } else { 0.0 };
        self.optimizer.scale(samples as f64, squares)
    }

    /// Applies the last unit's gradient to a range of the parameters, whose slots this worker holds.
    pub(in crate::worker) fn update_held(
        &self,
        rule: &Optimizer,
        update: Update,
        range: Range<usize>,
        values: &mut [f32],
    ) {
        let mut state = write(&self.state);
        let mut slots: Vec<&mut [f32]> =
            state.slots.iter_mut().map(|slot| &mut slot[range.clone()]).collect();
        rule.update(update, values, &mut slots, &self.out[range.clone()]);
    }

    fn checked(&self, step: u64, unit: UnitGradient) -> Result<UnitGradient, Fault> {
        if !unit.loss_sum.is_finite() {
            let loss = unit.loss_sum / unit.samples.max(1) as f64;
            return Err(Fault::NotFinite(format!("the loss is {loss}")));
        }
        let parameters = read(&self.state).parameters.len();
        if !all_finite(&self.out[..parameters]) {
            return Err(Fault::NotFinite(format!("the gradient of step {step} is not finite")));
        }
        Ok(unit)
    }

    /// Evaluates the whole held-out set with what this worker holds.
    pub(in crate::worker) fn evaluate_held(&mut self, step: u64) -> Result<EvaluationRecord, Fault> {
        let state = read(&self.state).model_state.clone();
        self.evaluate_alone(step, &mut Here, &state)
    }

    /// Evaluates the whole held-out set with the parameters from `parts` and this model state.
    pub(in crate::worker) fn evaluate_alone(
        &mut self,
        step: u64,
        parts: &mut dyn TensorExchange,
        state: &[f32],
    ) -> Result<EvaluationRecord, Fault> {
        let failed = |e: WorkloadError| Fault::Workload(e, None);
        let mut held = write(&self.state);
        for (tensor, range) in tensor_ranges(self.workload.layout()).iter().enumerate() {
            parts.pull(tensor, &mut held.parameters[range.clone()]).map_err(failed)?;
        }
        self.version += 1;
        let held_out = self.workload.held_out_samples();
        let mut total = Evaluation::default();
        for start in (0..held_out).step_by(EVALUATION_BATCH as usize) {
            self.samples.clear();
            self.samples.extend(start..(start + EVALUATION_BATCH).min(held_out));
            let weights = Weights { parameters: &held.parameters, state, version: self.version };
            let part =
                self.workload.evaluate(weights, MicroBatch { samples: &self.samples }).map_err(failed)?;
            total.loss_sum += part.loss_sum;
            total.correct += part.correct;
            total.predictions += part.predictions;
            self.progress.moved();
        }
        Ok(EvaluationRecord {
            step,
            loss: if held_out > 0 { total.loss_sum / held_out as f64 } else { f64::NAN },
            correct: total.correct,
            predictions: total.predictions,
            samples: held_out,
        })
    }
}
