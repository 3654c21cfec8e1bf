//! Gradients of a worker's virtual nodes for one update, which covers one step or several.

use std::ops::Range;
use std::time::Instant;

use super::{Engine, Fault, square_sum};
use crate::membership::Activity;
use crate::noise::measures;
use crate::order::micro_batch_seed;
use crate::state::TrainingState;
use crate::transfer::read;
use crate::tree::{add_assign, maximal_nodes};
use crate::workload::{Leaf, LeafResult, Loss, MicroBatch, TensorExchange, Weights, Workload, WorkloadError};

/// What is known of the gradients of one update while they are computed.
#[derive(Debug, Default)]
pub(super) struct Computing {
    /// Of each virtual node: its loss, in steps that are measured the square norms of its micro-batches' gradients, and
    /// the loss's weight.
    pub(super) leaves: Vec<[f64; 3]>,
    /// Seconds spent on each virtual node.
    pub(super) nodes_s: Vec<f64>,
    /// Seconds in which nothing was computed for want of samples.
    pub(super) data_wait_s: f64,
}

/// Some of a worker's virtual nodes whose sum comes as one vector.
#[derive(Debug)]
pub(super) enum Sum {
    /// One, whose gradient the workload gives as it is.
    Node(u32),
    /// The leaves of a maximal node, which the workload adds up.
    Subtree { first: u32, leaves: Vec<Leaf> },
}

impl Sum {
    /// Virtual nodes in it.
    pub(super) fn leaves(&self) -> u32 {
        match self {
            Sum::Node(_) => 1,
            Sum::Subtree { leaves, .. } => leaves.len() as u32,
        }
    }
}

impl Engine {
    /// The sums that make up those of this worker's virtual nodes over `steps`, in the order of their computation.
    pub(super) fn sums(&self, steps: &Range<u64>) -> Vec<Sum> {
        let range = self.accumulator.range();
        if !self.keeps_sums(steps) {
            return range.map(Sum::Node).collect();
        }
        let subtrees = maximal_nodes(self.order.virtual_nodes, range).into_iter();
        let subtree = |nodes: Range<u32>| Sum::Subtree {
            first: nodes.start,
            leaves: nodes.map(|node| self.leaf(steps.start, node)).collect(),
        };
        subtrees.map(subtree).collect()
    }

    /// Adds these sums over `steps` to those in the accumulator.
    pub(super) fn gradients(
        &mut self,
        steps: Range<u64>,
        sums: Vec<Sum>,
        computing: &mut Computing,
        urgent: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        for sum in sums {
            match sum {
                Sum::Node(node) => {
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
                    computing.leaves.push(sums);
                    self.accumulator.push();
                    computing.note_time(began, self.workload.take_data_wait_s());
                }
                Sum::Subtree { first, leaves } => {
                    self.subtree(steps.start, first, &leaves, None, computing, urgent)?;
                    self.accumulator.push_node(leaves.len() as u32);
                }
            }
        }
        Ok(())
    }

    /// Whether the workload adds up the gradients of these steps itself. It does not where a single gradient is looked
    /// at, a virtual node has none, or sums are rounded, which a workload does not do.
    fn keeps_sums(&self, steps: &Range<u64>) -> bool {
        let step = steps.start;
        self.workload.keeps_sums()
            && self.accumulator.rounded() == 0
            && steps.end == step + 1
            && !(self.optimizer.moves() && measures(step))
            && !self.verification.watches()
            && self.order.samples_in(step) >= u64::from(self.order.virtual_nodes)
    }

    /// The sum of a subtree whose first leaf is `first`, which the workload keeps: into the accumulator's next vector,
    /// or to `parts`, and then also into the memory for a part.
    pub(super) fn subtree(
        &mut self,
        step: u64,
        first: u32,
        leaves: &[Leaf],
        parts: Option<&mut dyn TensorExchange>,
        computing: &mut Computing,
        urgent: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        if urgent() {
            return Err(Fault::interrupted());
        }
        let state = read(&self.state);
        let weights =
            Weights { parameters: &state.parameters, state: &state.model_state, version: self.version };
        let sum_out: &mut [f32] = if parts.is_some() { &mut self.part } else { self.accumulator.leaf() };
        let sum_out = sum_out.split_at_mut(state.parameters.len());
        let at = || self.progress.at(Activity::Computing, self.membership.epoch, step);
        at();
        let (mut began, mut next, mut is_urgent) = (Instant::now(), first, false);
        let end = first + leaves.len() as u32;
        let mut computed = |result: LeafResult| {
            computing.note_time(began, result.data_wait_s);
            began = Instant::now();
            computing.leaves.push([result.loss.sum, 0.0, result.loss.weight]);
            next += 1;
            is_urgent = next < end && urgent();
            at();
            !is_urgent
        };
        self.workload
            .sum_of_gradients(weights, leaves, sum_out, parts, &mut computed)
            .map_err(|error| Fault::Workload(error, Some((step, next))))?;
        if is_urgent { Err(Fault::interrupted()) } else { Ok(()) }
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

impl Computing {
    /// Notes how long a virtual node took, without what went by for want of its samples.
    pub(super) fn note_time(&mut self, began: Instant, waited_s: f64) {
        self.data_wait_s += waited_s;
        self.nodes_s.push((began.elapsed().as_secs_f64() - waited_s).max(0.0));
    }
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
    weigh(model_state, samples);
    Ok(loss)
}

/// The state that a micro-batch left counts once for each of its samples.
pub(super) fn weigh(model_state: &mut [f32], samples: &[u64]) {
    let count = samples.len() as f32;
    model_state.iter_mut().for_each(|value| *value *= count);
}
