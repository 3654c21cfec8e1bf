//! Throughput scaling efficiency with a threshold.
//!
//! # Idea
//!
//! Further workers are kept when each does more than a part S of the work of those before them:
//! `s = ((R_k - R_j) / (k - j)) / (R_j / j) > S`, with R the samples per second of j and of k > j workers.
//!
//! # Bad when
//!
//! Every size in between is visited, and each visit upwards waits for workers to boot.

use super::search::{Test, efficiency, walk};
use super::{Decision, Heuristic, Situation};

/// Grows while further workers are efficient enough.
#[derive(Debug, Clone, Copy)]
pub struct Efficiency {
    /// The least efficiency that is paid for, 0 to 1.
    pub threshold: f64,
}

impl Heuristic for Efficiency {
    fn decide(&self, situation: &Situation) -> Decision {
        walk(situation, |smaller, larger| Test { gain: efficiency(smaller, larger), needed: self.threshold })
    }
}
