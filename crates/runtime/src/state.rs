//! All that training changes: parameters, optimizer slots, model state, and how far it is.

use std::ops::Range;

use crate::noise::Noise;
use crate::optimizer::{Update, UpdateRule};
use crate::workload::{Layout, WorkloadError};

/// Elements of the parameter vector in one chunk of a state stream.
pub const CHUNK_ELEMENTS: usize = 1 << 16;

/// The replica of one worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingState {
    /// Applied steps.
    pub step: u64,
    /// Parameters in layout order.
    pub parameters: Vec<f32>,
    /// Optimizer slots, each as long as the parameters.
    pub slots: Vec<Vec<f32>>,
    /// Model state in layout order.
    pub model_state: Vec<f32>,
    /// How noisy the gradient was, where it is measured.
    pub noise: Noise,
}

/// A result of one update: what the update needs, the same on all workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduced<'a> {
    /// Sums over the update's samples: gradient of each parameter, then each model state value times samples.
    pub sums: &'a [f32],
    /// Samples of the update.
    pub samples: u64,
    /// What the elements share.
    pub update: Update,
    /// The noise as it is known after the update.
    pub noise: Noise,
}

/// Whether no value is infinite or not a number: one that is has all bits of its exponent set, and only
/// then does adding one to the exponent reach the sign. Integers, so that it vectorises.
pub fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    const ONE: u32 = 1 << 23;
    let seen = values.iter().fold(0, |seen, value| seen | ((value.to_bits() & EXPONENT) + ONE));
    seen >> 31 == 0
}

impl TrainingState {
    /// A state of zeros for this layout and number of slots.
    pub fn zeros(layout: &Layout, slots: usize) -> Self {
        let count = layout.parameter_count();
        TrainingState {
            step: 0,
            parameters: vec![0.0; count],
            slots: vec![vec![0.0; count]; slots],
            model_state: vec![0.0; layout.state_count()],
            noise: Noise::default(),
        }
    }

    /// Bytes of the whole state.
    pub fn bytes(&self) -> u64 {
        4 * (self.parameters.len() * (1 + self.slots.len()) + self.model_state.len()) as u64
    }

    /// The vectors in order: parameters, optimizer slots, model state.
    pub(crate) fn vectors_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let slots = self.slots.iter_mut().map(Vec::as_mut_slice);
        std::iter::once(&mut self.parameters[..])
            .chain(slots)
            .chain(std::iter::once(&mut self.model_state[..]))
    }

    /// BLAKE3 over parameters, then optimizer slots, then model state (little-endian `f32`).
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytemuck::cast_slice(&self.parameters));
        for slot in &self.slots {
            hasher.update(bytemuck::cast_slice(slot));
        }
        hasher.update(bytemuck::cast_slice(&self.model_state));
        hasher.finalize().into()
    }

    /// Number of chunks that a stream of the state consists of. The last holds the model state.
    pub fn chunks(&self) -> usize {
        self.parameters.len().div_ceil(CHUNK_ELEMENTS) + usize::from(!self.model_state.is_empty())
    }

    fn chunk_range(&self, chunk: usize) -> Option<Range<usize>> {
        let start = chunk * CHUNK_ELEMENTS;
        (start < self.parameters.len()).then(|| start..(start + CHUNK_ELEMENTS).min(self.parameters.len()))
    }

    /// The chunk with this number, if it holds parameters, and which.
    pub(crate) fn parameters_of(&self, chunk: u64) -> Option<(usize, Range<usize>)> {
        let chunk = usize::try_from(chunk).ok().filter(|chunk| *chunk < self.chunks())?;
        self.chunk_range(chunk).map(|range| (chunk, range))
    }

    /// Number of `f32` in a chunk.
    pub fn chunk_len(&self, chunk: usize) -> usize {
        self.chunk_range(chunk).map_or(self.model_state.len(), |r| r.len() * (1 + self.slots.len()))
    }

    /// Copies a chunk out: the parameters of its range, then each slot's, or the model state.
    pub fn read_chunk(&self, chunk: usize, out: &mut Vec<f32>) {
        out.clear();
        match self.chunk_range(chunk) {
            Some(range) => {
                out.extend_from_slice(&self.parameters[range.clone()]);
                self.slots.iter().for_each(|slot| out.extend_from_slice(&slot[range.clone()]));
            }
            None => out.extend_from_slice(&self.model_state),
        }
    }

    /// Copies a chunk in.
    ///
    /// # Panics
    ///
    /// When `values` has another length than [`chunk_len`](Self::chunk_len): the stream has checked it.
    pub fn write_chunk(&mut self, chunk: usize, values: &[f32]) {
        let Some(range) = self.chunk_range(chunk) else {
            return self.model_state.copy_from_slice(values);
        };
        let mut parts = values.chunks_exact(range.len());
        let mut next = || parts.next().expect("a chunk has a part for the parameters and for each slot");
        self.parameters[range.clone()].copy_from_slice(next());
        for slot in &mut self.slots {
            slot[range.clone()].copy_from_slice(next());
        }
    }

    /// Applies the update to the whole state and counts its steps.
    ///
    /// False where a value is not finite from then on.
    ///
    /// # Errors
    ///
    /// Those of the rule. Some chunks have the update then, and others lack it.
    pub fn apply(&mut self, rule: &mut dyn UpdateRule, reduced: Reduced<'_>) -> Result<bool, WorkloadError> {
        let mut is_finite = true;
        for chunk in 0..self.chunks() {
            self.apply_chunk(rule, reduced, chunk)?;
            // While it is in the processor's cache.
            is_finite &= self.is_chunk_finite(chunk);
        }
        self.counted(&reduced);
        Ok(is_finite)
    }

    fn is_chunk_finite(&self, chunk: usize) -> bool {
        match self.chunk_range(chunk) {
            Some(range) => {
                let vectors = self.slots.iter().chain([&self.parameters]);
                vectors.fold(true, |finite, values| finite & all_finite(&values[range.clone()]))
            }
            None => all_finite(&self.model_state),
        }
    }

    /// Counts the steps of an update that was applied to all chunks.
    pub fn counted(&mut self, reduced: &Reduced<'_>) {
        self.step = reduced.update.step + reduced.update.steps;
        self.noise = reduced.noise;
    }

    /// Applies the update to one chunk, without counting its steps.
    ///
    /// # Errors
    ///
    /// Those of the rule.
    pub fn apply_chunk(
        &mut self,
        rule: &mut dyn UpdateRule,
        reduced: Reduced<'_>,
        chunk: usize,
    ) -> Result<(), WorkloadError> {
        let Some(range) = self.chunk_range(chunk) else {
            let sums = &reduced.sums[self.parameters.len()..];
            for (value, sum) in self.model_state.iter_mut().zip(sums) {
                *value = sum / reduced.samples as f32;
            }
            return Ok(());
        };
        let mut slots: Vec<&mut [f32]> = self.slots.iter_mut().map(|slot| &mut slot[range.clone()]).collect();
        let parameters = &mut self.parameters[range.clone()];
        rule.apply(reduced.update, range.start, parameters, &mut slots, &reduced.sums[range])
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_values_are_finite() {
        let mut values = [0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1.5];
        assert!(all_finite(&values) && all_finite(&[]));
        for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            values[3] = wrong;
            assert!(!all_finite(&values), "{wrong}");
        }
    }
}
