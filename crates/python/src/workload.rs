//! The workload of a Python job: asks the Python main thread for everything.

use std::ops::Range;

use bellwether_core::job::Job;
use bellwether_runtime::order::{SampleOrder, micro_batch_seed};
use bellwether_runtime::workload::{
    Evaluation, Inputs, Layout, Leaf, LeafResult, Loss, MicroBatch, TensorExchange, Weights, Workload,
    WorkloadError, tensor_ranges,
};

use crate::ask::{Answer, Asker, Failure, Question, Sum};
use crate::declaration::Declaration;
use crate::probe;

/// Seed of the weights at which gradients are compared.
const PROBE_SEED: u64 = 0x6265_6c6c;

/// No state of a run has this version.
const PROBE_VERSION: u64 = u64::MAX;

/// A vector that the Python side shares with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All parameters.
    Parameters,
    /// All state, before a micro-batch.
    State,
    /// The gradient of a micro-batch.
    Gradient,
    /// That of one tensor.
    Tensor(usize),
    /// The state after it.
    StateOut,
    /// Parameters of a piece that is updated.
    PieceParameters,
    /// Their gradient.
    PieceGradient,
    /// A slot of the optimizer for them.
    PieceSlot(usize),
}

/// The vectors that both sides share. They may be used only while the main thread waits for a question.
pub(crate) trait Memory: Send {
    /// Copies values to the beginning of a vector.
    fn put(&self, place: Place, values: &[f32]) -> Result<(), String>;

    /// Copies the beginning of a vector.
    fn take(&self, place: Place, out: &mut [f32]) -> Result<(), String>;
}

/// The user's model and data, reached through the main thread.
pub(crate) struct PythonWorkload<M> {
    asker: Asker,
    memory: M,
    layout: Layout,
    samples: [u64; 2],
    order: SampleOrder,
    /// Version of the weights that the main thread has.
    version: Option<u64>,
    /// The step that was asked for last, or is about to be.
    step: u64,
    framework: String,
    layout_digest: String,
    /// Digest of the gradients at fixed weights, once they were computed.
    probe: Option<String>,
    /// Seconds that the main thread lost for want of data, until they are asked for.
    data_wait_s: f64,
    /// The main thread can add up gradients itself.
    keeps_sums: bool,
}

impl<M: Memory> PythonWorkload<M> {
    /// Joins a script's declaration with the job that the run has.
    pub(crate) fn new(
        asker: Asker,
        memory: M,
        declaration: &Declaration,
        framework: String,
        job: &Job,
    ) -> Self {
        let samples = declaration.samples("training_samples");
        let order = SampleOrder::of(job, samples);
        PythonWorkload {
            asker,
            memory,
            layout: declaration.layout(),
            samples: [samples, declaration.samples("held_out_samples")],
            order,
            version: None,
            step: 0,
            framework,
            layout_digest: declaration.layout_digest().to_owned(),
            probe: None,
            data_wait_s: 0.0,
            keeps_sums: false,
        }
    }

    /// The same; the main thread adds up gradients itself where it is asked to.
    pub(crate) fn keeping_sums(self, keeps_sums: bool) -> Self {
        PythonWorkload { keeps_sums, ..self }
    }

    fn put(&self, place: Place, values: &[f32]) -> Result<(), WorkloadError> {
        self.memory.put(place, values).map_err(broken)
    }

    fn take(&self, place: Place, out: &mut [f32]) -> Result<(), WorkloadError> {
        self.memory.take(place, out).map_err(broken)
    }

    /// Brings these weights to the main thread, unless it has them; says whether they are new to it.
    fn bring(&mut self, weights: Weights<'_>) -> Result<bool, WorkloadError> {
        self.asker.meet().map_err(failed)?;
        let fresh = self.version != Some(weights.version);
        if fresh {
            self.put(Place::Parameters, weights.parameters)?;
            self.put(Place::State, weights.state)?;
            self.version = Some(weights.version);
        }
        Ok(fresh)
    }

    /// The step and the virtual node that a seed is for: the runtime names samples and seed only, and people want to
    /// read where something went wrong.
    fn place(&mut self, seed: u64) -> (u64, u32) {
        let is = |step: u64, node: u32| micro_batch_seed(self.order.seed, step, node) == seed;
        let nodes = 0..self.order.virtual_nodes;
        let node = |step: u64| nodes.clone().find(|node| is(step, *node));
        if let Some(found) = (self.step..self.step + 2).find_map(|step| node(step).map(|node| (step, node))) {
            self.step = found.0;
            return found;
        }
        (self.step, 0)
    }

