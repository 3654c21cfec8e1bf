//! A task of any size without a file: random inputs, labelled by a random two-layer network.
//!
//! Sample i is a pure function of i and the task's sizes, computed on demand. Inputs are uniform with
//! unit variance rather than normal, because that needs no logarithm. All sums run in index order in
//! `f64`, so that labels are the same on every machine.
//!
//! With noise, a share of the training labels is drawn at random instead (and may be right by chance); held-out labels
//! stay the teacher's, so that accuracy says how well it was imitated.

use super::Batch;
use crate::random::Stream;

/// Keys inputs and teacher. Not the job's seed: jobs that differ in their seed share the task.
const TASK_SEED: u64 = 0x7EAC_4E12;
/// Width of the teacher's hidden layer: enough for a task that no linear model solves.
const HIDDEN: usize = 16;
/// The uniform distribution on ±√3 has unit variance.
const SPREAD: f32 = 1.732_050_8;

/// The labelling network.
#[derive(Debug)]
pub(super) struct Teacher {
    /// Values of a sample.
    pub(super) features: usize,
    /// Classes told apart.
    pub(super) classes: usize,
    /// Share of the training labels that are drawn at random, 0…1.
    noise: f64,
    inputs: Stream,
    mistakes: Stream,
    /// `HIDDEN` rows of `features`.
    first: Vec<f32>,
    /// `classes` rows of `HIDDEN`.
    second: Vec<f32>,
}

impl Teacher {
    /// The teacher of a task of these sizes.
    pub(super) fn new(features: usize, classes: usize, noise: f64) -> Self {
        let stream = Stream::new(TASK_SEED, (features as u64) << 32 | classes as u64);
        let draw = |child: u64, len: usize| {
            (0..len as u64).map(|place| stream.child(child).signed_unit(place)).collect::<Vec<f32>>()
        };
        Teacher {
            features,
            classes,
            noise,
            inputs: stream.child(0),
            mistakes: stream.child(3),
            first: draw(1, HIDDEN * features),
            second: draw(2, classes * HIDDEN),
        }
    }

    /// Channels, height and width of a sample: a square where the features make one.
    pub(super) fn image(&self) -> [usize; 3] {
        let side = self.features.isqrt();
        if side * side == self.features { [1, side, side] } else { [1, 1, self.features] }
    }

    /// Appends sample `index` with the label that is trained on.
    pub(super) fn append_noisy(&self, index: u64, batch: &mut Batch) {
        self.append(index, batch);
        let dice = self.mistakes.child(index);
        if self.noise > 0.0
            && dice.unit(0) < self.noise
            && let Some(label) = batch.targets.last_mut()
        {
            *label = (dice.unit(1) * self.classes as f64) as u32;
        }
    }

    /// Appends sample `index`.
    pub(super) fn append(&self, index: u64, batch: &mut Batch) {
        let stream = self.inputs.child(index);
        let start = batch.values.len();
        batch.values.extend((0..self.features as u64).map(|place| SPREAD * stream.signed_unit(place)));
        batch.targets.push(self.label(&batch.values[start..]));
    }

    fn label(&self, input: &[f32]) -> u32 {
        let dot = |row: &[f32], values: &[f64]| -> f64 {
            row.iter().zip(values).map(|(weight, value)| f64::from(*weight) * value).sum()
        };
        let input: Vec<f64> = input.iter().copied().map(f64::from).collect();
        let hidden: Vec<f64> =
            self.first.chunks_exact(self.features).map(|row| dot(row, &input).max(0.0)).collect();
        // Scores are taken against the mean activation: otherwise the class with the largest weights
        // would win nearly always, since activations are never negative.
        let mean = hidden.iter().sum::<f64>() / HIDDEN as f64;
        let centred: Vec<f64> = hidden.iter().map(|value| value - mean).collect();
        let mut best = (0, f64::NEG_INFINITY);
        for (class, row) in self.second.chunks_exact(HIDDEN).enumerate() {
            let score = dot(row, &centred);
            if score > best.1 {
                best = (class as u32, score);
            }
        }
        best.0
    }

    /// Feeds the teacher and its first samples to a hasher.
    pub(super) fn digest(&self, hasher: &mut blake3::Hasher) {
        let mut batch = Batch::default();
        (0..16).for_each(|index| self.append(index, &mut batch));
        for floats in [&self.first, &self.second, &batch.values] {
            hasher.update(bytemuck::cast_slice(floats));
        }
        hasher.update(bytemuck::cast_slice(&batch.targets));
        if self.noise > 0.0 {
            hasher.update(&self.noise.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_replaces_its_share_of_the_training_labels_and_nothing_else() {
        let labels = |noise: f64, noisy: bool| {
            let (teacher, mut batch) = (Teacher::new(8, 4, noise), Batch::default());
            for index in 0..2000 {
                if noisy {
                    teacher.append_noisy(index, &mut batch)
                } else {
                    teacher.append(index, &mut batch)
                }
            }
            batch
        };
        let right = labels(0.0, false);
        assert_eq!(labels(0.0, true), right);
        assert_eq!(labels(0.4, false), right);
        let noisy = labels(0.4, true);
        assert_eq!(noisy.values, right.values);
        // A quarter of the labels drawn from four classes is right by chance: 600 are expected to be wrong.
        let wrong = noisy.targets.iter().zip(&right.targets).filter(|(a, b)| a != b).count();
        assert!((500..700).contains(&wrong), "{wrong} of 2000");
    }

    #[test]
    fn a_square_number_of_features_is_an_image() {
        assert_eq!([64, 20].map(|features| Teacher::new(features, 2, 0.0).image()), [[1, 8, 8], [1, 1, 20]]);
    }

    #[test]
    fn samples_do_not_depend_on_each_other_and_all_classes_occur() {
        let teacher = Teacher::new(8, 4, 0.0);
        let (mut together, mut alone) = (Batch::default(), Batch::default());
        (0..500).for_each(|index| teacher.append(index, &mut together));
        teacher.append(311, &mut alone);
        assert_eq!(alone.values, together.values[311 * 8..312 * 8]);
        assert_eq!(alone.targets[0], together.targets[311]);
        for class in 0..4 {
            let count = together.targets.iter().filter(|target| **target == class).count();
            assert!((25..300).contains(&count), "class {class} occurs {count} times in 500");
        }
    }
}
