//! Fully connected layers with ReLU between them.

use burn_tensor::{Tensor, activation};

use super::declaration::{Declaration, Initial};
use super::{Network, Pass};
use crate::data::Batch;

/// Sizes of the network.
#[derive(Debug)]
pub(super) struct Mlp {
    /// Values per sample.
    pub(super) features: usize,
    /// Widths of the hidden layers.
    pub(super) hidden: Vec<usize>,
    /// Number of classes.
    pub(super) classes: usize,
    /// Chance that a hidden activation is dropped.
    pub(super) dropout: f64,
}

impl Network for Mlp {
    fn declare(&self) -> Declaration {
        let mut declaration = Declaration::default();
        let mut inputs = self.features;
        for (index, width) in self.hidden.iter().enumerate() {
            declaration.linear(&format!("hidden.{index}"), [inputs, *width], Initial::kaiming(inputs));
            inputs = *width;
        }
        declaration.linear("output", [inputs, self.classes], Initial::xavier(inputs, self.classes));
        declaration
    }

    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2> {
        let mut activations =
            pass.constant(std::mem::take(&mut batch.values), [batch.samples, self.features]);
        for _ in &self.hidden {
            activations = activation::relu(pass.linear(activations));
            activations = pass.dropout(activations, self.dropout);
        }
        pass.linear(activations)
    }
}
