//! The exchange of gradients while the last of them are still computed.
//!
//! A worker's last gradient leaves the workload tensor by tensor, from the last to the first. What is computed of the
//! vector is added to the worker's sums at once, and travels, bucket by bucket, in a thread of its own. Additions and
//! plan are those of an exchange that begins when all is computed, and so are the bits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bellwether_memory::Vector;

use super::gradients::{Computing, Sum, weigh};
use super::{Engine, Fault, fault, square_sum};
use crate::collective::{CollectiveError, Feeder, Outcome, feed};
use crate::membership::Activity;
use crate::noise::measures;
use crate::order::micro_batch_seed;
use crate::transfer::read;
use crate::tree::Accumulator;
use crate::tree::last::Part;
use crate::workload::{MicroBatch, Parameters, TensorExchange, WorkloadError, tensor_ranges};

/// What an exchange beside the computation left.
pub(super) struct Beside {
    pub(super) outcome: Outcome,
    /// When all was computed.
    pub(super) computed: Instant,
    /// Seconds before that in which a bucket was under way.
    pub(super) hidden_s: f64,
}

/// Hands gradients over, bucket by bucket, as they come.
struct Handing<'a> {
    feeder: Feeder<'a>,
    /// Buckets that are not complete, in the plan's order.
    parts: VecDeque<Part<'a>>,
    /// Tensors of the layout, and whether each has come.
    tensors: Vec<(Range<usize>, bool)>,
    began: Option<Instant>,
}

impl Handing<'_> {
    /// Takes values of the vector that begin at `start`; says whether they were awaited.
    fn take(&mut self, start: usize, values: &[f32]) -> bool {
        let awaited = self.parts.iter_mut().fold(true, |awaited, part| part.take(start, values) & awaited);
        while self.parts.front().is_some_and(Part::is_whole) {
            let whole = self.parts.pop_front().expect("there is a first one");
            self.began.get_or_insert_with(Instant::now);
            self.feeder.bucket(whole.close());
        }
        awaited
    }

    /// Takes what did not come by itself, now that all is there: `gradient`, and the state behind it.
    fn rest(&mut self, gradient: &[f32], state: &[f32]) {
        for tensor in (0..self.tensors.len()).rev() {
            let (range, has_come) = &mut self.tensors[tensor];
            if !std::mem::replace(has_come, true) {
                let range = range.clone();
                self.take(range.start, &gradient[range]);
            }
        }
        self.take(gradient.len(), state);
        debug_assert!(self.parts.is_empty(), "tensors and state are the whole vector");
    }
}

impl TensorExchange for Handing<'_> {
    fn pull(&mut self, _tensor: usize, _out: &mut [f32]) -> Result<(), WorkloadError> {
        Err(WorkloadError::new("the parameters are here"))
    }

    fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError> {
        let wrong = |what| Err(WorkloadError::new(format!("the gradient of tensor {tensor} {what}")));
        match self.tensors.get_mut(tensor) {
            Some((range, has_come)) if range.len() == gradient.len() && !*has_come => {
                *has_come = true;
                let start = range.start;
                self.take(start, gradient);
                Ok(())
            }
            Some((_, true)) => wrong("comes twice"),
            _ => wrong("has another length"),
        }
    }
}

impl Engine {
    /// Whether the exchange of a step begins before all is computed: where there are peers, and the last micro-batch
    /// has samples and is all that its virtual node adds.
    pub(super) fn overlaps(&self, steps: &Range<u64>) -> bool {
        let Some(plan) = self.bulk.as_ref().map(|bulk| bulk.plan()) else { return false };
        plan.is_in_buckets()
            && plan.rank().is_some()
            && plan.peers().next().is_some()
            && steps.end == steps.start + 1
            && !(self.alternates && steps.start.is_multiple_of(2))
            && self.order.samples_in(steps.start) >= u64::from(self.order.virtual_nodes)
    }

