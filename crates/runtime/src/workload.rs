//! The seam to a deep-learning framework: what it must offer, and no more.

use std::fmt;
use std::ops::Range;

/// A named tensor of the flat parameter or state vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Path of the tensor in the model, for example `"block.0.weight"`; unique in its layout.
    pub name: String,
    /// Sizes of its dimensions, outermost first; the product is its number of `f32`.
    pub shape: Vec<usize>,
}

impl Tensor {
    /// Number of `f32` values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor holds no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names and shapes of all tensors, in the order in which they lie in the flat vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// What the optimizer updates.
    pub parameters: Vec<Tensor>,
    /// The model's other state, such as running statistics of batch normalisation.
    pub state: Vec<Tensor>,
}

impl Layout {
    /// Number of `f32` in the flat parameter vector.
    pub fn parameter_count(&self) -> usize {
        self.parameters.iter().map(Tensor::len).sum()
    }

    /// Number of `f32` in the flat state vector.
    pub fn state_count(&self) -> usize {
        self.state.iter().map(Tensor::len).sum()
    }
}

/// The samples that one virtual node computes in one step (or part of an evaluation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroBatch<'a> {
    /// Indices into the training set (for `gradient`) or the held-out set (for `evaluate`); never empty.
    pub samples: &'a [u64],
}

/// Flat parameters and state, as they stand between two steps.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// Parameters in layout order.
    pub parameters: &'a [f32],
    /// State in layout order.
    pub state: &'a [f32],
    /// Two calls with the same version see the same bytes, so a workload may keep an uploaded copy.
    pub version: u64,
}

/// Loss of a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Loss {
    /// Sum of the samples' losses (for a transformer, each sample's mean over its positions), each times its weight.
    pub sum: f64,
    /// Sum of the weights: the number of samples, unless the workload weighs them, for example by their valid tokens.
    /// The update divides the sum of all gradients by the sum of all weights.
    pub weight: f64,
}

/// A micro-batch of a sum that the workload keeps: the virtual nodes of a complete subtree are added up leaf by leaf,
/// along the canonical [tree](crate::tree).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Index numbers of its samples.
    pub samples: Vec<u64>,
    /// Source of all randomness in it.
    pub seed: u64,
    /// Additions that follow: each adds the newest sum to the one before it, `before += newest`, and drops it.
    pub merges: u32,
}

/// What is told of a [`Leaf`] that was computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LeafResult {
    /// Its loss.
    pub loss: Loss,
    /// Seconds in which its samples were waited for, while nothing was computed.
    pub data_wait_s: f64,
}

/// Result of evaluating some held-out samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evaluation {
    /// Sum of the samples' losses.
    pub loss_sum: f64,
    /// Predictions that were right.
    pub correct: u64,
    /// Predictions made (samples, or positions of a text); 0 where accuracy does not apply.
    pub predictions: u64,
}

/// One prediction on a held-out sample (or on a position of a text) beside what is right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Examined {
    /// Loss of this prediction alone.
    pub loss: f64,
    /// The class that is right.
    pub target: u32,
    /// The class with the largest score.
    pub predicted: u32,
}

/// Samples without targets that a model is applied to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs<'a> {
    /// The samples one after another, each `width` numbers; the bytes of a text are numbers, too.
    pub values: &'a [f32],
    /// Numbers of one sample; positive.
    pub width: usize,
}

/// A workload could not compute; the worker that holds it leaves the job with this message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadError {
    /// What went wrong, in one line.
    pub what: String,
    /// Whether the user's own code is to blame, which would fail in the same way on any other worker.
    pub is_user: bool,
}

impl WorkloadError {
    /// Something failed that may work on another worker.
    pub fn new(what: impl Into<String>) -> WorkloadError {
        WorkloadError { what: what.into(), is_user: false }
    }

