//! Gradients of a worker's virtual nodes for one update, which covers one step or several.

use std::ops::Range;
use std::time::Instant;

use super::{Engine, Fault, header, square_sum};
use crate::membership::Activity;
use crate::noise::measures;
use crate::order::micro_batch_seed;
use crate::state::TrainingState;
use crate::transfer::read;
use crate::tree::{add_assign, maximal_nodes};
use crate::workload::{Leaf, LeafResult, Loss, MicroBatch, Weights, Workload, WorkloadError};

impl Engine {
    /// Fills the accumulator with the sums over `steps`; returns, for each maximal node of this worker's range, the sum
    /// of the losses, in steps that are measured of the square norms of its micro-batches' gradients, and of the
    /// weights.
    pub(super) fn gradients(
        &mut self,
        steps: Range<u64>,
        nodes_s: &mut Vec<f64>,
        data_wait_s: &mut f64,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Vec<[f64; 3]>, Fault> {
        let range = self.accumulator.range();
        self.accumulator.reset();
        if self.keeps_sums(&steps) {
            let leaves = self.sums_of_subtrees(steps.start, nodes_s, data_wait_s, urgent)?;
            return Ok(header::triples_per_node(self.order.virtual_nodes, range, &leaves));
        }
        let mut leaves = Vec::with_capacity(range.len());
        for node in range.clone() {
            let began = Instant::now();
            let mut sums = [0.0; 3];
            for step in steps.clone() {
                if urgent() {
                    return Err(Fault::interrupted());
                }
                self.part(Activity::Computing, step);
                let more = self.micro_batch(step, node, step == steps.start)?;
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            leaves.push(sums);
            self.accumulator.push();
            note_time(began, self.workload.take_data_wait_s(), nodes_s, data_wait_s);
        }
        Ok(header::triples_per_node(self.order.virtual_nodes, range, &leaves))
    }

    /// Whether the workload adds up the gradients of these steps itself. It does not where a single gradient is looked
    /// at, or a virtual node has none.
    fn keeps_sums(&self, steps: &Range<u64>) -> bool {
        let step = steps.start;
        self.workload.keeps_sums()
            && steps.end == step + 1
            && !(self.optimizer.moves() && measures(step))
            && !self.verification.watches()
            && self.order.samples_in(step) >= u64::from(self.order.virtual_nodes)
    }

    /// As [`gradients`](Engine::gradients) for one step, with sums that the workload keeps: each maximal node of this
    /// worker's range comes as one vector. Returns what is known of each leaf.
    fn sums_of_subtrees(
        &mut self,
        step: u64,
        nodes_s: &mut Vec<f64>,
        data_wait_s: &mut f64,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Vec<[f64; 3]>, Fault> {
        let mut results = Vec::new();
        for subtree in maximal_nodes(self.order.virtual_nodes, self.accumulator.range()) {
            if urgent() {
                return Err(Fault::interrupted());
            }
            let leaves: Vec<Leaf> = subtree.clone().map(|node| self.leaf(step, node)).collect();
            let state = read(&self.state);
            let weights =
                Weights { parameters: &state.parameters, state: &state.model_state, version: self.version };
            let sum_out = self.accumulator.leaf().split_at_mut(state.parameters.len());
            let at = || self.progress.at(Activity::Computing, self.membership.epoch, step);
            at();
            let (mut began, mut next, mut is_urgent) = (Instant::now(), subtree.start, false);
            let mut computed = |result: LeafResult| {
                note_time(began, result.data_wait_s, nodes_s, data_wait_s);
                began = Instant::now();
                results.push([result.loss.sum, 0.0, result.loss.weight]);
                next += 1;
                is_urgent = next < subtree.end && urgent();
                at();
                !is_urgent
            };
            self.workload
                .sum_of_gradients(weights, &leaves, sum_out, &mut computed)
                .map_err(|error| Fault::Workload(error, Some((step, next))))?;
            if is_urgent {
                return Err(Fault::interrupted());
            }
            self.accumulator.push_node(subtree.end - subtree.start);
        }
        Ok(results)
    }

    /// A virtual node's micro-batch, and its place in the sum.
    fn leaf(&self, step: u64, node: u32) -> Leaf {
        let mut samples = Vec::new();
        self.order.micro_batch(step, node, &mut samples);
        Leaf { samples, seed: micro_batch_seed(self.seed, step, node), merges: self.accumulator.merges(node) }
    }

    /// Adds one micro-batch to the leaf of its node, or begins the leaf with it (`first`); returns its loss, the
    /// square norm of its gradient, 0 where it is not measured, and the loss's weight.
    pub(super) fn micro_batch(&mut self, step: u64, node: u32, first: bool) -> Result<[f64; 3], Fault> {
        self.order.micro_batch(step, node, &mut self.samples);
        let leaf = self.accumulator.leaf();
        if self.samples.is_empty() {
            if first {
                leaf.fill(0.0);
            }
            return Ok([0.0; 3]);
        }
        if !first {
            self.part.resize(leaf.len(), 0.0);
        }
        let state = read(&self.state);
        let out = if first { &mut *leaf } else { self.part.as_mut_slice() };
        let seed = micro_batch_seed(self.seed, step, node);
        let loss = compute(self.workload.as_mut(), &state, self.version, &self.samples, seed, out)
            .map_err(|error| Fault::Workload(error, Some((step, node))))?;
        self.verification.computed(step, node, out, loss.sum);
        let gradient = &out[..state.parameters.len()];
        let squares = if self.optimizer.moves() && measures(step) { square_sum(gradient) } else { 0.0 };
        if !first {
            add_assign(leaf, &self.part);
        }
        Ok([loss.sum, squares, loss.weight])
    }
}

/// Notes how long a virtual node took, without what went by for want of its samples.
fn note_time(began: Instant, waited_s: f64, nodes_s: &mut Vec<f64>, data_wait_s: &mut f64) {
    *data_wait_s += waited_s;
    nodes_s.push((began.elapsed().as_secs_f64() - waited_s).max(0.0));
}

/// Writes the gradient of these samples and the sum of the model states that they leave; returns their
/// loss.
pub(super) fn compute(
    workload: &mut dyn Workload,
    state: &TrainingState,
    version: u64,
    samples: &[u64],
    seed: u64,
    out: &mut [f32],
) -> Result<Loss, WorkloadError> {
    let weights = Weights { parameters: &state.parameters, state: &state.model_state, version };
    let (gradient, model_state) = out.split_at_mut(state.parameters.len());
    let loss = workload.gradient(weights, MicroBatch { samples }, seed, gradient, model_state)?;
    let count = samples.len() as f32;
    model_state.iter_mut().for_each(|value| *value *= count);
    Ok(loss)
}
