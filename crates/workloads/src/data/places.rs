//! Which samples are trained on and which are held out, in a bit for each.

use std::ops::Range;

use super::Part;
use crate::random::Stream;

/// Bits of a block: the rank of its first sample is written down.
const BLOCK: u64 = 512;

/// The two parts of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    /// The samples from `cut` on are held out.
    Cut {
        /// First of them.
        cut: u64,
        /// All samples.
        count: u64,
    },
    /// Held-out samples lie anywhere.
    Mixed(Mixed),
}

/// A bit for each sample, with the sum of those before every block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mixed {
    bits: Vec<u64>,
    /// Held-out samples before each block.
    ranks: Vec<u64>,
    count: u64,
    held_out: u64,
}

impl Places {
    /// Holds out `held_out` of `count` samples: the first ones of the permutation that `stream` makes of all.
    pub(super) fn drawn(stream: Stream, count: u32, held_out: u32) -> Places {
        let words = u64::from(count).div_ceil(BLOCK) * BLOCK / 64;
        let mut bits = vec![0u64; words as usize];
        let is = |bits: &[u64], place: u64| bits[(place / 64) as usize] >> (place % 64) & 1 == 1;
        let flip = |bits: &mut [u64], place: u64| bits[(place / 64) as usize] ^= 1 << (place % 64);
        (0..u64::from(held_out)).for_each(|place| flip(&mut bits, place));
        // The shuffle swaps from the last place down to the first. Its swaps are undone here in the opposite order, to
        // find where the elements of the first places come from. Those among the first places change none of the set.
        for place in u64::from(held_out).max(1)..u64::from(count) {
            let pick = stream.pick(place);
            if pick != place && is(&bits, pick) {
                flip(&mut bits, pick);
                flip(&mut bits, place);
            }
        }
        let (mut ranks, mut before) = (Vec::with_capacity(bits.len() / 8), 0);
        for block in bits.chunks((BLOCK / 64) as usize) {
            ranks.push(before);
            before += block.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        Places::Mixed(Mixed { bits, ranks, count: count.into(), held_out: held_out.into() })
    }

    /// Samples of a part.
    pub(super) fn count(&self, part: Part) -> u64 {
        let (count, held_out) = match self {
            Places::Cut { cut, count } => (*count, count - cut),
            Places::Mixed(mixed) => (mixed.count, mixed.held_out),
        };
        if part == Part::HeldOut { held_out } else { count - held_out }
    }

    /// Whether a sample is held out.
    pub(super) fn is_held_out(&self, row: u64) -> bool {
        match self {
            Places::Cut { cut, .. } => row >= *cut,
            Places::Mixed(mixed) => mixed.bits[(row / 64) as usize] >> (row % 64) & 1 == 1,
        }
    }

    /// The samples of a part in order.
    pub(super) fn iter(&self, part: Part) -> impl Iterator<Item = u64> {
        let all = self.count(Part::Training) + self.count(Part::HeldOut);
        (0..all).filter(move |row| self.is_held_out(*row) == (part == Part::HeldOut))
    }

    /// Sample `index` of a part; the part has more than `index` samples.
    pub(super) fn at(&self, part: Part, index: u64) -> u64 {
        match (self, part) {
            (Places::Cut { cut, .. }, Part::HeldOut) => cut + index,
            (Places::Cut { .. }, Part::Training) => index,
            (Places::Mixed(mixed), part) => mixed.at(part == Part::HeldOut, index),
        }
    }
}

impl Mixed {
    fn at(&self, held_out: bool, index: u64) -> u64 {
        let rank = |block: usize| match held_out {
            true => self.ranks[block],
            false => block as u64 * BLOCK - self.ranks[block],
        };
        let block = partition(0..self.ranks.len(), |block| rank(block) <= index) - 1;
        let mut left = index - rank(block);
        let first = block * (BLOCK / 64) as usize;
        for (number, word) in (first..).zip(&self.bits[first..]) {
            let word = if held_out { *word } else { !word };
            let ones = u64::from(word.count_ones());
            if left < ones {
                let rest = (0..left).fold(word, |word, _| word & (word - 1));
                return number as u64 * 64 + u64::from(rest.trailing_zeros());
            }
            left -= ones;
        }
        unreachable!("the caller asks for samples that are there")
    }
}

/// The first of `range` for which `holds` is false; it is true for all before and false for all after.
fn partition(range: Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start.midpoint(end);
        if holds(middle) { start = middle + 1 } else { end = middle }
    }
    start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_held_out_samples_are_the_first_of_the_permutation(
            count in 1u32..3000, share in 0.0..1.0, seed: u64,
        ) {
            let held_out = (f64::from(count) * share) as u32;
            let stream = Stream::new(seed, 0);
            let mut expected = stream.permutation(count);
            let mut training = expected.split_off(held_out as usize);
            training.sort_unstable();
            expected.sort_unstable();
            let places = Places::drawn(stream, count, held_out);
            for (part, expected) in [(Part::Training, training), (Part::HeldOut, expected)] {
                let expected: Vec<u64> = expected.into_iter().map(u64::from).collect();
                prop_assert_eq!(&places.iter(part).collect::<Vec<_>>(), &expected);
                let found: Vec<u64> = (0..places.count(part)).map(|index| places.at(part, index)).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn a_cut_holds_out_the_end() {
        let places = Places::Cut { cut: 3, count: 5 };
        assert_eq!((places.count(Part::Training), places.count(Part::HeldOut)), (3, 2));
        assert_eq!((places.at(Part::Training, 2), places.at(Part::HeldOut, 1)), (2, 4));
        assert_eq!(places.iter(Part::HeldOut).collect::<Vec<_>>(), [3, 4]);
    }
}
