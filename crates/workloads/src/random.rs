//! Counter-based randomness: every number is a pure function of a key and a counter.
//!
//! There is no generator to carry along, so a virtual node's numbers do not depend on who computes it
//! or what was computed before. Only integer operations, correctly rounded float operations and the
//! `libm` crate are used: the bits are the same on every machine.

use bellwether_core::mix::mix;

/// A stream of random numbers, addressed by counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Stream {
    /// The stream of `purpose` under `seed`: different purposes do not share numbers.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Stream(mix(seed.wrapping_add(STEP)) ^ mix(purpose.wrapping_mul(STEP).wrapping_add(1)))
    }

    /// The sub-stream of an index, for example of one tensor or one sample.
    pub(crate) fn child(self, index: u64) -> Self {
        Stream::new(self.0, index)
    }

    /// 64 uniform bits.
    pub(crate) fn bits(self, counter: u64) -> u64 {
        mix(self.0.wrapping_add(mix(counter.wrapping_add(1).wrapping_mul(STEP))))
    }

    /// Uniform in [0, 1), with 53 bits.
    pub(crate) fn unit(self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in [-1, 1), with 24 bits.
    pub(crate) fn signed_unit(self, counter: u64) -> f32 {
        let unit = (self.bits(counter) >> 40) as f32 * (1.0 / (1u32 << 24) as f32);
        2.0 * unit - 1.0
    }

    /// A place below `limit`, which is not 0.
    pub(crate) fn below(self, counter: u64, limit: usize) -> usize {
        // Multiply-shift: its bias below 2^-32 is of no concern.
        ((u128::from(self.bits(counter)) * limit as u128) >> 64) as usize
    }

    /// Standard normal (Box–Muller, one of the pair).
    pub(crate) fn normal(self, counter: u64) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit(2 * counter)));
        radius * libm::cos(std::f64::consts::TAU * self.unit(2 * counter + 1))
    }

    /// A permutation of `0..count` (Fisher–Yates).
    #[cfg(test)]
    pub(crate) fn permutation(self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.pick(place as u64) as usize);
        }
        order
    }

    /// With which place the shuffle swaps `place`: one from 0 to it.
    pub(crate) fn pick(self, place: u64) -> u64 {
        self.below(place, place as usize + 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        let stream = Stream::new(3, 1);
        let count = 100_000u64;
        let mean = |f: &dyn Fn(u64) -> f64| (0..count).map(f).sum::<f64>() / count as f64;
        assert!(mean(&|i| f64::from(stream.signed_unit(i))).abs() < 0.01);
        assert!((mean(&|i| stream.unit(i)) - 0.5).abs() < 0.01);
        assert!(mean(&|i| stream.normal(i)).abs() < 0.02);
        assert!((mean(&|i| stream.normal(i).powi(2)) - 1.0).abs() < 0.02);
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_child() {
        let draw = |stream: Stream| stream.bits(0);
        let all = [
            draw(Stream::new(0, 0)),
            draw(Stream::new(1, 0)),
            draw(Stream::new(0, 1)),
            draw(Stream::new(0, 0).child(0)),
            draw(Stream::new(0, 0).child(1)),
        ];
        for (index, value) in all.iter().enumerate() {
            assert!(!all[..index].contains(value));
        }
    }

    #[test]
    fn a_permutation_names_each_index_once() {
        let mut order = Stream::new(7, 7).permutation(1000);
        assert_ne!(order, (0..1000).collect::<Vec<u32>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn bits_are_pinned() {
        // A change of these constants changes every trained model: it must be deliberate.
        let stream = Stream::new(42, 5);
        assert_eq!(stream.bits(0), PINNED_BITS);
        assert_eq!(stream.normal(0).to_bits(), PINNED_NORMAL);
    }

    const PINNED_BITS: u64 = 10_743_616_824_759_806_909;
    const PINNED_NORMAL: u64 = 4_608_519_873_992_221_032;
}
