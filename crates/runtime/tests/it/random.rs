//! Randomness of the simulation: SplitMix64, so that a seed is a whole history.

use std::ops::Range;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ 0x9E37_79B9_7F4A_7C15);
        random.next();
        random
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        finalize(self.0)
    }

    /// From 0 up to, not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` up to `high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// From 0 up to, not including, `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Time until the next event of a process with this mean interval.
    pub(crate) fn interval(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.below(of.len() as u64) as usize]) }
    }
}

fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A well-mixed function of three words.
pub(crate) fn mix(a: u64, b: u64, c: u64) -> u64 {
    finalize(finalize(finalize(a.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ b) ^ c.rotate_left(17))
}

/// What these virtual nodes contribute to the update over these steps, computed on the state with this digest.
pub(crate) fn contribution(steps: &Range<u64>, nodes: Range<u32>, digest: u64) -> u64 {
    let one = |step: u64| {
        nodes.clone().fold(0u64, |sum, node| sum.wrapping_add(mix(step, u64::from(node), digest)))
    };
    steps.clone().fold(0u64, |sum, step| sum.wrapping_add(one(step)))
}

/// Digest of the state before the first step.
pub(crate) const FRESH: u64 = 1;

/// The state after an update.
pub(crate) fn applied(digest: u64, steps: &Range<u64>, reduced: u64) -> u64 {
    mix(digest, mix(steps.start, steps.end, 0), reduced)
}