    /// Computes the last of this worker's sums, those before it being in the accumulator, while what is computed is
    /// exchanged. `finish` then gives the control bytes.
    pub(super) fn exchange_beside(
        &mut self,
        step: u64,
        last: &Sum,
        computing: &mut Computing,
        urgent: &dyn Fn() -> bool,
        finish: impl FnOnce(&mut Self, &mut Computing) -> Result<Vec<u8>, Fault>,
    ) -> Result<Beside, Fault> {
        let mut collective = self.bulk.take().expect("a membership was adopted");
        let (mut mesh, mut out) = (std::mem::take(&mut self.mesh), Vector::private(0));
        std::mem::swap(&mut out, &mut self.out);
        let mut accumulator = Accumulator::new(self.order.virtual_nodes, 0..0, 0);
        std::mem::swap(&mut accumulator, &mut self.accumulator);
        let (stamp, wake, wakes) = (self.stamp(step), Arc::clone(&self.wake), Arc::clone(&self.fed));
        let open = accumulator.open_last(last.leaves(), collective.plan().buckets());
        let (feeder, feed) = feed(&wakes, open.offsets);
        let tensors = tensor_ranges(self.workload.layout()).into_iter().map(|range| (range, false)).collect();
        let handing = Handing { feeder, parts: open.parts.into(), tensors, began: None };
        let (running, through, result) = (&mut collective, &mut mesh, &mut out);
        let run = move || running.run_fed(through, stamp, feed, result, &wake);
        let (computed, exchanged) = std::thread::scope(|scope| {
            let exchange = std::thread::Builder::new().name("exchange".into()).spawn_scoped(scope, run);
            let computed = self.compute_last(step, last, handing, computing, urgent, finish);
            let exchanged = exchange.map_err(|error| CollectiveError::System(error.to_string()));
            let exchanged = exchanged
                .and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            (computed, exchanged)
        });
        accumulator.close_last(last.leaves());
        (self.bulk, self.mesh, self.out, self.accumulator) = (Some(collective), mesh, out, accumulator);
        let (computed, hidden_s) = computed?;
        let outcome = exchanged.map_err(fault)?;
        self.drop_dead(&outcome);
        Ok(Beside { outcome, computed, hidden_s })
    }

    /// Says when all was computed, and for how many seconds a bucket had been under way then.
    fn compute_last(
        &mut self,
        step: u64,
        last: &Sum,
        mut handing: Handing<'_>,
        computing: &mut Computing,
        urgent: &dyn Fn() -> bool,
        finish: impl FnOnce(&mut Self, &mut Computing) -> Result<Vec<u8>, Fault>,
    ) -> Result<(Instant, f64), Fault> {
        if urgent() {
            return Err(Fault::interrupted());
        }
        self.part(Activity::Computing, step);
        let parameters = read(&self.state).parameters.len();
        self.part.resize(self.length, 0.0);
        match last {
            Sum::Subtree { first, leaves } => {
                self.subtree(step, *first, leaves, Some(&mut handing), computing, urgent)?;
            }
            Sum::Node(node) => {
                let began = Instant::now();
                computing.leaves.push(self.last_node(step, *node, &mut handing)?);
                computing.note_time(began, self.workload.take_data_wait_s());
            }
        }
        let (gradient, state) = self.part.split_at(parameters);
        handing.rest(gradient, state);
        let control = finish(self, computing)?;
        let computed = Instant::now();
        let hidden_s = handing.began.map_or(0.0, |began| (computed - began).as_secs_f64());
        handing.feeder.control(control);
        Ok((computed, hidden_s))
    }

    /// As `micro_batch`, of the only micro-batch of the last node.
    fn last_node(&mut self, step: u64, node: u32, handing: &mut Handing<'_>) -> Result<[f64; 3], Fault> {
        self.order.micro_batch(step, node, &mut self.samples);
        let state = read(&self.state);
        let (gradient, left) = self.part.split_at_mut(state.parameters.len());
        let (batch, seed) = (MicroBatch { samples: &self.samples }, micro_batch_seed(self.seed, step, node));
        let parameters = Parameters::Here(&state.parameters);
        let loss = self
            .workload
            .gradient_by_parts(
                handing,
                parameters,
                &state.model_state,
                self.version,
                batch,
                seed,
                gradient,
                left,
            )
            .map_err(|error| Fault::Workload(error, Some((step, node))))?;
        weigh(left, &self.samples);
        let squares = if self.optimizer.moves() && measures(step) { square_sum(gradient) } else { 0.0 };
        self.verification.computed(step, node, &self.part, loss.sum);
        Ok([loss.sum, squares, loss.weight])
    }
}
