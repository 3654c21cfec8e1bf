//! Residual network for small images (He et al. 2015, section 4.2): a 3×3 convolution, three stages of
//! basic blocks, global average pooling and a linear layer; batch normalisation after each convolution.
//!
//! Where a stage widens, the shortcut is a 1×1 convolution with stride 2 and batch normalisation.

use burn_tensor::{Tensor, activation};

use super::declaration::{Declaration, Initial};
use super::{Network, Pass};
use crate::data::Batch;

const STAGES: usize = 3;

/// Sizes of the network.
#[derive(Debug)]
pub(super) struct Resnet {
    /// Channels, height and width of a sample.
    pub(super) image: [usize; 3],
    /// Blocks per stage.
    pub(super) blocks: usize,
    /// Channels of the first stage.
    pub(super) width: usize,
    /// Number of classes.
    pub(super) classes: usize,
}

/// A basic block.
struct Block {
    stage: usize,
    index: usize,
    inputs: usize,
    outputs: usize,
}

impl Block {
    fn widens(&self) -> bool {
        self.inputs != self.outputs
    }

    fn stride(&self) -> usize {
        if self.widens() { 2 } else { 1 }
    }
}

impl Resnet {
    fn blocks(&self) -> Vec<Block> {
        let mut inputs = self.width;
        let mut blocks = Vec::new();
        for stage in 0..STAGES {
            for index in 0..self.blocks {
                let outputs = self.width << stage;
                blocks.push(Block { stage, index, inputs, outputs });
                inputs = outputs;
            }
        }
        blocks
    }
}

impl Network for Resnet {
    fn declare(&self) -> Declaration {
        let mut declaration = Declaration::default();
        declaration.convolution("stem.conv", [self.image[0], self.width], 3);
        declaration.batch_norm("stem.norm", self.width);
        for block in self.blocks() {
            let Block { stage, index, inputs, outputs } = block;
            let name = format!("stage.{stage}.{index}");
            declaration.convolution(&format!("{name}.conv.0"), [inputs, outputs], 3);
            declaration.batch_norm(&format!("{name}.norm.0"), outputs);
            declaration.convolution(&format!("{name}.conv.1"), [outputs, outputs], 3);
            declaration.batch_norm(&format!("{name}.norm.1"), outputs);
            if block.widens() {
                declaration.convolution(&format!("{name}.shortcut.conv"), [inputs, outputs], 1);
                declaration.batch_norm(&format!("{name}.shortcut.norm"), outputs);
            }
        }
        let last = self.width << (STAGES - 1);
        declaration.linear("output", [last, self.classes], Initial::xavier(last, self.classes));
        declaration
    }

    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2> {
        let [channels, height, width] = self.image;
        let input =
            pass.constant(std::mem::take(&mut batch.values), [batch.samples, channels, height, width]);
        let stem = pass.convolution(input, 1, 1);
        let mut maps = activation::relu(pass.batch_norm(stem));
        for block in self.blocks() {
            let input = maps.clone();
            maps = pass.convolution(maps, block.stride(), 1);
            maps = activation::relu(pass.batch_norm(maps));
            maps = pass.convolution(maps, 1, 1);
            maps = pass.batch_norm(maps);
            let shortcut = if block.widens() {
                let projected = pass.convolution(input, block.stride(), 0);
                pass.batch_norm(projected)
            } else {
                input
            };
            maps = activation::relu(maps + shortcut);
        }
        let [samples, channels, height, width] = maps.dims();
        let averages = maps.reshape([samples * channels, height * width]).mean_dim(1);
        pass.linear(averages.reshape([samples, channels]))
    }
}
