//! Causal transformer on tokens, such as bytes (Radford et al. 2019): learned positions, normalisation before each
//! branch, GELU, and a head of its own.

use burn_tensor::{Device, Int, Tensor, TensorData, activation, module};

use super::declaration::{Declaration, Initial};
use super::pass::gelu;
use super::{Network, Pass};
use crate::data::Batch;

/// Standard deviation of initial weights, as in GPT-2.
const DEVIATION: f64 = 0.02;
/// Added to scores of later positions: so large that their softmax is exactly zero.
const BLOCKED: f32 = -1e9;

/// Sizes of the network.
#[derive(Debug)]
pub(super) struct Transformer {
    /// Tokens that there are; of a text every byte is one.
    pub(super) vocabulary: usize,
    /// Tokens per sample.
    pub(super) context: usize,
    /// Width of the residual stream.
    pub(super) width: usize,
    /// Number of blocks.
    pub(super) layers: usize,
    /// Attention heads.
    pub(super) heads: usize,
    /// Chance that an activation is dropped after the embedding and after each branch.
    pub(super) dropout: f64,
}

impl Network for Transformer {
    fn declare(&self) -> Declaration {
        let mut declaration = Declaration::default();
        let width = self.width;
        let normal = Initial::Normal(DEVIATION);
        // Branches add up along the residual stream; this keeps its variance independent of the depth.
        let branch = Initial::Normal(DEVIATION / (2.0 * self.layers as f64).sqrt());
        declaration.parameter("embedding.token", &[self.vocabulary, width], normal);
        declaration.parameter("embedding.position", &[self.context, width], normal);
        for layer in 0..self.layers {
            let name = |part: &str| format!("block.{layer}.{part}");
            declaration.norm(&name("attention.norm"), width);
            declaration.linear(&name("attention.input"), [width, 3 * width], normal);
            declaration.linear(&name("attention.output"), [width, width], branch);
            declaration.norm(&name("mlp.norm"), width);
            declaration.linear(&name("mlp.input"), [width, 4 * width], normal);
            declaration.linear(&name("mlp.output"), [4 * width, width], branch);
        }
        declaration.norm("norm", width);
        declaration.linear("output", [width, self.vocabulary], normal);
        declaration
    }

    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2> {
        let (samples, context, width) = (batch.samples, self.context, self.width);
        let tokens = TensorData::new(std::mem::take(&mut batch.tokens), [samples, context]);
        let tokens = Tensor::<2, Int>::from_data(tokens, &Device::flex());
        let table = pass.parameter::<2>();
        let positions = pass.parameter::<2>().unsqueeze::<3>();
        let embedded = module::embedding(table, tokens) + positions;
        // One row per position from here on: all layers but attention act on rows.
        let mut stream = pass.dropout(embedded.reshape([samples * context, width]), self.dropout);
        let mask = self.causal_mask(pass);
        for _ in 0..self.layers {
            let normalised = pass.layer_norm(stream.clone());
            let attended = self.attention(pass, normalised, &mask, samples);
            stream = stream + pass.dropout(attended, self.dropout);
            let normalised = pass.layer_norm(stream.clone());
            let inner = gelu(pass.linear(normalised));
            let outer = pass.linear(inner);
            stream = stream + pass.dropout(outer, self.dropout);
        }
        let normalised = pass.layer_norm(stream);
        pass.linear(normalised)
    }

    fn positions(&self) -> usize {
        self.context
    }
}

impl Transformer {
    /// 0 where a position (row) may look at another (column), and a large negative number elsewhere.
    fn causal_mask(&self, pass: &Pass<'_>) -> Tensor<4> {
        let context = self.context;
        let blocked = |place: usize| if place % context > place / context { BLOCKED } else { 0.0 };
        pass.constant((0..context * context).map(blocked).collect(), [1, 1, context, context])
    }

    /// Multi-head causal attention with its input and output projections.
    fn attention(
        &self,
        pass: &mut Pass<'_>,
        input: Tensor<2>,
        mask: &Tensor<4>,
        samples: usize,
    ) -> Tensor<2> {
        let (context, width, heads) = (self.context, self.width, self.heads);
        let head = width / heads;
        let projected = pass.linear(input).reshape([samples, context, 3, heads, head]);
        let part = |index: usize| {
            let taken = projected.clone().narrow(2, index, 1);
            taken.reshape([samples, context, heads, head]).swap_dims(1, 2)
        };
        let (queries, keys, values) = (part(0), part(1), part(2));
        let scale = 1.0 / (head as f64).sqrt();
        let scores = (queries * scale).matmul(keys.swap_dims(2, 3)) + mask.clone();
        let attended = activation::softmax(scores, 3).matmul(values);
        pass.linear(attended.swap_dims(1, 2).reshape([samples * context, width]))
    }
}
