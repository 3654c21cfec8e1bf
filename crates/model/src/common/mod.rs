//! What the models share: answers without an interval, refusals of unusable numbers, parameters of fitted models.

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod parameter;
pub(crate) mod pieces;

/// Logarithm of the largest factor between a prediction and an end of its interval: what is beyond it says nothing,
/// and the ends stay finite.
pub(crate) const SPREAD_MAX: f64 = 20.0;
