//! What a network declares: its parameters and state, in order, with their initial values.

use bellwether_runtime::workload::{Layout, Tensor};

use crate::random::Stream;

/// Keys the streams of initial values apart from other uses of a seed.
const INITIAL_PURPOSE: u64 = 1;

/// Distribution of a tensor's initial values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Initial {
    /// All the same.
    Constant(f32),
    /// Uniform on ±bound.
    Uniform(f32),
    /// Normal with this standard deviation.
    Normal(f64),
}

impl Initial {
    /// Kaiming (He) uniform: keeps the variance through layers that a ReLU follows.
    pub(crate) fn kaiming(inputs: usize) -> Self {
        // A square root is correctly rounded, so that the bound has the same bits everywhere.
        Initial::Uniform((6.0 / inputs as f64).sqrt() as f32)
    }

    /// Xavier (Glorot) uniform: for layers that nothing or a saturating function follows.
    pub(crate) fn xavier(inputs: usize, outputs: usize) -> Self {
        Initial::Uniform((6.0 / (inputs + outputs) as f64).sqrt() as f32)
    }

    fn fill(self, stream: Stream, values: &mut [f32]) {
        let draw = |place: usize| match self {
            Initial::Constant(value) => value,
            Initial::Uniform(bound) => bound * stream.signed_unit(place as u64),
            Initial::Normal(deviation) => (deviation * stream.normal(place as u64)) as f32,
        };
        values.iter_mut().enumerate().for_each(|(place, value)| *value = draw(place));
    }
}

/// Parameters and state of a network, in the order in which its forward pass takes them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declaration {
    layout: Layout,
    parameters: Vec<Initial>,
    state: Vec<Initial>,
}

impl Declaration {
    /// Names and shapes.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds a parameter.
    pub(crate) fn parameter(&mut self, name: impl Into<String>, shape: &[usize], initial: Initial) {
        self.layout.parameters.push(Tensor { name: name.into(), shape: shape.to_vec() });
        self.parameters.push(initial);
    }

    /// Weight and bias of a fully connected layer; the bias starts at zero.
    pub(crate) fn linear(&mut self, name: &str, [inputs, outputs]: [usize; 2], initial: Initial) {
        self.parameter(format!("{name}.weight"), &[inputs, outputs], initial);
        self.parameter(format!("{name}.bias"), &[outputs], Initial::Constant(0.0));
    }

    /// Weight of a convolution with a square kernel, Kaiming uniform.
    pub(crate) fn convolution(&mut self, name: &str, [inputs, outputs]: [usize; 2], kernel: usize) {
        let initial = Initial::kaiming(inputs * kernel * kernel);
        self.parameter(format!("{name}.weight"), &[outputs, inputs, kernel, kernel], initial);
    }

    /// Scale and shift of a normalisation.
    pub(crate) fn norm(&mut self, name: &str, width: usize) {
        self.parameter(format!("{name}.scale"), &[width], Initial::Constant(1.0));
        self.parameter(format!("{name}.shift"), &[width], Initial::Constant(0.0));
    }

    /// A batch normalisation: scale and shift, and the running statistics as state.
    pub(crate) fn batch_norm(&mut self, name: &str, channels: usize) {
        self.norm(name, channels);
        self.running_statistics(name, channels);
    }

    /// The state of a batch normalisation, which may have neither scale nor shift.
    pub(crate) fn running_statistics(&mut self, name: &str, channels: usize) {
        for (statistic, start) in [("running_mean", 0.0), ("running_variance", 1.0)] {
            self.layout.state.push(Tensor { name: format!("{name}.{statistic}"), shape: vec![channels] });
            self.state.push(Initial::Constant(start));
        }
    }

    /// Writes the initial values under `seed`.
    pub(crate) fn initialize(&self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        let stream = Stream::new(seed, INITIAL_PURPOSE);
        let all = [
            (&self.layout.parameters, &self.parameters, parameters),
            (&self.layout.state, &self.state, state),
        ];
        for (tensors, initials, mut rest) in all {
            for (index, (tensor, initial)) in tensors.iter().zip(initials).enumerate() {
                let (values, after) = rest.split_at_mut(tensor.len());
                initial.fill(stream.child(index as u64), values);
                rest = after;
            }
        }
    }
}
