//! Decoded samples in memory: features and a class label per sample.

use bellwether_core::InputError;
use bellwether_core::job::Normalise;

use super::Batch;

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

/// Where the values of a feature lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Statistic {
    middle: f64,
    size: f64,
}

impl Statistic {
    /// A value of the feature, brought to one size; 0 of a feature that is always the same.
    pub(super) fn applied(self, value: f32) -> f32 {
        if self.size > 0.0 { ((f64::from(value) - self.middle) / self.size) as f32 } else { 0.0 }
    }
}

/// `count` as the index type of a split.
pub(super) fn index(place: &str, count: usize) -> Result<u32, InputError> {
    u32::try_from(count).map_err(|_| InputError::new(place, format!("{count} samples are more than 2^32")))
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

    /// This table followed by another of the same shape; `place` names the other.
    pub(super) fn join(mut self, place: &str, other: Table) -> Result<Self, InputError> {
        if self.image != other.image {
            let [_, height, width] = self.image;
            let [_, other_height, other_width] = other.image;
            return Err(InputError::new(
                place,
                format!("holds images of {other_height}×{other_width}, the files before it {height}×{width}"),
            ));
        }
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

    /// Brings each feature to one size, by the samples that `training` names. Bytes have one already, and a feature
    /// that is the same in all of these becomes 0.
    pub(super) fn normalise(&mut self, how: Normalise, training: &[u32]) {
        self.apply(&self.statistics(how, training));
    }

    /// The middle and the size of each feature in the samples that `training` names; nothing where none is to be
    /// brought to one size.
    pub(super) fn statistics(&self, how: Normalise, training: &[u32]) -> Vec<Statistic> {
        let width = self.width();
        let Features::Floats(floats) = &self.features else { return Vec::new() };
        if how == Normalise::None || training.is_empty() {
            return Vec::new();
        }
        let column = |column: usize| {
            let values = || training.iter().map(|row| f64::from(floats[*row as usize * width + column]));
            let count = training.len() as f64;
            let (middle, size) = match how {
                Normalise::Range => {
                    let (low, high) = values().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
                    (low, high - low)
                }
                Normalise::Standard | Normalise::None => {
                    let mean = values().sum::<f64>() / count;
                    let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
                    (mean, variance.sqrt())
                }
            };
            Statistic { middle, size }
        };
        (0..width).map(column).collect()
    }

    /// Brings each feature to one size by these statistics, if there are some.
    pub(super) fn apply(&mut self, statistics: &[Statistic]) {
        let width = self.width();
        let Features::Floats(floats) = &mut self.features else { return };
        for (column, statistic) in statistics.iter().enumerate() {
            for value in floats.iter_mut().skip(column).step_by(width) {
                *value = statistic.applied(*value);
            }
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
