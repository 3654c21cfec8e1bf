//! Training and held-out samples: decoding, the split, and the cut of a micro-batch.
//!
//! Decoders are functions of bytes; the file is opened by the caller's function, so that tests feed them anything.
//! Bytes are not trusted: no size that a file claims is allocated before the bytes for it are seen, and no content can
//! make a decoder panic. Errors say where something is wrong and quote nothing: who may name a file to a daemon shall
//! not read it by its errors.
//!
//! The split into training and held-out samples does not depend on the job's seed: jobs that differ
//! only in their seed are evaluated on the same samples.

mod access;
mod cifar;
mod csv;
mod cutter;
pub mod gzip;
mod idx;
mod inspect;
mod kept;
mod places;
mod records;
pub mod rows;
mod scaling;
mod shard;
mod source;
mod streamed;
mod table;
mod tar;
mod teacher;
mod text;
mod unit;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Normalise, Shards as Named};
use bellwether_runtime::workload::WorkloadError;

pub(crate) use self::access::Access;
use self::access::{Reading, groups};
pub use self::cutter::Cutter;
pub use self::inspect::{Inspected, inspect};
use self::places::Places;
use self::scaling::Scaling;
use self::shard::Format;
use self::source::Source;
pub use self::source::{Files, Ranges, Version};
use self::streamed::{Plan, Streamed};
use self::table::{Features, Table};
use self::teacher::Teacher;
use self::text::{Alphabet, Text};
pub use self::unit::Rows;
use crate::random::Stream;

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

enum Samples {
    /// Decoded samples in memory, with the places of the two parts.
    Table {
        table: Table,
        training: Vec<u32>,
        held_out: Vec<u32>,
        /// What was done to the features.
        scaling: Option<Scaling>,
    },
    /// Samples computed on demand; they are drawn independently, so the last ones are held out.
    Teacher { teacher: Teacher, training: u64, held_out: u64 },
    /// Windows of a text, whose end is held out.
    Text(Text),
    /// Samples in files.
    Streamed(Streamed),
}

/// All samples of a job.
pub(crate) struct Dataset {
    samples: Samples,
    /// Whether they are read when they are asked for.
    is_streamed: bool,
    digest: String,
}

impl Dataset {
    /// Reads and decodes what `data` names, or finds the samples in files that are read later; `context` is the window
    /// of a text.
    pub(crate) fn load(data: &Data, context: usize, access: Access<'_>) -> Result<Self, InputError> {
        let reading = Reading::new(data, context, access)?;
        let samples = reading.samples(data, context)?;
        let mut set = Dataset { samples, is_streamed: reading.is_streamed(), digest: String::new() };
        set.digest = set.hashed(&reading)?;
        Ok(set)
    }

    /// Whether samples are read when they are asked for, so that it pays to ask early.
    pub(crate) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Samples that are all held out.
    fn held_out(table: Table) -> Result<Self, InputError> {
        let count = table::index("data", table.labels.len())?;
        let held_out = (0..count).collect();
        Ok(Dataset::applied(Samples::Table { table, training: Vec::new(), held_out, scaling: None }))
    }

    /// The form of samples without any of them.
    pub(crate) fn none(image: [usize; 3], classes: usize, is_text: bool) -> Self {
        let (features, labels) = (Features::Floats(Vec::new()), Vec::new());
        match is_text {
            true => Dataset::applied(Samples::Text(Text::held_out(Vec::new(), image.iter().product()))),
            false => {
                let table = Table { features, labels, image, classes };
                let (training, held_out) = (Vec::new(), Vec::new());
                Dataset::applied(Samples::Table { table, training, held_out, scaling: None })
            }
        }
    }

    /// Samples that a model is only applied to: no identity rests on them.
    fn applied(samples: Samples) -> Dataset {
        Dataset { samples, is_streamed: false, digest: String::new() }
    }

    /// What brought features to one size.
    fn scaling(&self) -> Option<&Scaling> {
        match &self.samples {
            Samples::Table { scaling, .. } => scaling.as_ref(),
            Samples::Streamed(set) => set.scaling(),
            Samples::Teacher { .. } | Samples::Text(_) => None,
        }
    }

