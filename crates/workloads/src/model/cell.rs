//! A network of cells (the macro-skeleton of NAS-Bench-201), for one architecture and for a supernet that holds many.
//!
//! A 3×3 convolution, stages of equal cells with a residual block of stride 2 before each but the first, normalisation,
//! ReLU, global average pooling and a linear layer. Normalisations have neither scale nor shift. A network with one
//! architecture keeps running statistics, as others do. A supernet keeps none, because those of one path are not those
//! of another: it normalises by the samples at hand in evaluation, too.
//!
//! A supernet computes one path: one operation for each edge, drawn uniformly by the seed of the micro-batch, which is
//! that of (job, step, virtual node). So the paths, and with them the bits, are the same on any workers. Weights beside
//! the path get the gradient zero; momentum and weight decay still move them.

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CellOperation, live_edges};
use burn_tensor::ops::AvgPoolOptions;
use burn_tensor::{Tensor, activation, module};

use super::declaration::{Declaration, Initial};
use super::pass::Mode;
use super::{Network, Pass};
use crate::data::Batch;
use crate::random::Stream;

/// Keys the streams of paths apart from other uses of a seed.
const PATH_PURPOSE: u64 = 3;
/// The seed of the paths on which a supernet is evaluated while it trains: the same at every step.
const EVALUATION_SEED: u64 = 0x7061_7468;
/// Paths over which the evaluation of a supernet is the mean.
const EVALUATION_PATHS: u64 = 4;

/// The network, with its edges resolved.
#[derive(Debug)]
pub(super) struct CellNetwork {
    cell: Cell,
    edges: Vec<Vec<CellOperation>>,
    /// That of a network with one architecture.
    fixed: Option<Vec<CellOperation>>,
    /// Channels, height and width of a sample.
    image: [usize; 3],
    classes: usize,
}

impl CellNetwork {
    /// The network for images of this shape.
    pub(super) fn new(cell: &Cell, image: [usize; 3], classes: usize) -> Result<CellNetwork, InputError> {
        let [channels, height, width] = image;
        if height.min(width) >> (cell.stages - 1) == 0 || cell.channels << (cell.stages - 1) > 1 << 16 {
            let last = cell.stages - 1;
            let what = format!(
                "{} stages halve images of {channels}×{height}×{width} {last} times and end with {} channels",
                cell.stages,
                cell.channels << last
            );
            return Err(InputError::new("model.stages", what).hint("use fewer stages"));
        }
        Ok(CellNetwork { cell: cell.clone(), edges: cell.edges(), fixed: cell.fixed(), image, classes })
    }

    fn channels(&self, stage: usize) -> usize {
        self.cell.channels << stage
    }

    /// Declares the normalisation that follows a convolution.
    fn declare_norm(&self, declaration: &mut Declaration, name: &str, channels: usize) {
        if self.fixed.is_some() {
            declaration.running_statistics(name, channels);
        }
    }

    fn norm(&self, pass: &mut Pass<'_>, input: Tensor<4>) -> Tensor<4> {
        pass.plain_norm(input, self.fixed.is_some())
    }

    /// One operation for each edge.
    fn path(&self, pass: &Pass<'_>) -> Vec<CellOperation> {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let stream = match (pass.path(), pass.mode()) {
            (Some(path), _) => return path.to_vec(),
            (None, Mode::Training { seed }) => Stream::new(seed, PATH_PURPOSE),
            (None, Mode::Inference { part }) => Stream::new(EVALUATION_SEED, PATH_PURPOSE).child(part),
        };
        draw(&self.edges, stream)
    }

    fn stage(
        &self,
        pass: &mut Pass<'_>,
        mut maps: Tensor<4>,
        stage: usize,
        path: &[CellOperation],
    ) -> Tensor<4> {
        if stage > 0 {
            let halved = pass.convolution(activation::relu(maps.clone()), 2, 1);
            let halved = self.norm(pass, halved);
            let halved = pass.convolution(activation::relu(halved), 1, 1);
            let halved = self.norm(pass, halved);
            let shortcut = pass.convolution(maps, 2, 0);
            maps = halved + self.norm(pass, shortcut);
        }
        for _ in 0..self.cell.cells {
            maps = self.cell(pass, maps, path);
        }
        maps
    }

    /// One cell. Nothing is computed for edges that do not decide its output.
    fn cell(&self, pass: &mut Pass<'_>, input: Tensor<4>, path: &[CellOperation]) -> Tensor<4> {
        let live = live_edges(path);
        let shape = input.dims();
        let mut nodes: Vec<Option<Tensor<4>>> = vec![Some(input)];
        for first in (1..self.cell.nodes).map(|target| target * (target - 1) / 2) {
            let mut sum: Option<Tensor<4>> = None;
            for (source, node) in nodes.iter().enumerate() {
                let edge = first + source;
                let chosen = live[edge].then_some(path[edge]);
                let from = node.clone().filter(|_| chosen.is_some());
                let Some(through) = self.edge(pass, edge, chosen, from) else { continue };
                sum = Some(match sum {
                    Some(sum) => sum + through,
                    None => through,
                });
            }
            nodes.push(sum);
        }
        let output = nodes.pop().flatten();
        output.unwrap_or_else(|| pass.constant(vec![0.0; shape.iter().product()], shape))
    }

    /// What comes through an edge; takes the weights of all its operations from the pass.
    fn edge(
        &self,
        pass: &mut Pass<'_>,
        edge: usize,
        chosen: Option<CellOperation>,
        mut from: Option<Tensor<4>>,
    ) -> Option<Tensor<4>> {
        let mut through = None;
        for operation in &self.edges[edge] {
            let taken = if chosen == Some(*operation) { from.take() } else { None };
            through = match (operation.kernel(), taken) {
                (None, None) => through,
                (Some(_), None) => {
                    pass.pass_over(self.fixed.is_some());
                    through
                }
                (Some(kernel), Some(maps)) => {
                    let maps = pass.convolution(activation::relu(maps), 1, kernel / 2);
                    Some(self.norm(pass, maps))
                }
                (None, Some(maps)) if *operation == CellOperation::AvgPool3x3 => Some(average(maps)),
                (None, Some(maps)) => Some(maps),
            };
        }
        through
    }
}

