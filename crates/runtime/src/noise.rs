//! How noisy the gradient is: what a larger batch is worth, and how far the learning rate may follow it.
//!
//! # Model
//!
//! An update adds up the gradients of m micro-batches of n1 … nm samples, drawn without replacement from the P of an
//! epoch. With g the mean gradient of all of these and S the trace of the covariance of one sample's gradient (over P -
//! 1), the sum Gi of a micro-batch and the sum G of all N samples obey
//!
//! ```text
//! E |Gi|^2 = ni^2 (|g|^2 - S / P) + ni S          E |G|^2 = N^2 (|g|^2 - S / P) + N S
//! ```
//!
//! so that, with A = sum |Gi|^2, Q = sum ni^2 and M = sum ni over some of the micro-batches,
//!
//! ```text
//! S = (A - Q |G|^2 / N^2) / (M - Q / N)           |g|^2 = (|G|^2 - N S) / N^2 + S / P
//! ```
//!
//! have the right expectations, whatever the sizes of the micro-batches. Those of every eighth step count: a norm is a
//! pass over the gradient. Both are smoothed with the same weights over about three hundred steps. The noise scale is S
//! / |g|^2, in samples. A batch of a B samples makes the progress of r = a (s + B) / (s + a B) batches of B, 1 ≤ r ≤ a,
//! with s the noise scale: the gain of AdaScale.
//!
//! # Source
//!
//! McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A (two batch sizes, here any; with
//! replacement, here without);
//! Johnson et al., "AdaScale SGD", ICML 2020.
//!
//! # Assumes
//!
//! Which samples come next does not depend on what the parameters learnt from those before in the epoch. The noise is
//! that of the plain gradient, also for Adam, which divides by its own estimate of it.

/// Share of the past that remains after one step.
const KEPT_PER_STEP: f64 = 0.997;

/// One in this many steps is measured.
const EVERY: u64 = 8;

/// Whether the micro-batches of this step are measured.
pub fn measures(step: u64) -> bool {
    step.is_multiple_of(EVERY)
}

/// A noise scale beyond which no batch matters; where the gradient is lost in noise, this is what is said.
pub const SCALE_MAX: f64 = 1e9;

/// What one update measures.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// Sum over the measured micro-batches of the square norm of their summed gradients.
    pub squares: f64,
    /// Square norm of the sum of all.
    pub total: f64,
    /// Samples of all.
    pub samples: u64,
    /// Samples of the measured ones.
    pub measured: u64,
    /// Sum over the measured micro-batches of their samples, squared.
    pub measured_squared: u64,
    /// Samples of an epoch.
    pub population: u64,
}

impl Measured {
    /// Square norm of the mean gradient of all samples, and the trace of the covariance of one sample's gradient.
    /// `None` for a single micro-batch, or none, which tells nothing.
    ///
    /// ```
    /// use bellwether_runtime::noise::Measured;
    /// // Two micro-batches of one sample each, with gradients 1 and 3, and there are no others.
    /// let measured = Measured { squares: 10.0, total: 16.0, samples: 2, measured: 2, measured_squared: 2, population: 2 };
    /// assert_eq!(measured.estimate(), Some((4.0, 2.0)));
    /// ```
    pub fn estimate(&self) -> Option<(f64, f64)> {
        let (all, parts) = (self.samples as f64, self.measured_squared as f64);
        let spread = self.measured as f64 - parts / all;
        let noise = (self.squares - parts * self.total / (all * all)) / spread;
        let signal = (self.total - all * noise) / (all * all) + noise / self.population as f64;
        (spread > 0.0 && signal.is_finite() && noise.is_finite()).then_some((signal, noise))
    }
}

/// Smoothed estimates: a part of the training state.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Noise {
    /// Square norm of the gradient, too small by a factor that [`noise`](Noise::noise) shares.
    pub signal: f64,
    /// Trace of the covariance of one sample's gradient, with the same factor.
    pub noise: f64,
}

impl Noise {
    /// The estimates, updated with the measurement of an update that covers this many measured steps.
    #[must_use]
    pub fn with(self, measured: &Measured, count: u64) -> Noise {
        let Some((signal, noise)) = measured.estimate() else { return self };
        // libm's power: the system's may round differently from machine to machine.
        let kept = libm::pow(KEPT_PER_STEP, (EVERY * count) as f64);
        Noise {
            signal: kept * self.signal + (1.0 - kept) * signal,
            noise: kept * self.noise + (1.0 - kept) * noise,
        }
    }

    /// The noise scale in samples, 0…[`SCALE_MAX`]; `None` before anything was measured.
    pub fn scale(&self) -> Option<f64> {
        if self.noise <= 0.0 {
            return (self.signal > 0.0).then_some(0.0);
        }
        let scale = self.noise / self.signal;
        Some(if scale > 0.0 { scale.min(SCALE_MAX) } else { SCALE_MAX })
    }
}

/// How many batches of `batch` samples one of `accumulation` times as many is worth: 1…`accumulation`, at a noise scale
/// in samples.
///
/// ```
/// use bellwether_runtime::noise::gain;
/// assert_eq!(gain(64, 4, 0.0), 1.0);
/// assert_eq!(gain(64, 4, 128.0), 2.0);
/// ```
pub fn gain(batch: u64, accumulation: u64, scale: f64) -> f64 {
    let (batch, times) = (batch as f64, accumulation as f64);
    (times * (scale + batch) / (scale + times * batch)).clamp(1.0, times)
}
