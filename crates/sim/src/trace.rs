//! Traces: the jobs of a simulation, each with the work that it truly holds.

use std::sync::Arc;

use bellwether_core::cluster::Job;

/// One job of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What its author declared.
    pub job: Arc<Job>,
    /// Work in the units of the model that says its speed: seconds on the asked devices where it is declared by its
    /// duration, else steps or samples.
    pub work: f64,
    /// Row of the file, from 1; the header is row 1 where there is one.
    pub row: usize,
}
