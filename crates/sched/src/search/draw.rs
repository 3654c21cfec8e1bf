//! Random numbers that follow from the seed, the number of the trial and the place of the key.

use bellwether_core::mix::mix;

/// The step of SplitMix64's state: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64, trial: u64, parameter: usize) -> Draws {
        let of = |state: u64, more: u64| mix(state.wrapping_add(STEP) ^ mix(more.wrapping_add(STEP)));
        Draws(of(of(of(0, seed), trial), parameter as u64))
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Uniform over 0 ≤ u < 1.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