    /// Whether samples are windows of a text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.samples, Samples::Text(_))
    }

    /// Number of samples of a part.
    pub(crate) fn count(&self, part: Part) -> u64 {
        match (&self.samples, part) {
            (Samples::Table { training, .. }, Part::Training) => training.len() as u64,
            (Samples::Table { held_out, .. }, Part::HeldOut) => held_out.len() as u64,
            (Samples::Teacher { training, .. }, Part::Training) => *training,
            (Samples::Teacher { held_out, .. }, Part::HeldOut) => *held_out,
            (Samples::Text(text), part) => text.count(part),
            (Samples::Streamed(set), part) => set.count(part),
        }
    }

    /// Channels, height and width of a sample; a plain list of features has one channel and one row.
    pub(crate) fn image(&self) -> [usize; 3] {
        match &self.samples {
            Samples::Table { table, .. } => table.image,
            Samples::Teacher { teacher, .. } => teacher.image(),
            Samples::Text(text) => [1, 1, text.context],
            Samples::Streamed(set) => set.image,
        }
    }

    /// Number of classes that a prediction chooses among.
    pub(crate) fn classes(&self) -> usize {
        match &self.samples {
            Samples::Table { table, .. } => table.classes,
            Samples::Teacher { teacher, .. } => teacher.classes,
            Samples::Text(text) => text.classes(),
            Samples::Streamed(set) => set.classes,
        }
    }

    /// The samples of `part` that `indices` name.
    ///
    /// # Errors
    ///
    /// Returns an error if an index is not in the part, and if a file cannot be read or is another one by now.
    pub(crate) fn batch(&self, part: Part, indices: &[u64]) -> Result<Batch, WorkloadError> {
        let count = self.count(part);
        if let Some(index) = indices.iter().find(|index| **index >= count) {
            let what = format!("sample {index} of {count} {part:?} samples was asked for");
            return Err(WorkloadError::new(what));
        }
        // Files are the same for all workers: another one would not read them better.
        let lost = |error: InputError| WorkloadError::of_user(said(&error));
        let mut batch = Batch { samples: indices.len(), ..Batch::default() };
        match &self.samples {
            Samples::Table { table, training, held_out, .. } => {
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
            Samples::Text(text) => {
                indices.iter().try_for_each(|index| text.append(part, *index, &mut batch)).map_err(lost)?;
            }
            Samples::Streamed(set) => {
                indices.iter().try_for_each(|index| set.append(part, *index, &mut batch)).map_err(lost)?;
            }
        }
        Ok(batch)
    }

    /// Digest of what the samples hold, however their files were packed, and of their split.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    fn hashed(&self, reading: &Reading<'_>) -> Result<String, InputError> {
        let mut hasher = hasher([self.count(Part::Training), self.count(Part::HeldOut)], self.classes());
        match &self.samples {
            Samples::Streamed(set) => return Ok(set.digest.clone()),
            Samples::Table { table, .. } => table.digest(&mut hasher),
            Samples::Teacher { teacher, .. } => teacher.digest(&mut hasher),
            Samples::Text(text) => {
                return reading.remembered(|| {
                    text.digest(&mut hasher)?;
                    Ok(short(&hasher))
                });
            }
        }
        Ok(short(&hasher))
    }
}

impl Batch {
    /// Appends features that are bytes of a file.
    fn append_bytes(&mut self, source: &Source, offset: u64, count: usize) -> Result<(), InputError> {
        let bytes = source.some_at(offset, count)?;
        self.values.extend(bytes.iter().map(|byte| f32::from(*byte) / 255.0));
        Ok(())
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.values.len() + self.tokens.len() + self.targets.len())
    }
}

/// The error in one line.
fn said(error: &InputError) -> String {
    let InputError { place, what, hint, .. } = error;
    if hint.is_empty() { format!("{place}: {what}") } else { format!("{place}: {what} ({hint})") }
}

/// A hasher that was told of the sizes of both parts, and of the classes.
fn hasher([training, held_out]: [u64; 2], classes: usize) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    for number in [training, held_out, classes as u64] {
        hasher.update(&number.to_le_bytes());
    }
    hasher
}

/// The part of a digest that is shown.
fn short(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Files of a data set.
struct Set<'a> {
    /// What errors about the whole set name.
    place: String,
    /// Files with samples to train on, or to split; of several lists, one file of each makes a shard.
    training: Vec<&'a Named>,
    /// The same with held-out samples, where they have files of their own.
    held_out: Vec<&'a Named>,
    /// Share that is held out otherwise.
    share: f64,
    normalise: Normalise,
}

