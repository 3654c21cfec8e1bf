//! One forward pass: hands out parameters and state in declaration order, and holds the layers that
//! the networks share.

use bellwether_core::job::CellOperation;
use bellwether_runtime::workload::Layout;
use burn_tensor::module;
use burn_tensor::ops::ConvOptions;
use burn_tensor::{Device, Tensor, TensorData, activation};

use crate::random::Stream;

/// Keys the streams of dropout masks apart from other uses of a seed.
const DROPOUT_PURPOSE: u64 = 2;
/// Added to a variance before its square root is taken.
const EPSILON: f64 = 1e-5;
/// Share of the batch's statistics in the new running statistics.
const MOMENTUM: f32 = 0.1;

/// What the pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Gradients: batch statistics, dropout drawn from the seed.
    Training {
        /// Source of all dropout masks of the pass.
        seed: u64,
    },
    /// Evaluation: running statistics, no dropout.
    Inference {
        /// Chooses the path of a supernet, where none is given.
        part: u64,
    },
}

/// A cursor over parameters and state during one forward pass.
pub(crate) struct Pass<'a> {
    layout: &'a Layout,
    parameters: &'a [Tensor<1>],
    state_in: &'a [f32],
    /// As long as `state_in`; written in training only.
    state_out: &'a mut [f32],
    mode: Mode,
    path: Option<&'a [CellOperation]>,
    next_parameter: usize,
    next_state: usize,
    next_mask: u64,
}

impl<'a> Pass<'a> {
    /// Starts a pass. `parameters` holds one flat tensor per entry of the layout.
    pub(crate) fn new(
        layout: &'a Layout,
        parameters: &'a [Tensor<1>],
        state_in: &'a [f32],
        state_out: &'a mut [f32],
        mode: Mode,
    ) -> Self {
        let (next_parameter, next_state, next_mask, path) = (0, 0, 0, None);
        Pass { layout, parameters, state_in, state_out, mode, path, next_parameter, next_state, next_mask }
    }

    /// The same along one path of a supernet: an operation for each edge.
    pub(crate) fn along(self, path: Option<&'a [CellOperation]>) -> Self {
        Pass { path, ..self }
    }

