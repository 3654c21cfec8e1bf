//! Two 5×5 convolutions with ReLU and 2×2 max-pooling, then three fully connected layers: the shape of
//! LeNet-5 (LeCun et al. 1998), with today's activations.

use bellwether_core::InputError;
use burn_tensor::ops::MaxPoolOptions;
use burn_tensor::{Tensor, activation, module};

use super::declaration::{Declaration, Initial};
use super::{Network, Pass};
use crate::data::Batch;

const KERNEL: usize = 5;
const FIRST_PADDING: usize = 2;
/// Below this size after the first pooling, an unpadded convolution would leave next to nothing.
const SMALL_PIXELS: usize = 12;

/// Sizes of the network.
#[derive(Debug)]
pub(super) struct Convnet {
    image: [usize; 3],
    filters: [usize; 2],
    hidden: [usize; 2],
    classes: usize,
    second_padding: usize,
    /// Values after the second pooling.
    flat: usize,
}

impl Convnet {
    /// The network for images of this shape.
    pub(super) fn new(
        image: [usize; 3],
        filters: [usize; 2],
        hidden: [usize; 2],
        classes: usize,
    ) -> Result<Self, InputError> {
        let [_, height, width] = image;
        if height.min(width) < 4 {
            return Err(InputError::new(
                "model.kind",
                format!("the convnet pools twice and cannot take images of {height}×{width}"),
            )
            .hint("use images of 4×4 or more, or the mlp"));
        }
        let second_padding = if height.min(width) / 2 < SMALL_PIXELS { 2 } else { 0 };
        let size = |pixels: usize| (pixels / 2 + 2 * second_padding + 1 - KERNEL) / 2;
        let flat = filters[1] * size(height) * size(width);
        Ok(Convnet { image, filters, hidden, classes, second_padding, flat })
    }
}

impl Network for Convnet {
    fn declare(&self) -> Declaration {
        let mut declaration = Declaration::default();
        let [first, second] = self.filters;
        for (name, inputs, outputs) in [("conv.0", self.image[0], first), ("conv.1", first, second)] {
            declaration.convolution(name, [inputs, outputs], KERNEL);
            declaration.parameter(format!("{name}.bias"), &[outputs], Initial::Constant(0.0));
        }
        let [first, second] = self.hidden;
        declaration.linear("hidden.0", [self.flat, first], Initial::kaiming(self.flat));
        declaration.linear("hidden.1", [first, second], Initial::kaiming(first));
        declaration.linear("output", [second, self.classes], Initial::xavier(second, self.classes));
        declaration
    }

    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2> {
        let [channels, height, width] = self.image;
        let mut maps =
            pass.constant(std::mem::take(&mut batch.values), [batch.samples, channels, height, width]);
        for padding in [FIRST_PADDING, self.second_padding] {
            maps = halve(activation::relu(pass.biased_convolution(maps, padding)));
        }
        let mut activations = maps.reshape([batch.samples, self.flat]);
        for _ in self.hidden {
            activations = activation::relu(pass.linear(activations));
        }
        pass.linear(activations)
    }
}

/// 2×2 max-pooling.
fn halve(maps: Tensor<4>) -> Tensor<4> {
    module::max_pool2d(maps, MaxPoolOptions::new([2; 2]))
}
