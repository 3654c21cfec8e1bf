//! Training and held-out samples: decoding, the split, and the cut of a micro-batch.
//!
//! Decoders are functions of bytes; the file is opened by the caller's function, so that tests feed them anything.
//! Bytes are not trusted: no size that a file claims is allocated before the bytes for it are seen, and no content can
//! make a decoder panic. Errors say where something is wrong and quote nothing: who may name a file to a daemon shall
//! not read it by its errors.
//!
//! The split into training and held-out samples does not depend on the job's seed: jobs that differ
//! only in their seed are evaluated on the same samples.

mod cifar;
mod csv;
mod cutter;
pub mod gzip;
mod idx;
mod inspect;
pub mod rows;
mod table;
mod teacher;
mod text;
mod unit;

use std::io;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Normalise};

pub use self::cutter::Cutter;
pub use self::inspect::{Inspected, inspect};
use self::table::{Features, Table};
use self::teacher::Teacher;
use self::text::Text;
pub use self::unit::Rows;
use crate::random::Stream;

/// The caller's way to read a whole file.
pub(crate) type Open<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// The digits that ship with the program; see `data/README.md` for source and licence.
const DIGITS: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/digits/digits.csv.gz"));
/// Keys the shuffle that picks held-out samples. A change of it changes every split.
const SPLIT_SEED: u64 = 0x5EED_0F5B;

/// Which of the two sets a sample index names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// What gradients are computed on.
    Training,
    /// What evaluation is computed on.
    HeldOut,
}

/// Inputs and targets of some samples, ready for a network.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Batch {
    /// Number of samples.
    pub(crate) samples: usize,
    /// Features, sample by sample; empty for a text.
    pub(crate) values: Vec<f32>,
    /// Bytes of the text, window by window; empty for anything else.
    pub(crate) tokens: Vec<i32>,
    /// Class per sample, or next byte per position.
    pub(crate) targets: Vec<u32>,
}

#[derive(Debug)]
enum Samples {
    /// Decoded samples in memory, with the places of the two parts.
    Table { table: Table, training: Vec<u32>, held_out: Vec<u32> },
    /// Samples computed on demand; they are drawn independently, so the last ones are held out.
    Teacher { teacher: Teacher, training: u64, held_out: u64 },
    /// Windows of a text, whose end is held out.
    Text(Text),
}

/// All samples of a job.
#[derive(Debug)]
pub(crate) struct Dataset(Samples);

impl Dataset {
    /// Reads and decodes what `data` names; `context` is the window of a text.
    pub(crate) fn load(data: &Data, context: usize, open: Open<'_>) -> Result<Self, InputError> {
        let read = |path: &Path| read_file(path, open);
        let samples = match data {
            Data::Digits { held_out, .. } => {
                let text = gzip::expand("digits", DIGITS.to_vec())?;
                let table =
                    csv::decode("digits", &text, &csv::Form { scale: 1.0 / 16.0, ..csv::Form::PLAIN })?
                        .with_image([1, 8, 8]);
                split_table("digits", table, *held_out)?
            }
            Data::Csv { path, header, separator, label, classes, scale, normalise, held_out, .. } => {
                let name = path.display().to_string();
                let (header, scale, separator) = (*header, *scale, *separator);
                let form = csv::Form { header, scale, separator, label: label.as_deref(), classes };
                let samples = split_table(&name, csv::decode(&name, &read(path)?, &form)?, *held_out)?;
                normalised(samples, *normalise)
            }
            Data::Idx { images, labels, test_images, test_labels, held_out, .. } => {
                let table = idx_table(images, labels, open)?;
                match (test_images, test_labels) {
                    (Some(test_images), Some(test_labels)) => {
                        let test = idx_table(test_images, test_labels, open)?;
                        join_tables(&test_images.display().to_string(), table, test)?
                    }
                    _ => split_table(&images.display().to_string(), table, *held_out)?,
                }
            }
            Data::Cifar10 { files, test_files, held_out, .. } => {
                let table = cifar_table(files, open)?;
                match test_files.first() {
                    Some(first) => {
                        join_tables(&first.display().to_string(), table, cifar_table(test_files, open)?)?
                    }
                    None => split_table("data.files", table, *held_out)?,
                }
            }
            Data::Teacher { samples, features, classes, noise, held_out, .. } => {
                let held_out = held_out_count("data.samples", *samples, *held_out)?;
                let teacher = Teacher::new(*features, *classes, *noise);
                Samples::Teacher { teacher, training: samples - held_out, held_out }
            }
            Data::Text { path, held_out, .. } => {
                let name = path.display().to_string();
                Samples::Text(Text::new(&name, read(path)?, context, *held_out)?)
            }
            Data::Custom { .. } => {
                return Err(InputError::new("data.kind", "only a custom model learns custom data"));
            }
            Data::Python { .. } => {
                return Err(InputError::new("data.kind", "only the script of a python model knows its data"));
            }
            Data::Indices { .. } => {
                return Err(InputError::new("data.kind", "indices hold nothing that a network could learn"));
            }
        };
        Ok(Dataset(samples))
    }

