//! The parameters of a worker that averages: read, updated and averaged chunk by chunk, by several threads.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use crate::state::CHUNK_ELEMENTS;

/// Share of the difference that both sides give up: then both hold the mean.
const HALF: f32 = 0.5;

/// Share for a chunk that is under way to a peer itself.
const QUARTER: f32 = 0.25;

/// How often a chunk is averaged with others while it is under way.
const MEANWHILE_MAX: u8 = 2;

#[derive(Debug)]
struct Chunk {
    values: Vec<f32>,
    /// While it is under way to a peer: how often it was averaged with others since.
    meanwhile: Option<u8>,
}

/// A vector in chunks, each under a lock of its own that is held for arithmetic only.
///
/// Of two workers that average a chunk, one *lends* its values; the other takes a share of the difference, and says
/// what it took; the first one *settles* by taking it off. What one gains the other loses, so that the sum over all
/// workers stays, whatever happens to the lent chunk meanwhile.
///
/// The share is a half: both hold the mean. A chunk that is lent itself when a third worker comes has already promised
/// up to a half of what it lent: with the third worker it shares a quarter, and at most twice. So every value always
/// is a weighted mean of what the workers held before, with no negative weight: `1 · 3/4 · 3/4 − 1/2 > 0`.
#[derive(Debug)]
pub struct Shared {
    chunks: Vec<Mutex<Chunk>>,
    len: usize,
}

impl Shared {
    /// A vector of these values.
    pub fn new(values: &[f32]) -> Shared {
        let chunk = |values: &[f32]| Mutex::new(Chunk { values: values.to_vec(), meanwhile: None });
        Shared { chunks: values.chunks(CHUNK_ELEMENTS).map(chunk).collect(), len: values.len() }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies all values; each chunk is of one moment.
    ///
    /// # Panics
    ///
    /// When `out` has another length.
    pub fn read(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.len);
        for (chunk, out) in out.chunks_mut(CHUNK_ELEMENTS).enumerate() {
            out.copy_from_slice(&self.lock(chunk).values);
        }
    }

