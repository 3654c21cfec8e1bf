//! Randomness of the simulation: SplitMix64, so that a seed is a whole history.

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

/// What one virtual node contributes to a step, computed on the state with this digest.
pub(crate) fn contribution(step: u64, node: u32, digest: u64) -> u64 {
    mix(step, u64::from(node), digest)
}

/// The state after a step.
pub(crate) fn applied(digest: u64, step: u64, reduced: u64) -> u64 {
    mix(digest, step, reduced)
}

/// Digest of the state after 0, 1, 2 … `steps` steps, and the result of each step.
pub(crate) fn chain(virtual_nodes: u32, steps: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut digests, mut results) = (vec![1], Vec::new());
    for step in 0..steps {
        let digest = digests[step as usize];
        let result =
            (0..virtual_nodes).fold(0u64, |sum, node| sum.wrapping_add(contribution(step, node, digest)));
        results.push(result);
        digests.push(applied(digest, step, result));
    }
    (digests, results)
}
