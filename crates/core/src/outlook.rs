//! What is asked about the jobs of a living cluster, and what is answered: when they may start and end.
//!
//! A daemon asks and a simulator answers; neither knows the other.

use std::sync::Arc;

use crate::cluster::{ClusterView, Job};
use crate::knowledge::Knowledge;

/// A cluster at one moment, and what its past says of what may come.
#[derive(Debug, Clone)]
pub struct Present {
    /// The moment, in seconds.
    pub now_s: f64,
    /// The cluster with the jobs that are there, and all of the work that they declared and have not done. A job of
    /// which nothing is known is taken to be at its end.
    pub view: ClusterView,
    /// What the policy is told of that: all of it, or what is to be expected.
    pub remaining: Knowledge,
    /// What came before.
    pub past: Past,
}

/// What happened of late.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// Jobs that came, with their work.
    pub arrivals: Vec<(Arc<Job>, f64)>,
    /// Seconds over which they came.
    pub over_s: f64,
    /// Of jobs that ended their model (what jobs of one kind have in common) and the part of their work that they had
    /// done.
    pub parts: Vec<(String, f64)>,
    /// Of jobs that started the seconds from the decision until they made progress.
    pub starts_s: Vec<f64>,
}

/// When something happens, in seconds: the interval that holds it nine times of ten, and the middle. What may never
/// happen is infinitely late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// The earliest.
    pub low_s: f64,
    /// The median.
    pub middle_s: f64,
    /// The latest.
    pub high_s: f64,
}

/// What may become of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// When it gets devices; `None` for one that has some.
    pub start: Option<Times>,
    /// When it ends.
    pub end: Times,
}

/// How often something happened within the interval that was foreseen for it, which is meant to hold nine of ten.
///
/// ```
/// use bellwether_core::outlook::Coverage;
/// let mut coverage = Coverage::default();
/// [5.0, 15.0, 25.0].into_iter().for_each(|time_s| coverage.count((10.0, 20.0), time_s));
/// assert_eq!(coverage, Coverage { all: 3, within: 1, early: 1 });
/// assert_eq!(coverage.late(), 1);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// How often it happened.
    pub all: u64,
    /// How often within the interval.
    pub within: u64,
    /// How often before it.
    pub early: u64,
}

impl Coverage {
    /// It happened at `time_s`, and an interval was foreseen, all in seconds.
    pub fn count(&mut self, (low_s, high_s): (f64, f64), time_s: f64) {
        self.all += 1;
        self.within += u64::from((low_s..=high_s).contains(&time_s));
        self.early += u64::from(time_s < low_s);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: Coverage) {
        self.all += other.all;
        self.within += other.within;
        self.early += other.early;
    }

    /// How often after the interval.
    pub fn late(&self) -> u64 {
        self.all - self.within - self.early
    }

    /// The part that lay within the interval; 0 of none.
    pub fn share(&self) -> f64 {
        self.within as f64 / self.all.max(1) as f64
    }
}
