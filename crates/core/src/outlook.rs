//! What is asked about the jobs of a living cluster, and what is answered: when they may start and end.
//!
//! A daemon asks and a simulator answers; neither knows the other.

use std::sync::Arc;

use crate::cluster::{ClusterView, Job};

/// A cluster at one moment, and what its past says of what may come.
#[derive(Debug, Clone)]
pub struct Present {
    /// The moment, in seconds.
    pub now_s: f64,
    /// The cluster with the jobs that are there, and what is believed of the work that remains. A job of which nothing
    /// is believed is taken to be at its end.
    pub view: ClusterView,
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
    /// Of jobs that ended the part of their work that they had done.
    pub parts: Vec<f64>,
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
