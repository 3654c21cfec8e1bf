//! How stale gradients are under each protocol, and how much more training that asks for at worst.
//!
//! # Model
//!
//! ```text
//! mean staleness    bsp 0,  asp W - 1,  ssp:0 (W - 1)/2,  ssp:K at most W - 1;  no update above (W - 1)(2 K + 1)
//! delayed descent   w(t+1) = w(t) + v(t+1),  v(t+1) = u v(t) - a w(t-y),  a = rate * curvature
//! stable            a < a*(y, u) = 2 sin(x/2) |exp(ix) - u|,  x the least root of (y - 1/2) x + arg(exp(ix) - u) = pi/2
//! u = 0             a*(y, 0) = 2 sin( pi/2 / (2 y + 1) )
//! slowdown          rho(y, u; u0) = a*(0, u0)/(1 - u0) : a*(y, u)/(1 - u)
//! work              samples / samples of bsp = max( 1, (rho b + phi)/(B + phi) )
//! ```
//!
//! | symbol  | meaning                                                                    | unit    |
//! |---------|----------------------------------------------------------------------------|---------|
//! | W       | workers                                                                    | 1       |
//! | K       | bound of staleness                                                         | units of a worker |
//! | y       | updates by others between reading parameters and applying the gradient     | 1       |
//! | u, u0   | momentum in asynchronous and in synchronous training                       | 1       |
//! | a*      | largest stable rate times curvature                                        | 1       |
//! | b, B    | samples of an asynchronous update, of a synchronous step                   | samples |
//! | phi     | gradient noise scale                                                       | samples |
//!
//! With the momentum u a rate a makes the progress of a/(1 - u) along a flat direction, so rho says how many times more
//! noise-free updates the largest stable rate needs. Noise is averaged over the samples, whatever the protocol: this is
//! the law of [`crate::convergence`] with 1 + y replaced by what is exact on a quadratic (without momentum
//! rho = 1/sin(pi/2/(2y + 1)), about (4 y + 2)/pi).
//!
//! # Source
//!
//! The mean: each worker's cycle holds one update of every worker, and its own does not count as staleness. The
//! stability: the characteristic equation z^(y-1) (z - 1)(z - u) = -a on the unit circle, solved here; without momentum
//! it is the known bound of delayed recurrences (Kuruklis, J. Math. Anal. Appl. 188, 1994). Momentum from asynchrony:
//! Mitliagkas, Zhang, Hadjis and Re, Allerton 2016. The noise: McCandlish et al., arXiv 1812.06162.
//!
//! # Assumes
//!
//! Equal workers whose cycle is mostly the time from reading to applying; a delay that is the same for every update
//! (one that varies like an exponential time is stable much longer: [`implicit_momentum`]). Learning rates that are as
//! large as stability allows, before and after: with smaller ones staleness costs less, down to nothing, so the factor
//! is a bound and no expectation. Asynchronous updates have the rate of their share of the batch, so that they are
//! never faster per sample than synchronous ones.
//!
//! # Valid
//!
//! For the time to a loss that both protocols reach. Of the accuracy that training ends with it says nothing: in the
//! published runs (`data/sync-switch`) asynchronous training ended 2.7 and 3.7 points lower, and with 16 workers it
//! diverged.
//!
//! # Checked by
//!
//! `tests/it/staleness.rs`: delayed descent simulated on both sides of every bound, the best rates of a simulated
//! quadratic, the implicit momentum, and the staleness of simulated training through servers ([`crate::event`]).
//!
//! ```
//! use bellwether_core::prediction::Protocol;
//! use bellwether_model::staleness::{expected, stable_rate};
//! assert_eq!(expected(Protocol::Asp, 8), Some(7.0));
//! // Without delay a rate of 2/curvature is stable, with a delay of one update half of it.
//! assert!((stable_rate(0.0, 0.0)? - 2.0).abs() < 1e-12 && (stable_rate(1.0, 0.0)? - 1.0).abs() < 1e-12);
//! # Ok::<(), bellwether_core::InputError>(())
//! ```

use std::f64::consts::{FRAC_PI_2, PI};

use bellwether_core::InputError;
use bellwether_core::prediction::Protocol;

use crate::common::check;

const PLACE: &str = "staleness";

/// Halvings of an angle between 0 and pi: to the last digit of a number.
const HALVINGS: u32 = 80;