    fn compute(
        &mut self,
        weights: Weights<'_>,
        (step, node): (u64, u32),
        batch: MicroBatch<'_>,
        seed: u64,
        (gradient_out, state_out): (&mut [f32], &mut [f32]),
    ) -> Result<Loss, WorkloadError> {
        let fresh = self.bring(weights)?;
        let samples = batch.samples.to_vec();
        let question = Question::Gradient { step, node, samples, seed, fresh, sum: None };
        let answer = self.asker.ask(question).map_err(failed)?;
        let LeafResult { loss, data_wait_s } = leaf_result(answer).map_err(failed)?;
        self.data_wait_s += data_wait_s;
        self.take(Place::Gradient, gradient_out)?;
        self.take(Place::StateOut, state_out)?;
        Ok(loss)
    }

    /// Computes a gradient, another one, and the first again, at fixed weights: the same question must give the same
    /// bits. Returns their digest, which is part of the kernel class.
    fn probe(&mut self) -> Result<String, WorkloadError> {
        let (parameter_count, state_count) = (self.layout.parameter_count(), self.layout.state_count());
        let (mut parameters, mut state) = (vec![0.0; parameter_count], vec![0.0; state_count]);
        probe::weights(&self.layout, PROBE_SEED, &mut parameters, &mut state);
        let mut results = Vec::new();
        for step in [0, 1, 0] {
            let mut samples = Vec::new();
            self.order.micro_batch(step, 0, &mut samples);
            if samples.is_empty() {
                return Ok("none".into());
            }
            let weights = Weights { parameters: &parameters, state: &state, version: PROBE_VERSION };
            let (mut gradient, mut left) = (vec![0.0; parameter_count], vec![0.0; state_count]);
            let seed = micro_batch_seed(self.order.seed, step, 0);
            let batch = MicroBatch { samples: &samples };
            let loss = self.compute(weights, (step, 0), batch, seed, (&mut gradient, &mut left))?;
            results.push((loss, gradient, left));
        }
        self.version = None;
        let [(loss, gradient, left), _, (other_loss, other_gradient, other_left)] = results.as_slice() else {
            unreachable!("three were computed");
        };
        let different = probe::first_difference(&self.layout.parameters, gradient, other_gradient)
            .or_else(|| probe::first_difference(&self.layout.state, left, other_left))
            .or((loss.sum.to_bits() != other_loss.sum.to_bits()).then_some("the loss"));
        match different {
            None => Ok(probe::digest(&[gradient, left])),
            Some(tensor) => Err(user_error(format!(
                "the same micro-batch gave two results, which differ in {tensor}: the loop's body must depend on its \
                 batch and on the generators of torch, numpy and random only, and an operation may have no \
                 deterministic kernel"
            ))),
        }
    }
}

fn failed(Failure { what, user }: Failure) -> WorkloadError {
    WorkloadError { what, is_user: user }
}

/// What the main thread says of a micro-batch.
fn leaf_result(answer: Answer) -> Result<LeafResult, Failure> {
    let Answer::Loss { sum, weight, data_wait_s } = answer else {
        return Err(Failure::of_system("a gradient was answered by something else"));
    };
    // A negative or endless time is a caller's mistake.
    let data_wait_s = if data_wait_s.is_finite() { data_wait_s.max(0.0) } else { 0.0 };
    Ok(LeafResult { loss: Loss { sum, weight }, data_wait_s })
}

fn user_error(what: String) -> WorkloadError {
    failed(Failure { what, user: true })
}

fn broken(what: String) -> WorkloadError {
    failed(Failure::of_system(what))
}