    /// Changes all values, chunk by chunk; `change` is given where a chunk lies in the vector.
    pub fn update(&self, mut change: impl FnMut(Range<usize>, &mut [f32])) {
        for chunk in 0..self.chunks.len() {
            let start = chunk * CHUNK_ELEMENTS;
            let mut chunk = self.lock(chunk);
            change(start..start + chunk.values.len(), &mut chunk.values);
        }
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Number of values of a chunk.
    pub(super) fn chunk_len(&self, chunk: usize) -> usize {
        CHUNK_ELEMENTS.min(self.len - chunk * CHUNK_ELEMENTS)
    }

    /// Copies a chunk out.
    pub(super) fn copy(&self, chunk: usize, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(&self.lock(chunk).values);
    }

    /// Replaces a chunk.
    pub(super) fn write(&self, chunk: usize, values: &[f32]) {
        self.lock(chunk).values.copy_from_slice(values);
    }

    /// Copies a chunk out, to offer it to a peer: it is under way until it is [settled](Self::settle).
    pub(super) fn lend(&self, chunk: usize, out: &mut Vec<f32>) {
        let mut chunk = self.lock(chunk);
        chunk.meanwhile = Some(0);
        out.clear();
        out.extend_from_slice(&chunk.values);
    }

    /// Takes off what a peer took of a lent chunk.
    pub(super) fn settle(&self, chunk: usize, taken: &[f32]) {
        let mut chunk = self.lock(chunk);
        chunk.meanwhile = None;
        chunk.values.iter_mut().zip(taken).for_each(|(own, taken)| *own -= taken);
    }

    /// Nothing is under way any more.
    pub(super) fn settle_all(&self) {
        (0..self.chunks.len()).for_each(|chunk| self.lock(chunk).meanwhile = None);
    }

    /// Averages a chunk with what a peer lent, and turns `lent` into what was taken of it. `false` when nothing was:
    /// the chunk is averaged with too many others already, or a value would not be finite.
    pub(super) fn take(&self, chunk: usize, lent: &mut [f32]) -> bool {
        let mut chunk = self.lock(chunk);
        let share = if chunk.meanwhile.is_some() { QUARTER } else { HALF };
        let finite = |(lent, own): (&f32, &f32)| (lent - own).is_finite();
        if chunk.meanwhile == Some(MEANWHILE_MAX) || !lent.iter().zip(&chunk.values).all(finite) {
            return false;
        }
        chunk.meanwhile = chunk.meanwhile.map(|times| times + 1);
        for (own, lent) in chunk.values.iter_mut().zip(lent) {
            *lent = share * (*lent - *own);
            *own += *lent;
        }
        true
    }

    fn lock(&self, chunk: usize) -> MutexGuard<'_, Chunk> {
        self.chunks[chunk].lock().expect("no update has panicked")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Workers begin with the rows of the unit matrix, so that what they hold later are the weights.
        #[test]
        fn every_value_stays_a_mean_and_the_sum_stays(
            workers in 2..6usize, deeds in prop::collection::vec((0..6usize, 0..6usize, 0..3u8), 0..300),
        ) {
            let row = |me| (0..workers).map(|at| f32::from(u8::from(at == me))).collect::<Vec<f32>>();
            let all: Vec<Shared> = (0..workers).map(|me| Shared::new(&row(me))).collect();
            // What each has lent, and how much of that was taken.
            let mut lent: Vec<Option<(Vec<f32>, bool)>> = vec![None; workers];
            for (me, peer, deed) in deeds {
                let (me, peer) = (me % workers, peer % workers);
                match (deed, &mut lent[me]) {
                    (0, under_way @ None) => {
                        let mut values = Vec::new();
                        all[me].lend(0, &mut values);
                        *under_way = Some((values, false));
                    }
                    (1, Some((values, taken @ false))) if peer != me => *taken = all[peer].take(0, values),
                    (2, under_way) => {
                        if let Some((values, true)) = under_way.take() {
                            all[me].settle(0, &values);
                        }
                        all[me].settle_all();
                    }
                    _ => {}
                }
            }
            for (me, under_way) in lent.iter_mut().enumerate() {
                if let Some((values, true)) = under_way.take() {
                    all[me].settle(0, &values);
                }
            }
            let mut columns = vec![0.0; workers];
            for shared in &all {
                let mut weights = vec![0.0; workers];
                shared.read(&mut weights);
                prop_assert!(weights.iter().all(|weight| *weight >= -1e-6), "{weights:?}");
                prop_assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                columns.iter_mut().zip(&weights).for_each(|(column, weight)| *column += weight);
            }
            prop_assert!(columns.iter().all(|column| (column - 1.0).abs() < 1e-5), "{columns:?}");
        }
    }

    #[test]
    fn a_chunk_that_is_under_way_gives_two_others_a_quarter() {
        let shared = Shared::new(&[1.0, 0.0, 0.0, 0.0, 0.0]);
        let other = |at: usize| std::array::from_fn::<f32, 5, _>(|place| f32::from(u8::from(place == at)));
        let mut lent = Vec::new();
        shared.lend(0, &mut lent);
        assert!(Shared::new(&other(1)).take(0, &mut lent));
        assert!(shared.take(0, &mut other(2)) && shared.take(0, &mut other(3)));
        assert!(!shared.take(0, &mut other(4)));
        shared.settle(0, &lent);
        let mut values = [0.0; 5];
        shared.read(&mut values);
        assert_eq!(values, [0.0625, 0.5, 0.1875, 0.25, 0.0]);
        // Settled either way, it is averaged in full again.
        shared.lend(0, &mut lent);
        shared.settle_all();
        shared.read(&mut values);
        let mut more = values.map(|value| value + 1.0);
        assert!(shared.take(0, &mut more));
        assert_eq!(more, [0.5; 5]);
        shared.lend(0, &mut lent);
        shared.settle(0, &[0.0; 5]);
        shared.read(&mut values);
        let mut more = values.map(|value| value + 1.0);
        assert!(shared.take(0, &mut more));
        assert_eq!(more, [0.5; 5]);
    }

    #[test]
    fn what_is_not_finite_is_not_averaged() {
        let shared = Shared::new(&[1.0, 2.0]);
        assert!(!shared.take(0, &mut [3.0, f32::NAN]));
        assert!(shared.take(0, &mut [3.0, 4.0]));
        let mut values = [0.0; 2];
        shared.read(&mut values);
        assert_eq!(values, [2.0, 3.0]);
    }
}