    /// The user's own code failed: the run ends when that happens twice in the same way, or before its first step.
    pub fn of_user(what: impl Into<String>) -> WorkloadError {
        WorkloadError { what: what.into(), is_user: true }
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for WorkloadError {}

/// Parameters that come tensor by tensor while a gradient is computed, and gradients that leave so.
///
/// A workload that says early what it needs, and late what it has, lets the network work while it computes.
pub trait TensorExchange {
    /// Waits until the parameters of this tensor (its number in the layout) are here, and copies them to `out`.
    ///
    /// # Errors
    ///
    /// Returns an error if they will not come: the gradient is then of no use, and the error is handed on.
    fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError>;

    /// Hands the finished gradient of this tensor over; the last tensor of the layout first, where that is possible.
    ///
    /// # Errors
    ///
    /// Same errors as [`pull`](TensorExchange::pull).
    fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError>;
}

/// The parameters of a gradient that is given tensor by tensor.
#[derive(Debug)]
pub enum Parameters<'a> {
    /// They are here, in layout order.
    Here(&'a [f32]),
    /// Each has its place here once it was [pulled](TensorExchange::pull); what is there before does not count.
    Coming(&'a mut [f32]),
}

impl<'a> Parameters<'a> {
    /// All parameters, once they are here. `ranges` are those of [`tensor_ranges`].
    ///
    /// # Errors
    ///
    /// Those of [`pull`](TensorExchange::pull).
    pub fn all(
        self,
        parts: &mut dyn TensorExchange,
        ranges: &[Range<usize>],
    ) -> Result<&'a [f32], WorkloadError> {
        match self {
            Parameters::Here(parameters) => Ok(parameters),
            Parameters::Coming(parameters) => {
                for (tensor, range) in ranges.iter().enumerate() {
                    parts.pull(tensor, &mut parameters[range.clone()])?;
                }
                Ok(parameters)
            }
        }
    }
}

/// Where the tensors lie in the flat parameter vector.
pub fn tensor_ranges(layout: &Layout) -> Vec<Range<usize>> {
    let mut begin = 0;
    let ranges = layout.parameters.iter().map(|tensor| {
        begin += tensor.len();
        begin - tensor.len()..begin
    });
    ranges.collect()
}

/// A model with its data, ready to be trained by the runtime.
///
/// The runtime owns parameters, optimizer, learning rate, reduction and checkpoints; it names the
/// samples. A workload knows no network, no membership and no number of workers.
///
/// # Laws
///
/// - `gradient` and `evaluate` are pure: the same arguments give the same bytes, whatever was called
///   before, in whatever process of the same [`fingerprint`](Workload::fingerprint).
/// - `gradient` writes every element of both output slices.
/// - Outputs are sums over the micro-batch, except the state: see `state_out`.
/// - `initialize` is a pure function of the seed.
pub trait Workload {
    /// Names and shapes; the same for the workload's whole life.
    fn layout(&self) -> &Layout;

    /// Number of training samples of an epoch.
    fn training_samples(&self) -> u64;

    /// Number of held-out samples.
    fn held_out_samples(&self) -> u64;

    /// Writes the initial parameters and state for `seed`.
    fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]);

    /// These virtual nodes are this worker's from `step` on, until the next call. A workload that loads its samples
    /// ahead begins here; it decides no bits.
    fn assigned(&mut self, step: u64, nodes: Range<u32>) {
        let _ = (step, nodes);
    }

    /// Applies the workload's own update rule (`optimizer.kind = "own"`) to one piece of the flat vectors, which begins
    /// at the element `start` of the parameters. Any cut into pieces gives the same bytes.
    ///
    /// - `step`: number of the step; the first is 0, where all slots are 0.
    /// - `gradient`: the mean over the batch, clipped.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule cannot be applied, or the workload has none.
    fn update(
        &mut self,
        step: u64,
        start: usize,
        parameters: &mut [f32],
        slots: &mut [&mut [f32]],
        gradient: &[f32],
    ) -> Result<(), WorkloadError> {
        let _ = (step, start, parameters, slots, gradient);
        Err(WorkloadError::of_user("the workload has no update rule of its own"))
    }

