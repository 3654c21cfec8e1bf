//! Results of a measurement, by what they are of.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;
use crate::lines::Lines;

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub(super) enum Line {
    /// An architecture that was trained from scratch.
    Truth { seed: u64, architecture: String, accuracy: f64, seconds: f64 },
    /// What the supernets of one seed say of the whole sample.
    Scores { method: String, seed: u64, scores: Vec<(String, f64)>, train_s: f64, score_s: f64 },
}

/// Scores of a method with one seed.
#[derive(Debug, Clone)]
pub(super) struct Scored {
    pub(super) scores: BTreeMap<String, f64>,
    /// Seconds of training all supernets that the scores need.
    pub(super) train_s: f64,
    /// Seconds of scoring the sample.
    pub(super) score_s: f64,
}

/// The file, and what it holds.
#[derive(Debug)]
pub(super) struct Record {
    lines: Lines,
    truth: BTreeMap<(u64, String), (f64, f64)>,
    scores: BTreeMap<(String, u64), Scored>,
}

impl Record {
    /// Opens the file, or begins it.
    pub(super) fn open(path: &Path, settings: &Value) -> Result<Record, Failure> {
        let (lines, held) = Lines::open(path, settings)?;
        let mut record = Record { lines, truth: BTreeMap::new(), scores: BTreeMap::new() };
        held.into_iter().for_each(|line| record.take(line));
        Ok(record)
    }

    /// Writes a result.
    pub(super) fn add(&mut self, line: Line) -> Result<(), Failure> {
        self.lines.add(&line)?;
        self.take(line);
        Ok(())
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Truth { seed, architecture, accuracy, seconds } => {
                self.truth.insert((seed, architecture), (accuracy, seconds));
            }
            Line::Scores { method, seed, scores, train_s, score_s } => {
                let scores = scores.into_iter().collect();
                self.scores.insert((method, seed), Scored { scores, train_s, score_s });
            }
        }
    }

    /// Accuracy and seconds from scratch.
    pub(super) fn truth(&self, seed: u64, architecture: &str) -> Option<(f64, f64)> {
        self.truth.get(&(seed, architecture.to_owned())).copied()
    }

    /// Seeds with which the sample was trained from scratch.
    pub(super) fn truth_seeds(&self) -> Vec<u64> {
        let mut seeds: Vec<u64> = self.truth.keys().map(|(seed, _)| *seed).collect();
        seeds.dedup();
        seeds
    }

    /// Whether a method has scored a sample of this size with this seed.
    pub(super) fn has_scores(&self, method: &str, seed: u64, count: usize) -> bool {
        self.scored(method, seed).is_some_and(|scored| scored.scores.len() == count)
    }

    /// The scores of a method with a seed.
    pub(super) fn scored(&self, method: &str, seed: u64) -> Option<&Scored> {
        self.scores.get(&(method.to_owned(), seed))
    }

    /// The seeds of a method.
    pub(super) fn seeds(&self, method: &str) -> Vec<u64> {
        self.scores.keys().filter(|(own, _)| own == method).map(|(_, seed)| *seed).collect()
    }
}
