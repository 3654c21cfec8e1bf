//! The job file: what is trained, on what, how, and by how many workers.
//!
//! [`Job`] is what a user writes in TOML, and any code may change it. [`Job::check`] makes a [`CheckedJob`] of it,
//! which is what is trained: later stages need not ask again whether a batch divides or a rate is finite.
//!
//! What a job may ask for in which training mode is one table ([`TrainingMode`], [`Feature`]).
//!
//! The part of a job that decides bits (everything but `name`, `workers`, `checkpoint`, and `evaluation` unless `stop`
//! decides by it) is the job's identity, see [`Job::identity`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Seconds};

mod cell;
mod check;
mod checked;
mod checkpoint;
mod csv;
mod custom;
mod data;
mod ensure;
mod exchange;
mod identity;
mod mode;
mod optimizer;
mod order;
mod python;
mod sharding;
mod shards;
mod stages;
mod stop;
mod support;
mod sync;
mod verify;
mod workers;

pub use cell::{Cell, CellEdges, CellOperation, architecture_text, edge_ends, live_edges};
pub use checked::CheckedJob;
pub use checkpoint::{Checkpoint, CheckpointUrl};
pub use csv::{Normalise, Separator};
pub use custom::CustomOptions;
pub use data::{Data, TokenWidth};
pub use exchange::{Exchange, Precision};
pub use mode::{Goodput, Mode, RateRule};
pub use optimizer::{Optimizer, SCHEDULE_TABLE_MAX, Schedule};
pub use order::BlockOrder;
pub use python::Device;
pub use sharding::Sharding;
pub use shards::Shards;
pub use stop::{HeldOut, Metric, Plateau, Stop, StopLimit};
pub use support::{Feature, Support, TrainingMode};
pub use sync::{AsyncMomentum, AsyncRateScaling, Order, Reduce, StragglerPolicy, Sync, SyncPolicy};
pub use verify::OnMismatch;
pub use workers::WorkerRange;

/// A training job, as its author describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name of the job: letters, digits, `-`, `_` and `.`; a run's folder is named after it.
    pub name: String,
    /// What may change while the job is trained: `"exact"` (nothing, the default), `"mixed"` (the kernels of its
    /// workers) or the table `[mode.goodput]`.
    #[serde(default)]
    pub mode: Mode,
    /// Seed of everything random: initial parameters, sample order, dropout.
    #[serde(default)]
    pub seed: u64,
    /// Number of workers, or a range `"min..max"` within which it may be chosen.
    #[serde(default)]
    pub workers: WorkerRange,
    /// Passes over the training set; exactly one of `epochs` and `steps` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Optimizer steps; exactly one of `epochs` and `steps` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// A checkpoint of another run that training begins with, instead of weights that follow from the seed. Tensors are
    /// taken by their names, so that the model may be the same or a part of it. Its content must not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_weights: Option<PathBuf>,
    /// Steps between two checks for silent corruption; 0 checks nothing. In each such step another worker computes one
    /// virtual node again, and the bytes are compared before anything is applied.
    #[serde(default, skip_serializing_if = "is_never")]
    pub verify_every: u64,
    /// What follows when two workers computed a virtual node differently: `"stop"` (the default) or `"quarantine"`.
    #[serde(default, skip_serializing_if = "OnMismatch::is_stop")]
    pub on_mismatch: OnMismatch,
    /// The network.
    pub model: Model,
    /// The training and held-out samples.
    pub data: Data,
    /// The global batch and its cut into virtual nodes.
    pub batch: Batch,
    /// The update rule.
    pub optimizer: Optimizer,
    /// How the learning rate moves over the run.
    #[serde(default)]
    pub schedule: Schedule,
    /// Which workers wait for which: none goes ahead of the others unless this table says so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sync: Sync,
    /// How gradients travel between workers.
    #[serde(default, skip_serializing_if = "Exchange::is_default")]
    pub exchange: Exchange,
    /// Given where the workers share the optimizer's state, instead of each holding the whole. It decides no bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<Sharding>,
    /// When the held-out set is evaluated.
    #[serde(default)]
    pub evaluation: Evaluation,
    /// When and where checkpoints are written.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// When the workers wait for a verdict on whether the run goes on.
    #[serde(default, skip_serializing_if = "Verdict::is_never")]
    pub verdict: Verdict,
    /// When the run ends before its last step: by held-out results, time or money.
    #[serde(default, skip_serializing_if = "Stop::is_never")]
    pub stop: Stop,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_never(steps: &u64) -> bool {
    *steps == 0
}

fn is_default(sync: &Sync) -> bool {
    *sync == Sync::default()
}

