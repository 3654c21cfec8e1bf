//! Where the samples of a job come from.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BlockOrder, CustomOptions, Normalise, Separator, Shards};

/// How a token is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenWidth {
    /// A byte.
    U8,
    /// Two bytes, the lower one first.
    #[default]
    U16,
    /// Four bytes, the lowest one first.
    U32,
}

impl TokenWidth {
    /// Bytes of a token.
    pub fn bytes(self) -> usize {
        match self {
            TokenWidth::U8 => 1,
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }
}

/// Where samples come from. Relative paths start at the job file's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Data {
    /// The 1,797 handwritten digits of 8×8 pixels that ship with the program.
    Digits {
        /// Share of the samples held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// MNIST-like IDX files, plain or gzip-compressed.
    Idx {
        /// IDX3 file of training images, or several.
        images: Shards,
        /// IDX1 file of training labels, or one for each file of images, in the same order.
        labels: Shards,
        /// IDX3 file of held-out images, or several; without it a share of the training images is held out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_images: Option<Shards>,
        /// IDX1 file of held-out labels, or several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_labels: Option<Shards>,
        /// Share of the samples held out when no test files are given, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// CIFAR-10 binary batches.
    Cifar10 {
        /// Training batches (`data_batch_1.bin` …).
        files: Vec<PathBuf>,
        /// Held-out batches; without them a share of the training images is held out.
        #[serde(default)]
        test_files: Vec<PathBuf>,
        /// Share of the samples held out when no test files are given, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Numbers between separators, and a column of class labels (0, 1, 2 …, or names).
    Csv {
        /// The file, plain or gzip-compressed, or several that follow each other.
        path: Shards,
        /// Whether the first line names the columns.
        #[serde(default)]
        header: bool,
        /// What stands between two fields: `","`, `";"`, `"\t"` or `"|"`; without it the first line tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        separator: Option<Separator>,
        /// The column of the labels: its name in the first line, or its number from 1; the last one without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The names of the classes in the order of their numbers, where labels are words; empty where they are
        /// numbers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        classes: Vec<String>,
        /// Factor on every feature, for example 0.0625 for pixels 0…16.
        #[serde(default = "unit_scale")]
        scale: f32,
        /// How features are brought to one size: `"none"` (the default), `"standard"` (mean 0, deviation 1) or
        /// `"range"` (0…1), by what the training samples hold.
        #[serde(default, skip_serializing_if = "Normalise::is_none")]
        normalise: Normalise,
        /// Share of the samples held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// A text, cut into windows of the model's context, for the transformer.
    Text {
        /// The file, or several that follow each other.
        path: Shards,
        /// Share of the text (its end) held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Numbers of tokens, flat in files, cut into windows of the model's context, for the transformer.
    Tokens {
        /// The file, or several that follow each other.
        path: Shards,
        /// How a token is written: `"u8"`, `"u16"` (the default) or `"u32"`, little-endian.
        #[serde(default)]
        token: TokenWidth,
        /// Tokens that there are: each is below this number.
        vocabulary: u32,
        /// Share of the tokens (the end) held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Tar archives of records: members that follow each other and are called alike but for their ends, an image and a
    /// class.
    Records {
        /// The archive, or several that follow each other.
        path: Shards,
        /// Channels, height and width of an image that is stored as bare bytes (`.bin`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<[usize; 3]>,
        /// Share of the samples held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// Whether samples are read from the files when they are needed, and not kept in memory; without it that is
        /// so where the files have more than 1 GiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        streamed: Option<bool>,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Inputs drawn at random and labelled by a random network: a task of any size without a file.
    Teacher {
        /// Number of samples, before the held-out ones are taken out.
        samples: u64,
        /// Input features; a square number of them (16, 25, 36 …) is an image too, for the convnet.
        features: usize,
        /// Classes that the teacher tells apart.
        classes: usize,
        /// Share of the training labels that are replaced by a class drawn at random, 0…1; held-out labels are right.
        #[serde(default, skip_serializing_if = "is_zero")]
        noise: f64,
        /// Share of the samples held out for evaluation, 0…1.
        #[serde(default = "held_out")]
        held_out: f64,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Data of one's own, for a model of one's own. Paths in the options are not resolved.
    Custom {
        /// What the program that trains the job wants to know.
        #[serde(default, skip_serializing_if = "CustomOptions::is_empty")]
        options: CustomOptions,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// What the script of a Python model reads. `bellwether run SCRIPT.py` fills this table from what the script says.
    Python {
        /// Samples of an epoch.
        training_samples: u64,
        /// Samples that workers evaluate; 0 where only the script itself evaluates.
        #[serde(default)]
        held_out_samples: u64,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
    /// Nothing but indices, for the synthetic device.
    Indices {
        /// Number of samples of an epoch.
        samples: u64,
        /// The order in which samples are visited; absent where any sample may follow any other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<BlockOrder>,
    },
}

impl Data {
    /// Whether samples are read when they are needed, where the job says it of a kind that lies in files.
    pub fn streamed(&self) -> Option<bool> {
        match self {
            Data::Idx { streamed, .. }
            | Data::Cifar10 { streamed, .. }
            | Data::Csv { streamed, .. }
            | Data::Text { streamed, .. }
            | Data::Tokens { streamed, .. }
            | Data::Records { streamed, .. } => *streamed,
            Data::Digits { .. }
            | Data::Teacher { .. }
            | Data::Custom { .. }
            | Data::Python { .. }
            | Data::Indices { .. } => None,
        }
    }

    /// Whether no sample is held out, as far as the table tells.
    pub(super) fn holds_nothing_out(&self) -> bool {
        match self {
            Data::Digits { held_out, .. }
            | Data::Csv { held_out, .. }
            | Data::Text { held_out, .. }
            | Data::Tokens { held_out, .. }
            | Data::Records { held_out, .. }
            | Data::Teacher { held_out, .. } => *held_out == 0.0,
            Data::Idx { held_out, test_images, .. } => *held_out == 0.0 && test_images.is_none(),
            Data::Cifar10 { held_out, test_files, .. } => *held_out == 0.0 && test_files.is_empty(),
            Data::Python { held_out_samples, .. } => *held_out_samples == 0,
            Data::Indices { .. } => true,
            Data::Custom { .. } => false,
        }
    }

    /// Every path and pattern in the table.
    pub fn paths(&mut self) -> impl Iterator<Item = &Path> {
        self.paths_mut().into_iter().map(|path| path.as_path())
    }

    /// The same, to be changed.
    pub(super) fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Data::Idx { images, labels, test_images, test_labels, .. } => {
                let all = [Some(images), Some(labels), test_images.as_mut(), test_labels.as_mut()];
                all.into_iter().flatten().flat_map(Shards::paths_mut).collect()
            }
            Data::Cifar10 { files, test_files, .. } => files.iter_mut().chain(test_files).collect(),
            Data::Csv { path, .. }
            | Data::Text { path, .. }
            | Data::Tokens { path, .. }
            | Data::Records { path, .. } => path.paths_mut().iter_mut().collect(),
            Data::Digits { .. }
            | Data::Teacher { .. }
            | Data::Custom { .. }
            | Data::Python { .. }
            | Data::Indices { .. } => vec![],
        }
    }
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}
fn held_out() -> f64 {
    0.2
}
fn unit_scale() -> f32 {
    1.0
}
