//! Answers that are asked for once: what a search has seen, and the questions of one step as one batch.

use std::collections::{BTreeMap, BTreeSet};

/// Answers by the levels that they are for.
pub(super) struct Known<T, F> {
    answers: BTreeMap<Vec<u32>, T>,
    ask: F,
}

impl<T: Clone, E, F: FnMut(&[Vec<u32>]) -> Result<Vec<T>, E>> Known<T, F> {
    pub(super) fn new(ask: F) -> Known<T, F> {
        Known { answers: BTreeMap::new(), ask }
    }

    /// Of these, those that have no answer yet, each once.
    fn unknown(&self, levels: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let unknown: BTreeSet<&Vec<u32>> =
            levels.iter().filter(|levels| !self.answers.contains_key(*levels)).collect();
        unknown.into_iter().cloned().collect()
    }

    /// How many of these would have to be asked for.
    pub(super) fn missing(&self, levels: &[Vec<u32>]) -> u64 {
        self.unknown(levels).len() as u64
    }

    /// An answer for each; those that are not known are asked for together.
    pub(super) fn all(&mut self, levels: &[Vec<u32>]) -> Result<Vec<T>, E> {
        let unknown = self.unknown(levels);
        if !unknown.is_empty() {
            let answers = (self.ask)(&unknown)?;
            assert_eq!(answers.len(), unknown.len(), "there is an answer to each question");
            self.answers.extend(unknown.into_iter().zip(answers));
        }
        Ok(levels.iter().map(|levels| self.answers[levels].clone()).collect())
    }

    pub(super) fn one(&mut self, levels: &[u32]) -> Result<T, E> {
        Ok(self.all(&[levels.to_vec()])?.swap_remove(0))
    }

    /// How many answers were asked for.
    pub(super) fn evaluations(&self) -> u64 {
        self.answers.len() as u64
    }
}