    /// Samples that are all held out.
    fn held_out(table: Table) -> Result<Self, InputError> {
        let count = table::index("data", table.labels.len())?;
        Ok(Dataset(Samples::Table { table, training: Vec::new(), held_out: (0..count).collect() }))
    }

    /// The form of samples without any of them.
    pub(crate) fn none(image: [usize; 3], classes: usize, is_text: bool) -> Self {
        let (features, labels) = (Features::Floats(Vec::new()), Vec::new());
        match is_text {
            true => Dataset(Samples::Text(Text::held_out(Vec::new(), image.iter().product()))),
            false => {
                let table = Table { features, labels, image, classes };
                Dataset(Samples::Table { table, training: Vec::new(), held_out: Vec::new() })
            }
        }
    }

    /// Whether samples are windows of a text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.0, Samples::Text(_))
    }

    /// Number of samples of a part.
    pub(crate) fn count(&self, part: Part) -> u64 {
        match (&self.0, part) {
            (Samples::Table { training, .. }, Part::Training) => training.len() as u64,
            (Samples::Table { held_out, .. }, Part::HeldOut) => held_out.len() as u64,
            (Samples::Teacher { training, .. }, Part::Training) => *training,
            (Samples::Teacher { held_out, .. }, Part::HeldOut) => *held_out,
            (Samples::Text(text), part) => text.count(part),
        }
    }

    /// Channels, height and width of a sample; a plain list of features has one channel and one row.
    pub(crate) fn image(&self) -> [usize; 3] {
        match &self.0 {
            Samples::Table { table, .. } => table.image,
            Samples::Teacher { teacher, .. } => teacher.image(),
            Samples::Text(text) => [1, 1, text.context],
        }
    }

    /// Number of classes that a prediction chooses among.
    pub(crate) fn classes(&self) -> usize {
        match &self.0 {
            Samples::Table { table, .. } => table.classes,
            Samples::Teacher { teacher, .. } => teacher.classes,
            Samples::Text(_) => 256,
        }
    }

    /// The samples of `part` that `indices` name.
    ///
    /// # Errors
    ///
    /// Returns an error if an index is not in the part.
    pub(crate) fn batch(&self, part: Part, indices: &[u64]) -> Result<Batch, String> {
        let count = self.count(part);
        if let Some(index) = indices.iter().find(|index| **index >= count) {
            return Err(format!("sample {index} of {count} {part:?} samples was asked for"));
        }
        let mut batch = Batch { samples: indices.len(), ..Batch::default() };
        match &self.0 {
            Samples::Table { table, training, held_out } => {
                let places = if part == Part::Training { training } else { held_out };
                for index in indices {
                    table.append(places[*index as usize] as usize, &mut batch);
                }
            }
            Samples::Teacher { teacher, training, .. } => match part {
                Part::Training => indices.iter().for_each(|index| teacher.append_noisy(*index, &mut batch)),
                Part::HeldOut => {
                    indices.iter().for_each(|index| teacher.append(training + index, &mut batch));
                }
            },
            Samples::Text(text) => indices.iter().for_each(|index| text.append(part, *index, &mut batch)),
        }
        Ok(batch)
    }

    /// Digest of what the samples hold, however their files were packed, and of their split.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for number in [self.count(Part::Training), self.count(Part::HeldOut), self.classes() as u64] {
            hasher.update(&number.to_le_bytes());
        }
        match &self.0 {
            Samples::Table { table, .. } => table.digest(&mut hasher),
            Samples::Teacher { teacher, .. } => teacher.digest(&mut hasher),
            Samples::Text(text) => text.digest(&mut hasher),
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

/// Reads a file and expands it when it is gzip-compressed.
fn read_file(path: &Path, open: Open<'_>) -> Result<Vec<u8>, InputError> {
    let name = path.display().to_string();
    let bytes = open(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "relative paths start at the job file's folder",
            _ => "",
        };
        InputError::new(&name, format!("cannot be read: {error}")).hint(hint)
    })?;
    gzip::expand(&name, bytes)
}