/// Mean number of updates by others between reading parameters and applying the gradient, with equal workers. `None`
/// for gossip: a worker's gradient is applied to the parameters that it was computed from, but those differ between
/// workers; nor for local steps, whose gradients are of a virtual node's own parameters, which are never old. Where a
/// bound above 0 blocks workers it is somewhat less, as who is blocked has not read yet.
pub fn expected(protocol: Protocol, workers: u32) -> Option<f64> {
    let others = f64::from(workers.saturating_sub(1));
    match protocol {
        Protocol::Bsp => Some(0.0),
        Protocol::Asp => Some(others),
        // All begin together, and the last to be applied has seen all others go before it.
        Protocol::Ssp(0) => Some(others / 2.0),
        Protocol::Ssp(_) => Some(others),
        Protocol::Gossip | Protocol::Local(_) => None,
    }
}

/// The staleness that no update exceeds; `None` where there is no bound (for gossip and local steps: no such
/// staleness).
///
/// When a worker reads, the others are at most K units behind it; when it is done, at most K + 1 ahead of where it
/// began.
pub fn most(protocol: Protocol, workers: u32) -> Option<u64> {
    let others = u64::from(workers.saturating_sub(1));
    match protocol {
        Protocol::Bsp => Some(0),
        Protocol::Ssp(bound) => Some(others * (2 * u64::from(bound) + 1)),
        Protocol::Asp | Protocol::Gossip | Protocol::Local(_) => None,
    }
}

/// The learning rate times curvature below which descent with this staleness (which need not be a whole number) and
/// momentum comes to rest.
///
/// # Errors
///
/// Returns an error for a staleness below 0, a momentum that is not from 0 to below 1.
pub fn stable_rate(staleness: f64, momentum: f64) -> Result<f64, InputError> {
    check::negative(PLACE, "the staleness in updates", staleness)?;
    check_momentum(momentum)?;
    // Grows with the angle, and is not below 0 at pi.
    let excess = |angle: f64| {
        let beyond = libm::atan2(libm::sin(angle), libm::cos(angle) - momentum);
        (staleness - 0.5) * angle + beyond - FRAC_PI_2
    };
    let (mut low, mut high) = (0.0, PI);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if excess(middle) < 0.0 { low = middle } else { high = middle }
    }
    let (sine, cosine) = (libm::sin(high / 2.0), libm::cos(high));
    Ok(2.0 * sine * (1.0 - 2.0 * momentum * cosine + momentum * momentum).sqrt())
}

/// How many times more updates than without staleness the largest stable rate needs where gradients have no noise.
///
/// # Errors
///
/// Same errors as [`stable_rate`].
pub fn slowdown(staleness: f64, momentum: f64, synchronous_momentum: f64) -> Result<f64, InputError> {
    let pace = |staleness, momentum: f64| Ok(stable_rate(staleness, momentum)? / (1.0 - momentum));
    Ok(pace(0.0, synchronous_momentum)? / pace(staleness, momentum)?)
}

/// The momentum that W workers add whose staleness varies like a geometric number of mean W - 1: in expectation their
/// updates are those of one worker with a rate of one W-th and this momentum.
pub fn implicit_momentum(workers: u32) -> f64 {
    1.0 - 1.0 / f64::from(workers.max(1))
}

/// What of a job decides how much staleness costs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    /// Samples of a synchronous step.
    pub batch: f64,
    /// Samples of an asynchronous update.
    pub update: f64,
    /// Gradient noise scale in samples; 0, the most cautious, where it is not known.
    pub noise_scale: f64,
    /// Momentum in synchronous phases.
    pub synchronous_momentum: f64,
    /// Momentum in asynchronous phases.
    pub momentum: f64,
}

impl Sensitivity {
    /// Samples to a loss with this mean staleness, over those of synchronous training; at least 1.
    ///
    /// # Errors
    ///
    /// Returns an error for samples that are not positive, a noise scale or a staleness below 0, a momentum that is not
    /// from 0 to below 1.
    pub fn work_factor(&self, staleness: f64) -> Result<f64, InputError> {
        check::not_positive(PLACE, "the samples of a step", self.batch)?;
        check::not_positive(PLACE, "the samples of an update", self.update)?;
        check::negative(PLACE, "the noise scale in samples", self.noise_scale)?;
        let slower = slowdown(staleness, self.momentum, self.synchronous_momentum)?;
        Ok(((slower * self.update + self.noise_scale) / (self.batch + self.noise_scale)).max(1.0))
    }
}

fn check_momentum(momentum: f64) -> Result<(), InputError> {
    if (0.0..1.0).contains(&momentum) {
        return Ok(());
    }
    Err(InputError::new(PLACE, format!("a momentum of {momentum}")).hint("it is from 0 to below 1"))
}
