//! Named random streams from one seed, for common random numbers.
//!
//! A stream is named by (seed, name, index), independent of the caller and the order of calls. Its n-th number is a
//! mixing function of its key and n: streams need no care that they do not overlap, and a number can be had without
//! those before it. Every distribution is drawn by inversion and takes exactly one number of the stream, so that two
//! simulations that differ in one thing use the same luck for all others.
//!
//! The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), applied twice
//! with two halves of the key. A generator of a crate would be as good; it would not be addressable by
//! position, and its distributions take a varying number of draws.

use statrs::function::erf::erfc_inv;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The numbers `0..count` in an order that depends on `seed` only: Fisher and Yates' shuffle by the plain
/// sequence of SplitMix64.
///
/// ```
/// use bellwether_des::random::shuffled;
/// let mut order = shuffled(5, 1);
/// assert_eq!(order, shuffled(5, 1));
/// order.sort_unstable();
/// assert_eq!(order, [0, 1, 2, 3, 4]);
/// ```
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        state = state.wrapping_add(GOLDEN);
        order.swap(last, scaled(mix(state), last + 1));
    }
    order
}

/// A word taken as a share of 2⁶⁴, of `count`: a whole number below it.
fn scaled(word: u64, count: usize) -> usize {
    ((u128::from(word) * count as u128) >> 64) as usize
}

/// All random streams of one simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
}

impl Streams {
    /// The streams of `seed`.
    pub fn new(seed: u64) -> Self {
        Streams { seed }
    }

    /// The stream of this name and index, from its beginning.
    ///
    /// ```
    /// use bellwether_des::Streams;
    /// let (mut a, mut b) = (Streams::new(1).stream("noise", 3), Streams::new(1).stream("noise", 3));
    /// assert_eq!(a.uniform(), b.uniform());
    /// assert_ne!(a.uniform(), Streams::new(1).stream("noise", 4).uniform());
    /// ```
    pub fn stream(&self, name: &str, index: u64) -> Stream {
        let absorb = |state: u64, word: u64| mix(state.wrapping_mul(GOLDEN) ^ mix(word.wrapping_add(GOLDEN)));
        let named = name.bytes().fold(absorb(self.seed, name.len() as u64), |s, b| absorb(s, b.into()));
        let first = absorb(named, index);
        Stream { key: [first, absorb(first, GOLDEN)], position: 0 }
    }
}

/// A sequence of random numbers that is a function of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    key: [u64; 2],
    position: u64,
}

impl Stream {
    /// The number at a position, without moving.
    pub fn number_at(&self, position: u64) -> u64 {
        mix(mix(self.key[0].wrapping_add(position.wrapping_mul(GOLDEN))) ^ self.key[1])
    }

    /// The next number, uniform over all 64-bit words.
    pub fn number(&mut self) -> u64 {
        let number = self.number_at(self.position);
        self.position += 1;
        number
    }

    /// Uniform between 0 and 1, neither of which it ever is: one of the 2⁵³ middles of equal pieces, of which
    /// the last is rounded down.
    pub fn uniform(&mut self) -> f64 {
        let piece = (self.number() >> 11) as f64;
        ((piece + 0.5) * 2f64.powi(-53)).min(1.0 - f64::EPSILON / 2.0)
    }

    /// Uniform between two bounds.
    ///
    /// # Panics
    ///
    /// When the bounds are not finite or not in order.
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        assert!(low.is_finite() && high.is_finite() && low <= high, "no interval from {low} to {high}");
        low + (high - low) * self.uniform()
    }

    /// A whole number below `count`, each equally likely (to within 2⁻⁶⁴ · `count`).
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "nothing to choose from");
        scaled(self.number(), count)
    }

    /// One of `choices`, each equally likely.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub fn choice<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Exponential with this mean.
    ///
    /// # Panics
    ///
    /// When the mean is negative or not finite.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        assert!(mean.is_finite() && mean >= 0.0, "no exponential distribution has the mean {mean}");
        -mean * libm::log(self.uniform())
    }

    /// Normal with this mean and standard deviation.
    ///
    /// # Panics
    ///
    /// When either is not finite, or the deviation is negative.
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let proper = mean.is_finite() && deviation.is_finite() && deviation >= 0.0;
        assert!(proper, "no normal distribution has the mean {mean} and the deviation {deviation}");
        mean - deviation * std::f64::consts::SQRT_2 * erfc_inv(2.0 * self.uniform())
    }

    /// Lognormal with this mean and coefficient of variation (deviation over mean), both of the variable
    /// itself and not of its logarithm.
    ///
    /// # Panics
    ///
    /// When the mean is not positive and finite, or the coefficient negative or not finite.
    pub fn lognormal(&mut self, mean: f64, variation: f64) -> f64 {
        let proper = mean.is_finite() && mean > 0.0 && variation.is_finite() && variation >= 0.0;
        assert!(proper, "no lognormal distribution has the mean {mean} and the variation {variation}");
        let variance = libm::log1p(variation * variation);
        libm::exp(self.normal(libm::log(mean) - variance / 2.0, variance.sqrt()))
    }
}
