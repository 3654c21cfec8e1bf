//! How much training a target loss or accuracy takes, and how batch and staleness change that.
//!
//! # Model
//!
//! ```text
//! hyperbola    l(k) = c + A / (1 + k/d)              the form of Optimus, 1/(b0 k + b1) + b2
//! power        l(k) = c + A / (1 + k/d)^p
//! exponential  l(k) = c + A exp(-k/d)
//! work         S(B, y)    = S_min (1 + y + phi/B)    steps to a given loss
//!              gain(B)    = B/M0 (phi + M0)/(phi + B)  progress of a step
//! ```
//!
//! | symbol | meaning                                                      | unit              |
//! |--------|--------------------------------------------------------------|-------------------|
//! | l      | loss, or what is missing to perfect accuracy; smaller is better | the metric's   |
//! | k      | progress                                                     | steps or samples  |
//! | c      | loss that is never undercut                                  | the metric's      |
//! | A, d, p | height, scale and exponent of the descent                   | metric, as k, 1   |
//! | S, S_min | steps; steps with an infinite batch                        | steps             |
//! | B, M0  | global batch, batch at which progress is counted             | samples           |
//! | phi    | gradient noise scale                                         | samples           |
//! | y      | staleness: updates between reading parameters and applying the gradient | steps  |
//!
//! A curve is fitted in each form by least Huber loss of its errors in units of the curve's own jitter; the form that
//! best predicts the last quarter of what was observed is kept. A run of errors of one sign that is too long to be
//! chance (1 % for independent errors; fitting makes it rarer) in every form is a break, at that end of a run where two
//! curves fit best. What follows is fitted alone where it slows down; a straight fall does not tell where it ends, so
//! that the earlier losses are kept and scaled to join. Known falls of the learning rate need no run. No loss that is
//! yet to come is expected above the last smoothed one (median of five) unless the curve is said to diverge. Intervals
//! come from leaving out one eighth of the curve after another, and from how far the other forms are away, each
//! weighted by the inverse square of its error.
//!
//! # Source
//!
//! Peng et al., Optimus, EuroSys 2018, for the hyperbola; Hestness et al., arXiv 1712.00409, for the power law; Feller,
//! An Introduction to Probability Theory, vol. 1, XIII.7, for runs; Schwarz, Ann. Stat. 6, 1978, for what one more
//! number must explain; McCandlish et al., arXiv 1812.06162, for the batch; Johnson et al., AdaScale SGD, ICML 2020,
//! for the gain. Staleness: Stich and Karimireddy, JMLR 21(237), 2020: a delay y multiplies the noise-free part of the
//! steps of SGD by 1 + y and leaves the noisy part alone; then W workers without waiting (y = W - 1, batch b) need as
//! many samples as one synchronous batch W b.
//!
//! # Assumes
//!
//! Training goes on as it went after the last break: no further change of learning rate, data or batch beyond the gain
//! rule. The staleness law holds for a tuned learning rate and a delay that is bounded and alike for all; it says
//! nothing of the final accuracy, which asynchronous training often lowers.
//!
//! # Valid
//!
//! Every answer beyond the observed curve is an extrapolation. A drop of the learning rate after it breaks the forms,
//! and so does a slow decay on the way: what seems a straight fall ends where the rate does. A break shows after eight
//! points, most often fourteen of a hundred.
//!
//! # Checked by
//!
//! `tests/it/curve_breaks.rs`: falls, rises and smooth curves, drawn and recorded; `tests/it/convergence.rs`: exact
//! curves, outliers, a simulated quadratic for batch and staleness, and the measured curves of the Pollux tables;
//! `examples/accuracy_convergence.rs` prints the latter.
//!
//! ```
//! use bellwether_model::convergence::{gain, steps_to_target};
//! // Noise scale 300, counted at batch 100: a step of batch 300 is worth 3 * 400/600 = 2 steps.
//! assert!((gain(300.0, 100.0, 300.0) - 2.0).abs() < 1e-12);
//! // 1000 steps at least, batch 300: 1000 (1 + 300/300) = 2000, and 3 more of staleness add 3000.
//! assert!((steps_to_target(1000.0, 300.0, 300.0, 3.0) - 5000.0).abs() < 1e-9);
//! ```

mod breaks;
mod curve;
mod predict;
mod smooth;
mod work;

pub use breaks::{Break, BreakReason, run_probability};
pub use curve::{Curve, Form, Observation};
pub use predict::{CurveFit, LossForecast, TimeToTarget, Trend};
pub use work::{fit_steps, gain, steps_of_progress, steps_to_target};