    /// Gradient of the *sum* of the samples' losses with respect to the parameters.
    ///
    /// - `seed`: source of all randomness in this call (dropout, augmentation).
    /// - `gradient_out`: `parameter_count` values.
    /// - `state_out`: `state_count` values: the state as this micro-batch alone would leave it, given
    ///   `weights.state`. The runtime averages them over the virtual nodes, weighted by samples.
    ///
    /// # Errors
    ///
    /// Returns an error if the workload cannot compute at all (its data are gone, memory is short). A loss that is not
    /// finite does not count as an error: the runtime sees it.
    fn gradient(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError>;

    /// Whether the workload can keep sums of gradients where it computes them: see
    /// [`sum_of_gradients`](Workload::sum_of_gradients).
    fn keeps_sums(&self) -> bool {
        false
    }

    /// As [`gradient`](Workload::gradient) for all leaves of a subtree of virtual nodes, added up where they are
    /// computed: the subtree costs one copy from a device, and one request to another thread, and not one for each
    /// leaf. Only called where [`keeps_sums`](Workload::keeps_sums) says yes.
    ///
    /// A leaf's gradient and the state that it left, times the number of its samples, become the newest sum;
    /// `merges` additions follow. The sums and their order are those that the runtime would compute from
    /// [`gradient`](Workload::gradient), bit by bit, in `f32`: subnormal numbers stay what they are.
    ///
    /// - `sum_out`: where the only sum that is left goes: that of the gradients, and that of the states.
    /// - `parts`: if there is one, each tensor of the sum of the gradients is pushed as soon as it is complete. What a
    ///   workload does not know before all is computed it may leave to the caller.
    /// - `computed`: is told of each leaf, in order, as soon as it is computed. It says whether to go on; if not, what
    ///   is in `sum_out` does not count, and the call returns soon.
    ///
    /// # Errors
    ///
    /// Same errors as [`gradient`](Workload::gradient), for the first leaf that `computed` was not told of.
    fn sum_of_gradients(
        &mut self,
        weights: Weights<'_>,
        leaves: &[Leaf],
        sum_out: (&mut [f32], &mut [f32]),
        parts: Option<&mut dyn TensorExchange>,
        computed: &mut dyn FnMut(LeafResult) -> bool,
    ) -> Result<(), WorkloadError> {
        let _ = (weights, leaves, sum_out, parts, computed);
        Err(WorkloadError::new("the workload keeps no sums"))
    }

    /// Seconds since the last call in which [`gradient`](Workload::gradient) waited for its samples to be loaded, while
    /// nothing was computed. A workload whose samples are in memory never waits.
    fn take_data_wait_s(&mut self) -> f64 {
        0.0
    }

    /// As [`gradient`](Workload::gradient), with gradients that leave while it computes, and parameters that may come
    /// only then: every tensor that is not here is pulled once, and the gradient of every tensor is pushed once.
    /// `gradient_out` is written as a whole, too.
    ///
    /// Unless a workload knows better it waits for all tensors, computes, and gives all of them.
    ///
    /// # Errors
    ///
    /// Same errors as [`gradient`](Workload::gradient), and those of `parts`.
    #[expect(clippy::too_many_arguments, reason = "those of `gradient`, and where tensors come from")]
    fn gradient_by_parts(
        &mut self,
        parts: &mut dyn TensorExchange,
        parameters: Parameters<'_>,
        state: &[f32],
        version: u64,
        batch: MicroBatch<'_>,
        seed: u64,
        gradient_out: &mut [f32],
        state_out: &mut [f32],
    ) -> Result<Loss, WorkloadError> {
        let ranges = tensor_ranges(self.layout());
        let parameters = parameters.all(parts, &ranges)?;
        let weights = Weights { parameters, state, version };
        let loss = self.gradient(weights, batch, seed, gradient_out, state_out)?;
        // The backward pass ends with the first tensor.
        for (tensor, range) in ranges.iter().enumerate().rev() {
            parts.push(tensor, &gradient_out[range.clone()])?;
        }
        Ok(loss)
    }

    /// Loss and right predictions on held-out samples, in inference mode.
    ///
    /// # Errors
    ///
    /// Same errors as [`gradient`](Workload::gradient).
    fn evaluate(&mut self, weights: Weights<'_>, batch: MicroBatch<'_>) -> Result<Evaluation, WorkloadError>;

    /// As [`evaluate`](Workload::evaluate), and appends each prediction to `examined`, sample by sample. A workload
    /// that knows only the sums appends nothing.
    ///
    /// # Errors
    ///
    /// Same errors as [`gradient`](Workload::gradient).
    fn examine(
        &mut self,
        weights: Weights<'_>,
        batch: MicroBatch<'_>,
        examined: &mut Vec<Examined>,
    ) -> Result<Evaluation, WorkloadError> {
        let _ = examined;
        self.evaluate(weights, batch)
    }

    /// Applies the model in inference mode and appends its scores before the softmax, as many for each sample; of a
    /// text those of the byte that follows it.
    ///
    /// # Errors
    ///
    /// Returns an error if the workload cannot predict, or not from samples of this width.
    fn predict(
        &mut self,
        weights: Weights<'_>,
        inputs: Inputs<'_>,
        scores: &mut Vec<f32>,
    ) -> Result<(), WorkloadError> {
        let _ = (weights, inputs, scores);
        Err(WorkloadError::of_user("the workload cannot predict"))
    }

    /// All that decides bits beyond the job file: back-end, version, instruction set, threads, and a
    /// digest of the data. Workers of one job must agree on it. Its parts are separated by `; `. In runs that are open
    /// to any kernel class only those that begin with `data ` or `fixed ` must be equal: they say what is trained on.
    fn fingerprint(&self) -> String;
}
