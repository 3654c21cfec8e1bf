//! Samples that stay in their files: they are read by index when they are needed.
//!
//! Rows, split, scaling and digest are those that the same files have in memory, bit by bit. To know them the files are
//! read from front to end: once to find the samples, once for their digest, and once or twice more where features are
//! brought to one size. Memory holds two bytes for each sample meanwhile, and afterwards a bit for each sample and 16
//! bytes for every 4 KiB of lines or records.

use bellwether_core::InputError;
use bellwether_core::job::Normalise;

use super::kept::Kept;
use super::places::Places;
use super::scaling::Scaling;
use super::shard::{Format, Opened, Shards, Values};
use super::source::Source;
use super::table::{index, same_shape};
use super::{Batch, Part, SPLIT_SEED, held_out_count};
use crate::random::Stream;

/// Bytes that are hashed at once.
const HASHED_BYTES: usize = 64 << 10;

/// Samples in files.
pub(super) struct Streamed {
    shards: Shards,
    places: Places,
    scaling: Option<Scaling>,
    is_float: bool,
    /// Channels, height and width.
    pub(super) image: [usize; 3],
    /// Number of classes.
    pub(super) classes: usize,
    /// Digest of all samples and of their split.
    pub(super) digest: String,
}

/// What a data set is made of.
pub(super) struct Plan<'a> {
    /// What errors about the whole set name.
    pub(super) place: &'a str,
    /// The files of each shard with samples to train on, or to split.
    pub(super) training: Vec<Vec<Source>>,
    /// The files of each shard with held-out samples, where they have files of their own.
    pub(super) held_out: Vec<Vec<Source>>,
    /// Share that is held out otherwise.
    pub(super) share: f64,
    /// How features are brought to one size.
    pub(super) normalise: Normalise,
}

impl Streamed {
    /// Reads all files to find their samples.
    pub(super) fn open(plan: Plan<'_>, format: &mut dyn Format) -> Result<Streamed, InputError> {
        let (mut shards, mut shape, mut cut) = (Shards::default(), None, None);
        let is_cut = !plan.held_out.is_empty();
        let training = plan.training.len();
        for (number, sources) in plan.training.into_iter().chain(plan.held_out).enumerate() {
            if number == training {
                cut = Some(shards.rows());
            }
            let name = sources[0].name().to_owned();
            let Opened { shard, image, is_float, classes } = format.open(sources, &mut |_, _| Ok(()))?;
            let (before, _, most) = *shape.get_or_insert((image, is_float, classes));
            same_shape(&name, before, image)?;
            shape = Some((image, is_float, classes.max(most)));
            shards.push(shard);
        }
        let Some((image, is_float, classes)) = shape else {
            return Err(InputError::new(plan.place, "no file is named"));
        };
        let places = places(plan.place, shards.rows(), cut.filter(|_| is_cut), plan.share)?;
        let mut set =
            Streamed { shards, places, scaling: None, is_float, image, classes, digest: String::new() };
        set.scaling = Scaling::of(plan.normalise, image.iter().product(), &|each| set.visit_training(each))?;
        set.digest = set.digest()?;
        Ok(set)
    }

    /// As [`open`](Streamed::open), from what was found out before; nothing if that cannot be so.
    pub(super) fn restore(plan: Plan<'_>, format: &mut dyn Format, kept: Kept) -> Option<Streamed> {
        let Kept { image, is_float, classes, digest, scaling, shards: numbers } = kept;
        let (training, is_cut) = (plan.training.len(), !plan.held_out.is_empty());
        let groups: Vec<_> = plan.training.into_iter().chain(plan.held_out).collect();
        if groups.len() != numbers.len() {
            return None;
        }
        let (mut shards, mut cut) = (Shards::default(), None);
        for (number, (sources, numbers)) in groups.into_iter().zip(&numbers).enumerate() {
            if number == training {
                cut = Some(shards.rows());
            }
            shards.push(format.restore(sources, numbers)?);
        }
        let places = places(plan.place, shards.rows(), cut.filter(|_| is_cut), plan.share).ok()?;
        Some(Streamed { shards, places, scaling, is_float, image, classes, digest })
    }