fn idx_table(images: &Path, labels: &Path, open: Open<'_>) -> Result<Table, InputError> {
    let (images_name, labels_name) = (images.display().to_string(), labels.display().to_string());
    idx::decode((&images_name, &read_file(images, open)?), (&labels_name, &read_file(labels, open)?))
}

fn cifar_table(files: &[std::path::PathBuf], open: Open<'_>) -> Result<Table, InputError> {
    let mut all: Option<Table> = None;
    for path in files {
        let name = path.display().to_string();
        let table = cifar::decode(&name, &read_file(path, open)?)?;
        all = Some(match all {
            Some(before) => before.join(&name, table)?,
            None => table,
        });
    }
    all.ok_or_else(|| InputError::new("data.files", "no file is named"))
}

/// How many of `count` samples a share holds out: at least one when the share is not zero.
fn held_out_count(place: &str, count: u64, share: f64) -> Result<u64, InputError> {
    let wanted = (count as f64 * share).round() as u64;
    let held_out = if share > 0.0 { wanted.max(1) } else { 0 };
    if held_out >= count {
        return Err(InputError::new(place, format!("of {count} samples none is left to train on"))
            .hint("lower data.held_out or give more samples"));
    }
    Ok(held_out)
}

/// Holds out a share of a table by a shuffle with a fixed key.
fn split_table(place: &str, table: Table, share: f64) -> Result<Samples, InputError> {
    let count = table.labels.len();
    let held_out_count = held_out_count(place, count as u64, share)? as usize;
    let mut held_out = Stream::new(SPLIT_SEED, 0).permutation(table::index(place, count)?);
    let mut training = held_out.split_off(held_out_count);
    // File order within each part: reading a micro-batch then walks forward through memory.
    training.sort_unstable();
    held_out.sort_unstable();
    Ok(Samples::Table { table, training, held_out })
}

/// The same with features of one size, by what the training samples hold: held-out ones tell nothing of themselves.
fn normalised(mut samples: Samples, how: Normalise) -> Samples {
    if let Samples::Table { table, training, .. } = &mut samples {
        table.normalise(how, training);
    }
    samples
}

/// Trains on one table and holds out another.
fn join_tables(place: &str, training: Table, held_out: Table) -> Result<Samples, InputError> {
    let first_held_out = table::index(place, training.labels.len())?;
    let table = training.join(place, held_out)?;
    let end = table::index(place, table.labels.len())?;
    Ok(Samples::Table {
        table,
        training: (0..first_held_out).collect(),
        held_out: (first_held_out..end).collect(),
    })
}

#[cfg(test)]
mod tests;
