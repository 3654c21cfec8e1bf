//! Seconds of a micro-batch by its size, from a few sizes that were measured.
//!
//! # Model
//!
//! ```text
//! t(m) = t_i + (m - m_i) s_i,   s_i = (t_(i+1) - t_i) / (m_(i+1) - m_i)     m_i <= m <= m_(i+1)
//! t(m) = max(m / m_1 t_1, min(t_1, t_1 + (m - m_1) s_1))                    m < m_1
//! t(m) = t_n + (m - m_n) max(s_(n-1), 0)                                    m > m_n
//! ```
//!
//! | symbol | meaning                                                    | unit     |
//! |--------|------------------------------------------------------------|----------|
//! | m      | samples of a micro-batch                                   | 1        |
//! | m_i    | i-th smallest measured size, of n                          | 1        |
//! | t_i    | seconds that it took                                       | s        |
//! | s_i    | seconds per sample between two measured sizes              | s/sample |
//!
//! Each piece is a fixed part and a part per sample. Small micro-batches do not fill a device: there the part per
//! sample is small, and it grows to that of the full device over the pieces.
//!
//! # Source
//!
//! None: of the laws that were tried (one line, a line with a floor, power laws, monotone cubic curves), straight
//! pieces miss the least on public tables. `cargo run --release -p bellwether-model --example accuracy_batches`.
//!
//! # Assumes
//!
//! No step in the time between two measured sizes, as of a kernel that another size chooses.
//!
//! # Valid
//!
//! Between the smallest and the largest measured size. [`Estimate::error`] is the distance to another belief that
//! cannot be ruled out: between two sizes, and above them, that no sample is faster than in the next larger size, or
//! the largest one (and no micro-batch shorter than the next smaller one); below them that none is shorter than the
//! smallest one.
//!
//! # Checked by
//!
//! `tests/it/batch_times.rs`: the closed form, bounds, held-out sizes of public tables.
//!
//! ```
//! use bellwether_model::batch_times::BatchTimes;
//! // A device that is full from 16 samples on: 10 ms up to there, and 0.5 ms per sample beyond.
//! let times = BatchTimes::new(&[(4.0, 0.010), (16.0, 0.010), (64.0, 0.034)])?;
//! assert!((times.at(40.0).seconds - 0.022).abs() < 1e-12);
//! assert!((times.at(128.0).seconds - 0.066).abs() < 1e-12);
//! // One of 2 samples takes as long as one of 4.
//! assert!((times.at(2.0).seconds - 0.010).abs() < 1e-12);
//! # Ok::<(), bellwether_core::InputError>(())
//! ```

use bellwether_core::InputError;
use bellwether_core::profile::MeasuredBatch;

use crate::common::check::not_positive;
use crate::common::pieces::{Pieces, Value};

const PLACE: &str = "batches";

/// Seconds of a micro-batch by its size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTimes {
    pieces: Pieces,
}

/// What is expected of a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Seconds.
    pub seconds: f64,
    /// By how much these may be off because of the size, relative to them; 0 at a measured size.
    pub error: f64,
    /// Whether the size lies within the measured ones.
    pub inside: bool,
}

impl BatchTimes {
    /// The law of measured (samples, seconds), in any order.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than two sizes, a size that is there twice, samples or seconds that are not positive
    /// and finite.
    pub fn new(measured: &[(f64, f64)]) -> Result<BatchTimes, InputError> {
        for &(samples, seconds) in measured {
            not_positive(PLACE, "the samples of a micro-batch", samples)?;
            not_positive(PLACE, "the seconds of a micro-batch", seconds)?;
        }
        let pieces = Pieces::new(measured).ok_or_else(|| {
            let what =
                format!("{} sizes of a micro-batch, or one twice, say nothing of another", measured.len());
            InputError::new(PLACE, what).hint("measure two or more: profile JOB --batches 16,64,256")
        })?;
        Ok(BatchTimes { pieces })
    }

    /// The law of a profile's batches; `None` where it measured none but its own.
    ///
    /// # Errors
    ///
    /// Those of [`new`](BatchTimes::new).
    pub fn of(batches: &[MeasuredBatch]) -> Result<Option<BatchTimes>, InputError> {
        if batches.is_empty() {
            return Ok(None);
        }
        let points: Vec<(f64, f64)> =
            batches.iter().map(|batch| (batch.samples as f64, batch.compute_s)).collect();
        BatchTimes::new(&points).map(Some)
    }

    /// The smallest and the largest measured size, in samples.
    pub fn range(&self) -> (f64, f64) {
        self.pieces.range()
    }

    /// What a micro-batch of `samples`, above 0, takes.
    pub fn at(&self, samples: f64) -> Estimate {
        let Value { value: seconds, other: other_s, inside } = self.pieces.at(samples);
        Estimate { seconds, error: (other_s / seconds - 1.0).abs(), inside }
    }
}
