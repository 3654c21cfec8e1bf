//! What the simulations make of random numbers: contributions and digests of states.

use std::ops::Range;

use bellwether_testkit::finalize;

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