impl<M: Memory> Workload for PythonWorkload<M> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn training_samples(&self) -> u64 {
        self.samples[0]
    }

    fn held_out_samples(&self) -> u64 {
        self.samples[1]
    }

    /// The weights of a probe: a run of a Python job begins with its lead's weights, which come as a checkpoint.
    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        probe::weights(&self.layout, seed, parameters, state);
    }

    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        if self.probe.is_none() {
            self.probe = Some(self.probe()?);
        }
        let place = self.place(seed);
        self.compute(weights, place, batch, seed, (gradient_out, state_out))
    }

    fn keeps_sums(&self) -> bool {
        self.keeps_sums && self.probe.is_some()
    }

    fn sum_of_gradients(
        &mut self,
        weights: Weights<'_>,
        leaves: &[Leaf],
        (gradient_out, state_out): (&mut [f32], &mut [f32]),
        mut parts: Option<&mut dyn TensorExchange>,
        computed: &mut dyn FnMut(LeafResult) -> bool,
    ) -> Result<(), WorkloadError> {
        let fresh = self.bring(weights)?;
        let mut questions = Vec::with_capacity(leaves.len());
        for (number, leaf) in leaves.iter().enumerate() {
            let (step, node) = self.place(leaf.seed);
            let (is_first, is_last) = (number == 0, number + 1 == leaves.len());
            let in_parts = is_last && parts.is_some();
            let sum = Some(Sum { is_first, merges: leaf.merges, is_last, in_parts });
            let (samples, fresh) = (leaf.samples.clone(), fresh && is_first);
            questions.push(Question::Gradient { step, node, samples, seed: leaf.seed, fresh, sum });
        }
        let mut goes_on = true;
        let (ranges, memory) = (tensor_ranges(&self.layout), &self.memory);
        let mut has_come = vec![false; ranges.len()];
        let tell = |answer| {
            let Answer::Part { tensor } = answer else {
                goes_on = computed(leaf_result(answer)?);
                return Ok(goes_on);
            };
            let (Some(range), Some(false)) = (ranges.get(tensor), has_come.get(tensor)) else {
                return Err(Failure::of_system(format!("tensor {tensor} comes twice, or there is none")));
            };
            has_come[tensor] = true;
            let out = &mut gradient_out[range.clone()];
            memory.take(Place::Tensor(tensor), out).map_err(Failure::of_system)?;
            if let Some(parts) = &mut parts {
                let given = parts.push(tensor, out);
                given.map_err(|error| Failure { what: error.what, user: error.is_user })?;
            }
            Ok(true)
        };
        self.asker.ask_all(questions, tell).map_err(failed)?;
        if goes_on {
            if !has_come.contains(&true) {
                self.take(Place::Gradient, gradient_out)?;
            }
            // Of what came in parts, the rest: those that the loss does not depend on.
            let rest = ranges.iter().enumerate().filter(|(tensor, _)| !has_come[*tensor]);
            for (tensor, range) in rest.filter(|_| has_come.contains(&true)) {
                self.take(Place::Tensor(tensor), &mut gradient_out[range.clone()])?;
            }
            self.take(Place::StateOut, state_out)?;
        }
        Ok(())
    }

    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError> {
        let fresh = self.bring(weights)?;
        let question = Question::Evaluate { samples: batch.samples.to_vec(), fresh };
        match self.asker.ask(question).map_err(failed)? {
            Answer::Evaluation { loss_sum, correct, predictions } => {
                Ok(Evaluation { loss_sum, correct, predictions })
            }
            _ => Err(broken("an evaluation was answered by something else".into())),
        }
    }

    fn predict(
        &mut self,
        weights: Weights<'_>,
        inputs: Inputs<'_>,
        scores: &mut Vec<f32>,
    ) -> Result<(), WorkloadError> {
        let fresh = self.bring(weights)?;
        let question = Question::Predict { values: inputs.values.to_vec(), width: inputs.width, fresh };
        match self.asker.ask(question).map_err(failed)? {
            Answer::Scores(found) => {
                scores.extend(found);
                Ok(())
            }
            _ => Err(broken("a prediction was answered by something else".into())),
        }
    }

    fn take_data_wait_s(&mut self) -> f64 {
        std::mem::take(&mut self.data_wait_s)
    }

    fn fingerprint(&self) -> String {
        let probe = self.probe.as_deref().unwrap_or("none");
        format!("{}; layout {}; probe {probe}", self.framework, self.layout_digest)
    }

    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        self.step = step;
        // Before the first gradient the main thread has no use for it; when it is gone the next question says so.
        if self.probe.is_some() {
            let question = Question::Assigned { step, first: nodes.start, end: nodes.end };
            let _ = self.asker.tell(question);
        }
    }

    fn update(
        &mut self,
        step: u64,
        start: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        self.asker.meet().map_err(failed)?;
        self.put(Place::PieceParameters, parameters)?;
        self.put(Place::PieceGradient, gradient)?;
        for (number, slot) in slots.iter().enumerate() {
            self.put(Place::PieceSlot(number), slot)?;
        }
        let question = Question::Update { step, start, length: parameters.len() };
        let Answer::Updated = self.asker.ask(question).map_err(failed)? else {
            return Err(broken("an update was answered by something else".into()));
        };
        self.take(Place::PieceParameters, parameters)?;
        for (number, slot) in slots.iter_mut().enumerate() {
            self.take(Place::PieceSlot(number), slot)?;
        }
        Ok(())
    }
}
