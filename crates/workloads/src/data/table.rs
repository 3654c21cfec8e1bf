//! Decoded samples in memory: features and a class label per sample.

use bellwether_core::InputError;

use super::Batch;
use super::scaling::Scaling;
use super::shard::{Format, Opened, Values};
use super::source::Source;

/// Features of all samples, in the form in which they take least memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Features {
    /// Bytes 0…255, read as 0…1.
    Bytes(Vec<u8>),
    /// Numbers as they are.
    Floats(Vec<f32>),
}

/// Samples with their labels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// Sample by sample, each `image` product values long.
    pub(super) features: Features,
    /// Class of each sample, below `classes`.
    pub(super) labels: Vec<u32>,
    /// Channels, height and width.
    pub(super) image: [usize; 3],
    /// Number of classes.
    pub(super) classes: usize,
}

/// `count` as the index type of a split.
pub(super) fn index(place: &str, count: usize) -> Result<u32, InputError> {
    u32::try_from(count).map_err(|_| InputError::new(place, format!("{count} samples are more than 2^32")))
}

/// Refuses samples of another shape than those before them; `place` names where they come from.
pub(super) fn same_shape(place: &str, before: [usize; 3], image: [usize; 3]) -> Result<(), InputError> {
    let text = |[channels, height, width]: [usize; 3]| match (channels, height) {
        (1, 1) => format!("samples of {width} features"),
        (1, _) => format!("images of {height}×{width}"),
        _ => format!("images of {channels}×{height}×{width}"),
    };
    if before == image {
        return Ok(());
    }
    let what = format!("holds {}, the files before it {}", text(image), text(before));
    Err(InputError::new(place, what))
}

impl Table {
    /// The same table whose features are read as an image of this shape.
    pub(super) fn with_image(mut self, image: [usize; 3]) -> Self {
        debug_assert_eq!(self.width(), image.iter().product::<usize>());
        self.image = image;
        self
    }

    /// Values of one sample.
    fn width(&self) -> usize {
        self.image.iter().product()
    }

    /// All samples of a shard.
    pub(super) fn read(format: &mut dyn Format, sources: Vec<Source>) -> Result<Table, InputError> {
        let (mut bytes, mut floats, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |values: Values<'_>, class| {
            match values {
                Values::Bytes(values) => bytes.extend_from_slice(values),
                Values::Floats(values) => floats.extend_from_slice(values),
            }
            labels.push(class);
            Ok(())
        };
        let Opened { image, is_float, classes, .. } = format.open(sources, &mut add)?;
        let features = if is_float { Features::Floats(floats) } else { Features::Bytes(bytes) };
        Ok(Table { features, labels, image, classes })
    }

    /// This table followed by another of the same shape; `place` names the other.
    pub(super) fn join(mut self, place: &str, other: Table) -> Result<Self, InputError> {
        same_shape(place, self.image, other.image)?;
        match (&mut self.features, other.features) {
            (Features::Bytes(bytes), Features::Bytes(more)) => bytes.extend(more),
            (Features::Floats(floats), Features::Floats(more)) => floats.extend(more),
            _ => {
                return Err(InputError::new(place, "holds another kind of numbers than the files before it"));
            }
        }
        self.labels.extend(other.labels);
        self.classes = self.classes.max(other.classes);
        Ok(self)
    }

    /// Features of one sample, where they are numbers.
    pub(super) fn floats(&self, row: usize) -> Option<&[f32]> {
        let Features::Floats(floats) = &self.features else { return None };
        Some(&floats[row * self.width()..(row + 1) * self.width()])
    }

    /// Brings each feature to one size. Bytes have one already.
    pub(super) fn scale(&mut self, scaling: &Scaling) {
        let width = self.width();
        if let Features::Floats(floats) = &mut self.features {
            floats.chunks_mut(width).for_each(|row| scaling.apply(row));
        }
    }

    /// Appends one sample to a batch.
    pub(super) fn append(&self, place: usize, batch: &mut Batch) {
        let range = place * self.width()..(place + 1) * self.width();
        match &self.features {
            Features::Bytes(bytes) => {
                batch.values.extend(bytes[range].iter().map(|byte| f32::from(*byte) / 255.0));
            }
            Features::Floats(floats) => batch.values.extend_from_slice(&floats[range]),
        }
        batch.targets.push(self.labels[place]);
    }

    /// Feeds shape, features and labels to a hasher.
    pub(super) fn digest(&self, hasher: &mut blake3::Hasher) {
        self.image.iter().for_each(|size| {
            hasher.update(&(*size as u64).to_le_bytes());
        });
        match &self.features {
            Features::Bytes(bytes) => hasher.update(bytes),
            Features::Floats(floats) => hasher.update(bytemuck::cast_slice(floats)),
        };
        hasher.update(bytemuck::cast_slice(&self.labels));
    }
}