    /// The path that was given.
    pub(crate) fn path(&self) -> Option<&'a [CellOperation]> {
        self.path
    }

    /// What the pass is for.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// A tensor of constants: no gradient flows into it.
    pub(crate) fn constant<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    /// The next parameter, in its declared shape.
    ///
    /// # Panics
    ///
    /// When the forward pass takes parameters in another order or number than it declared.
    pub(crate) fn parameter<const D: usize>(&mut self) -> Tensor<D> {
        let index = self.next_parameter;
        self.next_parameter += 1;
        let declared = &self.layout.parameters[index];
        let shape: [usize; D] =
            declared.shape.as_slice().try_into().expect("a pass takes parameters as it declared them");
        self.parameters[index].clone().reshape(shape)
    }

    /// A fully connected layer with bias.
    pub(crate) fn linear(&mut self, input: Tensor<2>) -> Tensor<2> {
        let weight = self.parameter();
        let bias = self.parameter();
        module::linear(input, weight, Some(bias))
    }

    /// A convolution without bias.
    pub(crate) fn convolution(&mut self, input: Tensor<4>, stride: usize, padding: usize) -> Tensor<4> {
        let weight = self.parameter();
        module::conv2d(input, weight, None, ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1))
    }

    /// A convolution with bias and stride 1.
    pub(crate) fn biased_convolution(&mut self, input: Tensor<4>, padding: usize) -> Tensor<4> {
        let weight = self.parameter();
        let bias = self.parameter();
        module::conv2d(input, weight, Some(bias), ConvOptions::new([1; 2], [padding; 2], [1; 2], 1))
    }

    /// Layer normalisation over the last dimension.
    pub(crate) fn layer_norm(&mut self, input: Tensor<2>) -> Tensor<2> {
        let scale = self.parameter();
        let shift = self.parameter();
        module::layer_norm(input, scale, Some(shift), EPSILON)
    }

    /// Batch normalisation over all but the second dimension.
    ///
    /// In training it normalises by the micro-batch's statistics and writes the running statistics
    /// that this micro-batch alone would leave.
    pub(crate) fn batch_norm(&mut self, input: Tensor<4>) -> Tensor<4> {
        let scale = self.parameter();
        let shift = self.parameter();
        self.normalise(input, scale, shift)
    }

    /// Batch normalisation without scale and shift; without running statistics, too, unless it keeps them.
    pub(crate) fn plain_norm(&mut self, input: Tensor<4>, keeps: bool) -> Tensor<4> {
        let channels = input.dims()[1];
        let scale = self.constant(vec![1.0; channels], [channels]);
        let shift = self.constant(vec![0.0; channels], [channels]);
        match keeps {
            true => self.normalise(input, scale, shift),
            false => module::batch_norm_train(input, scale, shift, EPSILON).output,
        }
    }

    /// Leaves out a convolution and the plain normalisation that follows it.
    pub(crate) fn pass_over(&mut self, keeps: bool) {
        let channels = self.layout.parameters[self.next_parameter].shape[0];
        self.next_parameter += 1;
        if !keeps {
            return;
        }
        let skipped = self.next_state..self.next_state + 2 * channels;
        self.next_state = skipped.end;
        if matches!(self.mode, Mode::Training { .. }) {
            self.state_out[skipped.clone()].copy_from_slice(&self.state_in[skipped]);
        }
    }

    fn normalise(&mut self, input: Tensor<4>, scale: Tensor<1>, shift: Tensor<1>) -> Tensor<4> {
        let [samples, channels, height, width] = input.dims();
        let means = self.next_state..self.next_state + channels;
        let variances = means.end..means.end + channels;
        self.next_state = variances.end;
        if matches!(self.mode, Mode::Inference { .. }) {
            let mean = self.constant(self.state_in[means].to_vec(), [channels]);
            let variance = self.constant(self.state_in[variances].to_vec(), [channels]);
            return module::batch_norm(input, scale, shift, mean, variance, EPSILON);
        }
        let normalised = module::batch_norm_train(input, scale, shift, EPSILON);
        let count = (samples * height * width) as f32;
        // The unbiased estimate; of a single value there is none, so that the biased one stands in.
        let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let statistics = [(means, normalised.mean, 1.0), (variances, normalised.variance, correction)];
        for (range, statistic, factor) in statistics {
            let values = statistic.into_data();
            let values = values.as_slice::<f32>().expect("the back-end computes in f32");
            for (place, value) in range.zip(values) {
                self.state_out[place] = (1.0 - MOMENTUM) * self.state_in[place] + MOMENTUM * (factor * value);
            }
        }
        normalised.output
    }

    /// Drops values with chance `chance` and scales up the others; nothing in evaluation.
    pub(crate) fn dropout<const D: usize>(&mut self, input: Tensor<D>, chance: f64) -> Tensor<D> {
        let Mode::Training { seed } = self.mode else { return input };
        if chance <= 0.0 {
            return input;
        }
        let shape = input.dims();
        let stream = Stream::new(seed, DROPOUT_PURPOSE).child(self.next_mask);
        self.next_mask += 1;
        let mask = dropout_mask(stream, chance, shape.iter().product());
        let mask = self.constant(mask, shape);
        input * mask
    }
}

/// Factors of a dropout: 0 with chance `chance`, else what keeps the mean.
pub(super) fn dropout_mask(stream: Stream, chance: f64, len: usize) -> Vec<f32> {
    let keep = (1.0 / (1.0 - chance)) as f32;
    (0..len as u64).map(|place| if stream.unit(place) < chance { 0.0 } else { keep }).collect()
}

/// GELU in its tanh form, written as x·sigmoid(2u) with 2u = x·(c₁ + c₂x²): the same function, with one
/// exponential instead of a power and a hyperbolic tangent.
pub(super) fn gelu<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    // 2·√(2/π), and that times 0.044715.
    const LINEAR: f32 = 1.595_769_2;
    const CUBIC: f32 = 0.071_354_814;
    let square = input.clone() * input.clone();
    let twice = input.clone() * (square * CUBIC + LINEAR);
    input * activation::sigmoid(twice)
}
