//! Elastic batch inference: a trained model is applied to rows by workers that come, go and die.
//!
//! A coordinator cuts rows into units and hands them out; workers send back what the model says of each row. Every unit
//! counts once, and results leave in the order of the rows. There is no step and no membership: workers do not know one
//! another, and one that dies costs the units that it held.
//!
//! # The same bits
//!
//! A row's scores depend on the model, the row and the kernel class alone. Kernels may add in another order in a batch
//! of another size, so a row is always computed at the same place (its number modulo [`BLOCK`]) of a batch of that many
//! rows; places without a row hold zeros. So neither the number of workers, nor the cut into units, nor the
//! moment at which a row came changes a bit.
//!
//! # Parts
//!
//! - [`desk`]: who computes which unit, and which result is next; pure.
//! - [`wire`]: what a coordinator and its workers say to each other.
//! - [`coordinator`] and [`worker`]: they carry it out over the run's secure channel.

pub mod coordinator;
pub mod desk;
mod hands;
pub mod wire;
mod work;
pub mod worker;

use std::ops::Range;

use crate::workload::{Evaluation, Examined};

/// Rows of a batch. A model that is larger than the memory for this many is too large for the machine.
pub const BLOCK: usize = 256;

/// What a worker is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The scores of rows: `values` has `width` numbers of each, and the first is row `first` of all.
    Predict {
        /// Number of the first row, from 0.
        first: u64,
        /// Numbers of one row; positive.
        width: usize,
        /// Row by row.
        values: Vec<f32>,
    },
    /// An evaluation of these held-out samples.
    Examine(Range<u64>),
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Row by row, the same number for each.
    Scores(Vec<f32>),
    /// The sums over the samples, and each prediction where the workload knows it.
    Examined(Evaluation, Vec<Examined>),
}
