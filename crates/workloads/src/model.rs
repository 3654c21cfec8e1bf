//! Networks as plain functions: each declares its parameters in an order, and its forward pass takes
//! them in the same order.
//!
//! There is no module tree: parameters lie flat in the runtime, so a name, a shape and an initial
//! distribution per tensor ([`Declaration`]) and a cursor over the uploaded tensors ([`Pass`]) are all
//! that is needed.

mod cell;
mod convnet;
mod declaration;
mod loss;
mod mlp;
mod pass;
mod resnet;
mod transformer;

use bellwether_core::InputError;
use bellwether_core::job::Model;
use burn_tensor::Tensor;

pub(crate) use self::declaration::Declaration;
pub(crate) use self::loss::{Losses, cross_entropy};
pub(crate) use self::pass::{Mode, Pass};
use crate::data::Batch;

/// A network that scores classes.
pub(crate) trait Network {
    /// Names, shapes and initial values of parameters and state.
    fn declare(&self) -> Declaration;

    /// Scores before the softmax: one row per target of the batch, one column per class. Takes the
    /// inputs out of the batch and leaves the targets.
    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2>;

    /// Targets per sample, over which a sample's loss is the mean.
    fn positions(&self) -> usize {
        1
    }

    /// Passes over which an evaluation is the mean: several where a pass is one of many paths.
    fn evaluation_parts(&self) -> u64 {
        1
    }
}

/// The network that `model` describes, for samples of shape `image` and `classes` classes.
///
/// # Errors
///
/// Returns an error if the network cannot take samples of this shape.
pub(crate) fn network(
    model: &Model,
    image: [usize; 3],
    classes: usize,
) -> Result<Box<dyn Network>, InputError> {
    Ok(match model {
        Model::Mlp { hidden, dropout } => {
            let features = image.iter().product();
            Box::new(mlp::Mlp { features, hidden: hidden.clone(), classes, dropout: *dropout })
        }
        Model::Convnet { filters, hidden } => {
            Box::new(convnet::Convnet::new(image, *filters, *hidden, classes)?)
        }
        Model::Resnet { blocks, width } => {
            Box::new(resnet::Resnet { image, blocks: *blocks, width: *width, classes })
        }
        Model::Cell(cell) => Box::new(cell::CellNetwork::new(cell, image, classes)?),
        Model::Transformer { context, width, layers, heads, dropout } => Box::new(transformer::Transformer {
            vocabulary: classes,
            context: *context,
            width: *width,
            layers: *layers,
            heads: *heads,
            dropout: *dropout,
        }),
        Model::Custom { name, .. } => return Err(custom(name)),
        Model::Python { .. } => {
            return Err(InputError::new("model.kind", "only its script can build a model in Python"));
        }
        Model::Synthetic { .. } => {
            return Err(InputError::new("model.kind", "the synthetic device is not a network"));
        }
    })
}

/// Only the program that brings a model can build it.
pub(crate) fn custom(name: &str) -> InputError {
    InputError::new("model.kind", format!("`{name}` is a custom model, and this program has only the built-in ones"))
        .hint("train it with a program of your own that uses the library `bellwether` (crates/bellwether/README.md)")
}

#[cfg(test)]
mod tests;