    /// What was found out.
    pub(super) fn kept(&self) -> Kept {
        Kept {
            image: self.image,
            is_float: self.is_float,
            classes: self.classes,
            digest: self.digest.clone(),
            scaling: self.scaling.clone(),
            shards: self.shards.iter().map(|shard| shard.numbers()).collect(),
        }
    }

    /// What brought features to one size.
    pub(super) fn scaling(&self) -> Option<&Scaling> {
        self.scaling.as_ref()
    }

    /// Samples of a part.
    pub(super) fn count(&self, part: Part) -> u64 {
        self.places.count(part)
    }

    /// Appends a sample of a part.
    pub(super) fn append(&self, part: Part, index: u64, batch: &mut Batch) -> Result<(), InputError> {
        let begin = batch.values.len();
        self.shards.append(self.places.at(part, index), batch)?;
        let width: usize = self.image.iter().product();
        let values = &mut batch.values[begin..];
        // A line of another length would be an error before this: it is what files that change might do.
        if values.len() != width {
            let what = format!("a sample has {} values, and not {width}", values.len());
            return Err(InputError::new("data", what).hint("the files have changed while they were in use"));
        }
        if let Some(scaling) = &self.scaling {
            scaling.apply(values);
        }
        Ok(())
    }

    fn visit_training(&self, each: &mut dyn FnMut(&[f32])) -> Result<(), InputError> {
        let mut row = 0;
        self.shards.visit(&mut |values, _| {
            if let (Values::Floats(features), false) = (values, self.places.is_held_out(row)) {
                each(features);
            }
            row += 1;
            Ok(())
        })
    }

    /// The digest that the samples have in memory, too.
    fn digest(&self) -> Result<String, InputError> {
        let counts = [self.count(Part::Training), self.count(Part::HeldOut)];
        let mut hasher = super::hasher(counts, self.classes);
        self.image.iter().for_each(|size| {
            hasher.update(&(*size as u64).to_le_bytes());
        });
        let (mut bytes, mut labels, mut scaled) = (Vec::new(), Vec::<u16>::new(), Vec::new());
        self.shards.visit(&mut |values, class| {
            match (values, &self.scaling) {
                (Values::Bytes(values), _) => bytes.extend_from_slice(values),
                (Values::Floats(values), None) => bytes.extend_from_slice(bytemuck::cast_slice(values)),
                (Values::Floats(values), Some(scaling)) => {
                    scaled.clear();
                    scaled.extend_from_slice(values);
                    scaling.apply(&mut scaled);
                    bytes.extend_from_slice(bytemuck::cast_slice(&scaled));
                }
            }
            // Every format has fewer classes.
            labels.push(class as u16);
            if bytes.len() >= HASHED_BYTES {
                hasher.update(&bytes);
                bytes.clear();
            }
            Ok(())
        })?;
        hasher.update(&bytes);
        for labels in labels.chunks(HASHED_BYTES / 4) {
            bytes.clear();
            bytes.extend(labels.iter().flat_map(|class| u32::from(*class).to_le_bytes()));
            hasher.update(&bytes);
        }
        Ok(super::short(&hasher))
    }
}

/// The parts of `rows` samples: those from `cut` on are held out, or else a share of all.
fn places(place: &str, rows: u64, cut: Option<u64>, share: f64) -> Result<Places, InputError> {
    let count = index(place, usize::try_from(rows).unwrap_or(usize::MAX))?;
    match cut {
        Some(cut) => Ok(Places::Cut { cut, count: rows }),
        None => {
            let held_out = held_out_count(place, rows, share)?;
            Ok(Places::drawn(Stream::new(SPLIT_SEED, 0), count, held_out as u32))
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
