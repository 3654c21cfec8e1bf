//! Goodput, and the batch and accumulation that maximise it.

use bellwether_core::error::InputError;

use super::{Throughput, overlapped};
use crate::batch_times::BatchTimes;
use crate::common::check;

/// Global batches that the search looks at.
const CANDIDATES: u32 = 50;
/// A quotient this close above a whole number is meant to be that number.
const ROUNDING: f64 = 1e-8;

/// Between what a job's batch may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Global batch that the job's author chose, in samples; efficiency is 1 there.
    pub initial: u64,
    /// Largest global batch, in samples.
    pub largest: u64,
    /// Smallest and largest micro-batch of one replica, in samples.
    pub local: (u64, u64),
}

/// Throughput and statistical efficiency of a job, ready for many questions.
#[derive(Debug, Clone, PartialEq)]
pub struct Goodput {
    throughput: Throughput,
    /// Of a micro-batch by its size, in place of the throughput's straight line.
    batch_times: Option<BatchTimes>,
    noise_scale: f64,
    limits: BatchLimits,
}

/// The best batch of one configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Optimum {
    /// Samples of one micro-batch of one replica.
    pub local_batch: u64,
    /// Micro-batches accumulated before the one that is exchanged.
    pub accumulation_steps: u32,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Progress per sample, relative to that at the initial batch.
    pub efficiency: f64,
    /// Their product: samples per second that count.
    pub goodput: f64,
}

/// Gradient noise scale in samples, from the squared norm of the mean gradient and the variance of the
/// gradient of a batch of `initial` samples.
///
/// # Errors
///
/// Returns an error for a statistic that is negative or not finite, or a squared norm of 0.
pub fn noise_scale(initial: u64, gradient_square: f64, gradient_variance: f64) -> Result<f64, InputError> {
    let place = "gradient statistics";
    check::not_positive(place, "the squared norm", gradient_square)?;
    check::negative(place, "the variance", gradient_variance)?;
    Ok(initial as f64 * gradient_variance / gradient_square)
}

/// Progress per sample at `batch`, relative to that at `initial`, under a noise scale in samples.
pub fn efficiency(noise_scale: f64, initial: f64, batch: f64) -> f64 {
    (noise_scale + initial) / (noise_scale + batch)
}

impl Goodput {
    /// A job with a fitted throughput, a gradient noise scale in samples, and limits of its batch.
    ///
    /// # Errors
    ///
    /// Returns an error for limits that leave no batch, or a noise scale that is negative or not finite.
    pub fn new(throughput: Throughput, noise_scale: f64, limits: BatchLimits) -> Result<Goodput, InputError> {
        let BatchLimits { initial, largest, local: (smallest_local, largest_local) } = limits;
        let place = "batch limits";
        if initial == 0 || smallest_local == 0 {
            return Err(InputError::new(place, "a batch of 0 samples").hint("give at least 1"));
        }
        if largest < initial || largest_local < smallest_local {
            let what = format!("{initial}..{largest} samples, {smallest_local}..{largest_local} per replica");
            return Err(InputError::new(place, what).hint("the largest must be at least the smallest"));
        }
        check::negative("goodput", "the noise scale in samples", noise_scale)?;
        Ok(Goodput { throughput, batch_times: None, noise_scale, limits })
    }

    /// The same, whose micro-batches take what was measured of them ([`crate::batch_times`]) in place of
    /// `a_c + b_c b`: small ones that do not fill a device take longer than a line through large ones says, so that the
    /// best batch is larger.
    #[must_use]
    pub fn with_batch_times(self, batch_times: BatchTimes) -> Goodput {
        Goodput { batch_times: Some(batch_times), ..self }
    }

    /// The throughput and progress of one batch; its `local_batch` is not checked against the limits.
    pub fn evaluate(&self, nodes: u32, replicas: u32, local_batch: u64, accumulation_steps: u32) -> Optimum {
        let exchange_s = self.throughput.exchange_s(nodes, replicas);
        self.at(exchange_s, replicas, local_batch, accumulation_steps)
    }

    fn at(&self, exchange_s: f64, replicas: u32, local_batch: u64, accumulation_steps: u32) -> Optimum {
        let gradient_s = match &self.batch_times {
            Some(times) => times.at(local_batch as f64).seconds,
            None => self.throughput.gradient_s(local_batch as f64),
        };
        let step_s = f64::from(accumulation_steps) * gradient_s
            + overlapped(gradient_s, exchange_s, self.throughput.gamma);
        let batch = f64::from(replicas) * local_batch as f64 * (f64::from(accumulation_steps) + 1.0);
        let examples_per_s = batch / step_s;
        let efficiency = efficiency(self.noise_scale, self.limits.initial as f64, batch);
        Optimum {
            local_batch,
            accumulation_steps,
            examples_per_s,
            efficiency,
            goodput: examples_per_s * efficiency,
        }
    }

    /// The best of 50 global batches in geometric steps from the smallest to the largest that the limits
    /// allow; each is shared out by the fewest micro-batches and rounded up to whole samples. One replica
    /// above the initial batch accumulates at least once: its gradient's variance could not be measured
    /// otherwise.
    ///
    /// `None` when the replicas cannot share the largest batch, or there is no replica.
    pub fn optimum(&self, nodes: u32, replicas: u32) -> Option<Optimum> {
        let exchange_s = self.throughput.exchange_s(nodes, replicas);
        best(self.limits.candidates(replicas).map(|(local_batch, accumulation_steps)| {
            self.at(exchange_s, replicas, local_batch, accumulation_steps)
        }))
    }
}

/// The first of those with most goodput.
pub(crate) fn best(candidates: impl Iterator<Item = Optimum>) -> Option<Optimum> {
    candidates.reduce(|best, found| if found.goodput > best.goodput { found } else { best })
}

impl BatchLimits {
    /// The local batches and accumulation steps that [`Goodput::optimum`] looks at.
    pub(crate) fn candidates(self, replicas: u32) -> impl Iterator<Item = (u64, u32)> {
        let BatchLimits { initial, largest, local } = self;
        let k = f64::from(replicas);
        let smallest = (initial as f64).max(k * local.0 as f64);
        let count = if replicas == 0 || smallest > largest as f64 { 0 } else { CANDIDATES };
        let ratio = (largest as f64 / smallest).powf(1.0 / f64::from(CANDIDATES - 1));
        let mut share = smallest / k;
        let mut seen = (0, 0);
        let candidates = (0..count).map(move |_| {
            let mut pieces = (share / local.1 as f64 - ROUNDING).ceil().max(1.0);
            if replicas == 1 && share > initial as f64 + ROUNDING {
                pieces = pieces.max(2.0);
            }
            let local_batch = ((share / pieces - ROUNDING).ceil() as u64).clamp(local.0, local.1);
            share *= ratio;
            (local_batch, pieces as u32 - 1)
        });
        candidates.filter(move |candidate| std::mem::replace(&mut seen, *candidate) != *candidate)
    }
}
