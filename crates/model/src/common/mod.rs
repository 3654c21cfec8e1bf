//! What the models share: answers without an interval, refusals of unusable numbers, parameters of fitted models, searches for the best ones.

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod least_squares;
mod matrix;
pub mod minimize;
pub(crate) mod parameter;

pub(crate) use matrix::{cholesky, inverse, solve, squared};

/// Logarithm of the largest factor between a prediction and an end of its interval: what is beyond it says nothing,
/// and the ends stay finite.
pub(crate) const SPREAD_MAX: f64 = 20.0;