/// One operation of each edge, uniformly.
fn draw(edges: &[Vec<CellOperation>], stream: Stream) -> Vec<CellOperation> {
    let pick = |(place, edge): (usize, &Vec<CellOperation>)| edge[stream.below(place as u64, edge.len())];
    edges.iter().enumerate().map(pick).collect()
}

/// The mean over 3×3 pixels, as many as lie within the image.
fn average(maps: Tensor<4>) -> Tensor<4> {
    let options = AvgPoolOptions::new([3; 2]).with_stride([1; 2]).with_padding([1; 2]);
    module::avg_pool2d(maps, options.with_count_include_pad(false))
}

impl Network for CellNetwork {
    fn declare(&self) -> Declaration {
        let mut declaration = Declaration::default();
        declaration.convolution("stem.conv", [self.image[0], self.cell.channels], 3);
        self.declare_norm(&mut declaration, "stem.norm", self.cell.channels);
        for stage in 0..self.cell.stages {
            let channels = self.channels(stage);
            if stage > 0 {
                let before = self.channels(stage - 1);
                for (part, [inputs, outputs], kernel) in [
                    ("0", [before, channels], 3),
                    ("1", [channels; 2], 3),
                    ("shortcut", [before, channels], 1),
                ] {
                    let name = format!("reduction.{stage}.{part}");
                    declaration.convolution(&format!("{name}.conv"), [inputs, outputs], kernel);
                    self.declare_norm(&mut declaration, &format!("{name}.norm"), outputs);
                }
            }
            for cell in 0..self.cell.cells {
                for (edge, operations) in self.edges.iter().enumerate() {
                    for operation in operations {
                        let Some(kernel) = operation.kernel() else { continue };
                        let name = format!("stage.{stage}.cell.{cell}.edge.{edge}.{}", operation.name());
                        declaration.convolution(&name, [channels; 2], kernel);
                        self.declare_norm(&mut declaration, &name, channels);
                    }
                }
            }
        }
        let last = self.channels(self.cell.stages - 1);
        self.declare_norm(&mut declaration, "last.norm", last);
        declaration.linear("output", [last, self.classes], Initial::xavier(last, self.classes));
        declaration
    }

    fn logits(&self, pass: &mut Pass<'_>, batch: &mut Batch) -> Tensor<2> {
        let [channels, height, width] = self.image;
        let path = self.path(pass);
        let values = std::mem::take(&mut batch.values);
        let input = pass.constant(values, [batch.samples, channels, height, width]);
        let stem = pass.convolution(input, 1, 1);
        let mut maps = self.norm(pass, stem);
        for stage in 0..self.cell.stages {
            maps = self.stage(pass, maps, stage, &path);
        }
        let normalised = self.norm(pass, maps);
        let [samples, channels, height, width] = normalised.dims();
        let averages = activation::relu(normalised).reshape([samples * channels, height * width]).mean_dim(1);
        pass.linear(averages.reshape([samples, channels]))
    }

    fn evaluation_parts(&self) -> u64 {
        if self.fixed.is_some() { 1 } else { EVALUATION_PATHS }
    }
}