impl<'a> Set<'a> {
    fn of(files: &'a Named) -> Set<'a> {
        let (training, held_out) = (vec![files], Vec::new());
        Set { place: files.to_string(), training, held_out, share: 0.0, normalise: Normalise::None }
    }
}

impl Reading<'_> {
    fn samples(&self, data: &Data, context: usize) -> Result<Samples, InputError> {
        match data {
            Data::Digits { held_out, .. } => {
                let text = gzip::expand("digits", DIGITS.to_vec())?;
                let mut format = csv::Csv::new(csv::Form { scale: 1.0 / 16.0, ..csv::Form::PLAIN });
                let table = Table::read(&mut format, vec![Source::memory("digits", text)])?;
                split_table("digits", table.with_image([1, 8, 8]), *held_out)
            }
            Data::Csv { path, header, separator, label, classes, scale, normalise, held_out, .. } => {
                let (header, scale, separator) = (*header, *scale, *separator);
                let form =
                    csv::Form { header, scale, separator, label: label.clone(), classes: classes.clone() };
                let set = Set { share: *held_out, normalise: *normalise, ..Set::of(path) };
                self.set(&set, &mut csv::Csv::new(form))
            }
            Data::Idx { images, labels, test_images, test_labels, held_out, .. } => {
                let tests = [test_images.as_ref(), test_labels.as_ref()].into_iter().flatten().collect();
                let all = Set::of(images);
                let set = Set { training: vec![images, labels], held_out: tests, share: *held_out, ..all };
                self.set(&set, &mut idx::Idx)
            }
            Data::Cifar10 { files, test_files, held_out, .. } => {
                let (files, tests) = (Named::from(files.clone()), Named::from(test_files.clone()));
                let tests = Some(&tests).filter(|tests| !tests.paths().is_empty()).into_iter().collect();
                let all = Set::of(&files);
                let set = Set { place: "data.files".into(), held_out: tests, share: *held_out, ..all };
                self.set(&set, &mut cifar::Cifar)
            }
            Data::Records { path, shape, held_out, .. } => {
                self.set(&Set { share: *held_out, ..Set::of(path) }, &mut records::Records::new(*shape))
            }
            Data::Teacher { samples, features, classes, noise, held_out, .. } => {
                let held_out = held_out_count("data.samples", *samples, *held_out)?;
                let teacher = Teacher::new(*features, *classes, *noise);
                Ok(Samples::Teacher { teacher, training: samples - held_out, held_out })
            }
            Data::Text { path, held_out, .. } => self.text(path, Alphabet::BYTES, context, *held_out),
            Data::Tokens { path, token, vocabulary, held_out, .. } => {
                let alphabet = Alphabet { token: *token, vocabulary: *vocabulary };
                self.text(path, alphabet, context, *held_out)
            }
            Data::Custom { .. } => {
                Err(InputError::new("data.kind", "only a custom model learns custom data"))
            }
            Data::Python { .. } => {
                Err(InputError::new("data.kind", "only the script of a python model knows its data"))
            }
            Data::Indices { .. } => {
                Err(InputError::new("data.kind", "indices hold nothing that a network could learn"))
            }
        }
    }

    /// The samples of a set: decoded into memory, or to be read later.
    fn set(&self, set: &Set<'_>, format: &mut dyn Format) -> Result<Samples, InputError> {
        let training = groups(self, &set.training)?;
        let held_out = groups(self, &set.held_out)?;
        if self.is_streamed() {
            let plan = || {
                Ok(Plan {
                    place: &set.place,
                    training: self.sources(&training)?,
                    held_out: self.sources(&held_out)?,
                    share: set.share,
                    normalise: set.normalise,
                })
            };
            return Ok(Samples::Streamed(self.streamed(plan, format)?));
        }
        let table = self.table(&training, format)?;
        if held_out.is_empty() {
            return normalised(split_table(&set.place, table, set.share)?, set.normalise);
        }
        let place = held_out[0][0].display().to_string();
        join_tables(&place, table, self.table(&held_out, format)?)
    }

    fn text(
        &self,
        files: &Named,
        alphabet: Alphabet,
        context: usize,
        share: f64,
    ) -> Result<Samples, InputError> {
        let sources = self.sources(&groups(self, &[files])?)?.into_iter().flatten().collect();
        Ok(Samples::Text(Text::new(&files.to_string(), sources, alphabet, context, share)?))
    }
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
    let held_out = held_out_count(place, count as u64, share)? as u32;
    let places = Places::drawn(Stream::new(SPLIT_SEED, 0), table::index(place, count)?, held_out);
    // File order within each part: reading a micro-batch then walks forward through memory.
    let part = |part| places.iter(part).map(|row| row as u32).collect();
    let (training, held_out) = (part(Part::Training), part(Part::HeldOut));
    Ok(Samples::Table { table, training, held_out, scaling: None })
}

/// The same with features of one size, by what the training samples hold.
fn normalised(mut samples: Samples, how: Normalise) -> Result<Samples, InputError> {
    if let Samples::Table { table, training, scaling, .. } = &mut samples {
        let width = table.image.iter().product();
        let visit = |each: &mut dyn FnMut(&[f32])| {
            training.iter().filter_map(|row| table.floats(*row as usize)).for_each(each);
            Ok(())
        };
        *scaling = Scaling::of(how, width, &visit)?;
        if let Some(scaling) = scaling {
            table.scale(scaling);
        }
    }
    Ok(samples)
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
        scaling: None,
    })
}

#[cfg(test)]
mod tests;