/// The network to train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Model {
    /// Fully connected layers with ReLU between them.
    Mlp {
        /// Width of each hidden layer, first to last.
        hidden: Vec<usize>,
        /// Chance that a hidden activation is dropped in training, 0…1.
        #[serde(default)]
        dropout: f64,
    },
    /// Two 5×5 convolutions with max-pooling, then three fully connected layers (LeNet-5 shape).
    Convnet {
        /// Filters of the two convolutions.
        #[serde(default = "convnet_filters")]
        filters: [usize; 2],
        /// Widths of the two hidden fully connected layers.
        #[serde(default = "convnet_hidden")]
        hidden: [usize; 2],
    },
    /// Residual network with batch normalisation: three stages of `blocks` basic blocks.
    Resnet {
        /// Basic blocks per stage: 3 gives ResNet-20.
        #[serde(default = "resnet_blocks")]
        blocks: usize,
        /// Channels of the first stage; each further stage doubles them.
        #[serde(default = "resnet_width")]
        width: usize,
    },
    /// Cells of edges that hold an operation each (NAS-Bench-201), or lists of operations: a supernet.
    Cell(Cell),
    /// Causal transformer on bytes (pre-LayerNorm, learned positions, GELU).
    Transformer {
        /// Bytes of context per sample.
        context: usize,
        /// Width of the residual stream.
        width: usize,
        /// Number of blocks.
        layers: usize,
        /// Attention heads; must divide `width`.
        heads: usize,
        /// Chance that an activation is dropped in training, 0…1.
        #[serde(default)]
        dropout: f64,
    },
    /// A model of one's own: a program that uses the library brings it, and the command does not train it.
    Custom {
        /// What it is called: letters, digits, `-`, `_` and `.`.
        name: String,
        /// What the program that trains it wants to know.
        #[serde(default, skip_serializing_if = "CustomOptions::is_empty")]
        options: CustomOptions,
    },
    /// A model of one's own, which a Python script trains with PyTorch, JAX or Keras. `bellwether run SCRIPT.py` fills
    /// this table from what the script says.
    Python {
        /// The script that every worker runs.
        script: PathBuf,
        /// What the script finds in `sys.argv` after its name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<String>,
        /// The interpreter; without it the one that `bellwether` was installed beside, or `python3`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        python: Option<PathBuf>,
        /// Digest of the script's text; the command fills it in for pods, which have the script where this machine does
        /// not. By it a profile is known to be one of this job.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
        /// Where a worker computes: `"cpu"` (the default) or `"cuda"`.
        #[serde(default, skip_serializing_if = "Device::is_cpu")]
        device: Device,
        /// Threads with which a worker computes; their number decides bits.
        #[serde(default = "one_thread")]
        threads: u32,
        /// Digest of the names and shapes of all tensors; the script's workers and the run must agree on it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        layout: String,
        /// Values of all these tensors; the command fills them in.
        #[serde(default, skip_serializing_if = "is_zero_values")]
        values: u64,
        /// How long each stage of a worker's start may take (the script until it says what it trains, the model, the
        /// first gradients), after which another worker is started; without it 10 minutes, and 15 for the gradients.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage_allowance: Option<Seconds>,
        /// Variables that its processes start with: those that choose a back-end or its kernels, and `PYTHONPATH`. The
        /// command fills in which of them are set where the script declares its job.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        environment: BTreeMap<String, String>,
    },
    /// No network: a device that sleeps and fills gradients, to try shapes and speeds that this machine lacks.
    Synthetic {
        /// Time that one micro-batch takes on a saturated device.
        step_time: Seconds,
        /// Relative spread of that time (standard deviation of its logarithm).
        #[serde(default)]
        spread: f64,
        /// Bytes of parameters.
        parameters: Bytes,
        /// Samples that saturate the device: a smaller micro-batch takes as long as this many samples,
        /// a larger one takes proportionally longer. 0 makes the time independent of the samples.
        #[serde(default)]
        saturation: usize,
        /// Layers of equal size: each is a tensor of its own, needed when its forward pass begins and done when its
        /// backward pass ends.
        #[serde(default = "one_layer", skip_serializing_if = "is_one")]
        layers: u32,
    },
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_values(values: &u64) -> bool {
    *values == 0
}
fn one_thread() -> u32 {
    1
}
fn one_layer() -> u32 {
    1
}
fn is_one(layers: &u32) -> bool {
    *layers == 1
}
fn convnet_filters() -> [usize; 2] {
    [6, 16]
}
fn convnet_hidden() -> [usize; 2] {
    [120, 84]
}
fn resnet_blocks() -> usize {
    3
}
fn resnet_width() -> usize {
    16
}

/// The global batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Samples per optimizer step, over all workers.
    pub size: u64,
    /// Virtual nodes: equal parts of the batch, each computed by one worker. They are part of the
    /// job's identity; workers may never be more than this.
    pub virtual_nodes: u32,
}

/// When the held-out set is evaluated. The end of the run always evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Steps between evaluations; 0 evaluates at the end only.
    #[serde(default)]
    pub every_steps: u64,
}

/// When the workers wait for a verdict on whether the run goes on. A script asks for it that steers its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Steps between two boundaries at which all workers wait, with the checkpoint of that step written, until the
    /// script says whether training goes on or ends there; 0 never waits.
    #[serde(default)]
    pub every_steps: u64,
}

impl Verdict {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_never(&self) -> bool {
        self.every_steps == 0
    }
}

impl Job {
    /// Optimizer steps of the whole run when an epoch has `samples` training samples.
    pub fn total_steps(&self, samples: u64) -> u64 {
        match (self.steps, self.epochs) {
            (Some(steps), _) => steps,
            (None, Some(epochs)) => epochs.saturating_mul(samples.div_ceil(self.batch.size)),
            (None, None) => 0,
        }
    }

    /// The JSON schema of the job file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Job).to_value()
    }

    /// Every path in the job, so that the command line can resolve or copy them.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let mut paths = self.data.paths_mut();
        if let Model::Python { script, python, .. } = &mut self.model {
            paths.push(script);
            // A bare name is looked up as a shell does.
            paths.extend(python.as_mut().filter(|python| python.components().count() > 1));
        }
        paths.extend(self.initial_weights.as_mut());
        paths.extend(self.checkpoint.folder.as_mut());
        paths.extend(self.checkpoint.url.as_mut().and_then(CheckpointUrl::folder_mut));
        paths
    }
}
