//! The canonical summation tree over virtual nodes, and sums along it.
//!
//! Adding `f32` is not associative, so the order of additions decides bits. Every sum of a job therefore follows one
//! binary tree over its virtual nodes (the leaves `0..V`), no matter which worker holds them: a node `[lo, hi)` with
//! more than one leaf splits at the largest power of two below its number of leaves. A worker holds a contiguous range
//! of leaves, adds up the subtrees that lie wholly inside it, and leaves the few remaining additions to the collective.
//!
//! A job may have the leading values of every node rounded to bfloat16 (the module [`bfloat`]): those of
//! each leaf, and of each sum of two. So where values are rounded does not depend on which worker holds what either.
//!
//! One limit: where both operands are NaN, the payload of the result is the processor's choice.

use std::ops::Range;

use bellwether_memory::{Arena, Vector};

use crate::bfloat;

pub(crate) mod last;

pub use bellwether_core::tree::{children, maximal_nodes, ranges, ranges_by_speed};

/// `left[i] += right[i]`, the one addition of partial sums.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn add_assign(left: &mut [f32], right: &[f32]) {
    bfloat::add_assign(left, right, 0);
}

/// Adds up the leaf vectors of one worker's range, in leaf order, along the canonical tree.
///
/// Only the partial sums still needed are kept: two siblings are merged as soon as both are there
/// (`left += right`). Buffers are reused from step to step.
///
/// ```
/// use bellwether_runtime::tree::Accumulator;
///
/// let mut accumulator = Accumulator::new(4, 0..4, 2);
/// for leaf in 0..4 {
///     accumulator.leaf().fill(leaf as f32);
///     accumulator.push();
/// }
/// assert_eq!(accumulator.partials(), [[6.0, 6.0]]);
/// accumulator.reset();
/// ```
#[derive(Debug)]
pub struct Accumulator {
    length: usize,
    /// Leading values that are rounded to bfloat16.
    halves: usize,
    range: Range<u32>,
    /// For each leaf of the range: how many merges follow its arrival.
    merges: Vec<u32>,
    nodes: usize,
    pushed: usize,
    /// Partial sums, leftmost first; then the leaf being filled, if `leaf` was called.
    stack: Vec<Vector>,
    filling: Option<Vector>,
    free: Vec<Vector>,
    buffers: usize,
    arena: Option<Arena>,
}

impl Accumulator {
    /// An accumulator for the leaves `range` of `virtual_nodes`, of vectors of `length` values.
    ///
    /// # Panics
    ///
    /// If `range` is not inside `0..virtual_nodes`.
    pub fn new(virtual_nodes: u32, range: Range<u32>, length: usize) -> Accumulator {
        let mut accumulator = Accumulator {
            length,
            halves: 0,
            range: 0..0,
            merges: Vec::new(),
            nodes: 0,
            pushed: 0,
            stack: Vec::new(),
            filling: None,
            free: Vec::new(),
            buffers: 0,
            arena: None,
        };
        accumulator.assign(virtual_nodes, range);
        accumulator
    }

    /// Rounds the first `halves` values to bfloat16 from now on: each leaf as it is pushed, and each sum of two.
    ///
    /// # Panics
    ///
    /// If a vector has fewer values.
    pub fn round_leading(&mut self, halves: usize) {
        assert!(halves <= self.length, "{halves} of {} values cannot be rounded", self.length);
        self.halves = halves;
    }

    /// Leading values that are rounded.
    pub fn rounded(&self) -> usize {
        self.halves
    }

    /// Takes new buffers from this arena from now on, where others may read them.
    pub fn share(&mut self, arena: Arena) {
        self.arena = Some(arena);
    }

    /// A new buffer, its contents unspecified.
    pub fn buffer(&self) -> Vector {
        self.arena.as_ref().map_or_else(|| Vector::private(self.length), Arena::vector)
    }

    /// Takes another range of leaves (after a change of membership) and keeps the buffers.
    ///
    /// # Panics
    ///
    /// If `range` is not inside `0..virtual_nodes`.
    pub fn assign(&mut self, virtual_nodes: u32, range: Range<u32>) {
        assert!(range.start <= range.end && range.end <= virtual_nodes, "a range lies inside the leaves");
        self.reset();
        let nodes = maximal_nodes(virtual_nodes, range.clone());
        self.merges.clear();
        self.merges.resize((range.end - range.start) as usize, 0);
        for node in &nodes {
            count_merges(node, range.start, &mut self.merges);
        }
        self.nodes = nodes.len();
        self.range = range;
        // Buffers beyond the need of the new range are given back; after an empty one they may be needed again.
        let need = self.buffers_needed();
        if need > 0 {
            self.free.truncate(need);
        }
        self.buffers = self.free.len();
    }

    /// Buffers that the leaves `range` need beyond those that exist.
    ///
    /// # Panics
    ///
    /// If `range` is not inside `0..virtual_nodes`.
    pub fn lacking(&self, virtual_nodes: u32, range: Range<u32>) -> usize {
        Accumulator::new(virtual_nodes, range, 0).buffers_needed().saturating_sub(self.buffers)
    }

    /// Takes buffers that were made elsewhere; the next `assign` keeps as many as it needs.
    ///
    /// # Panics
    ///
    /// If one is not of the vector's length.
    pub fn give(&mut self, buffers: Vec<Vector>) {
        assert!(buffers.iter().all(|buffer| buffer.len() == self.length), "buffers have the vector's length");
        self.buffers += buffers.len();
        self.free.extend(buffers);
    }

    /// The leaves this accumulator expects.
    pub fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Most buffers that can be alive at once for this range.
    pub fn buffers_needed(&self) -> usize {
        let mut depth = 0usize;
        let mut most = 0usize;
        for merges in &self.merges {
            depth += 1;
            most = most.max(depth);
            depth -= *merges as usize;
        }
        most
    }

    /// Buffers of `length` values that exist now, in use or free.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// A buffer for the next leaf's vector, contents unspecified; the same one until `push`.
    ///
    /// # Panics
    ///
    /// If all leaves of the range have been pushed.
    pub fn leaf(&mut self) -> &mut [f32] {
        assert!(self.pushed < self.merges.len(), "all leaves of the range have been pushed");
        if self.filling.is_none() {
            let free = self.free.pop();
            self.buffers += usize::from(free.is_none());
            self.filling = Some(free.unwrap_or_else(|| self.buffer()));
        }
        self.filling.as_deref_mut().expect("a buffer was just put there")
    }

    /// Takes the vector written in [`leaf`](Accumulator::leaf) and merges what can be merged.
    ///
    /// # Panics
    ///
    /// If `leaf` was not called since the last `push`.
    pub fn push(&mut self) {
        let mut leaf = self.filling.take().expect("a leaf is filled before it is pushed");
        bfloat::round_all(&mut leaf[..self.halves]);
        self.stack.push(leaf);
        for _ in 0..self.merges[self.pushed] {
            let right = self.stack.pop().expect("a merge has a right operand");
            let left = self.stack.last_mut().expect("a merge has a left operand");
            bfloat::add_assign(left, &right, self.halves);
            self.free.push(right);
        }
        self.pushed += 1;
    }

    /// How many merges follow the arrival of this leaf, a number in `0..V`: all of them lie inside one maximal node.
    ///
    /// # Panics
    ///
    /// If the leaf is not in the range.
    pub fn merges(&self, leaf: u32) -> u32 {
        self.merges[(leaf - self.range.start) as usize]
    }

    /// Takes the vector written in [`leaf`](Accumulator::leaf) as the sum of the next maximal node, which has this many
    /// leaves: they were added up along the tree.
    ///
    /// # Panics
    ///
    /// If `leaf` was not called since the last `push`, the next leaves do not make a maximal node, or sums are rounded:
    /// it is not known whether those below this one were.
    pub fn push_node(&mut self, leaves: u32) {
        assert_eq!(self.halves, 0, "sums that are rounded are made here");
        let end = self.pushed + leaves as usize;
        let merges: u32 = self.merges[self.pushed..end].iter().sum();
        assert_eq!(merges + 1, leaves, "the leaves of a maximal node merge into one sum");
        self.stack.push(self.filling.take().expect("a sum is written before it is pushed"));
        self.pushed = end;
    }

    /// Whether every leaf of the range has been pushed.
    pub fn is_complete(&self) -> bool {
        self.pushed == self.merges.len()
    }

    /// The partial sums, one per maximal node of the range, from left to right.
    ///
    /// # Panics
    ///
    /// If leaves are missing.
    pub fn partials(&self) -> Vec<&[f32]> {
        assert!(self.is_complete(), "{} of {} leaves were pushed", self.pushed, self.merges.len());
        debug_assert_eq!(self.stack.len(), self.nodes);
        self.stack.iter().map(|sum| &**sum).collect()
    }

    /// Exchanges the only partial sum for the buffer `out`, without a copy; `false` when there are several.
    ///
    /// # Panics
    ///
    /// If leaves are missing, or `out` is not of the vector's length.
    pub fn swap_only(&mut self, out: &mut Vector) -> bool {
        assert!(self.is_complete(), "{} of {} leaves were pushed", self.pushed, self.merges.len());
        assert_eq!(out.len(), self.length, "the buffers have one length");
        let [only] = self.stack.as_mut_slice() else { return false };
        std::mem::swap(only, out);
        true
    }

    /// Frees all partial sums for the next step; the buffers stay.
    pub fn reset(&mut self) {
        self.pushed = 0;
        self.free.append(&mut self.stack);
        self.free.extend(self.filling.take());
    }
}

/// Adds, for each leaf under `node`, the merges that its arrival allows; `first` is leaf 0 of `merges`.
fn count_merges(node: &Range<u32>, first: u32, merges: &mut [u32]) {
    if let Some((left, right)) = children(node) {
        count_merges(&left, first, merges);
        count_merges(&right, first, merges);
        merges[(node.end - 1 - first) as usize] += 1;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, written down a second time: a recursion over whole leaf vectors, the first `halves` values of
    /// each node rounded.
    pub(crate) fn sum_by_definition(leaves: &[Vec<f32>], halves: usize) -> Vec<f32> {
        let rounded = |(index, value): (usize, f32)| match index < halves {
            true => bfloat::tests::by_definition(value),
            false => value,
        };
        if leaves.len() == 1 {
            return leaves[0].iter().copied().enumerate().map(rounded).collect();
        }
        let mut split = 1;
        while split * 2 < leaves.len() {
            split *= 2;
        }
        let (left, right) = leaves.split_at(split);
        let (left, right) = (sum_by_definition(left, halves), sum_by_definition(right, halves));
        left.iter().zip(&right).map(|(l, r)| l + r).enumerate().map(rounded).collect()
    }

    fn noise(seed: u64) -> impl Iterator<Item = f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Widely different exponents, so that the order of additions shows in the bits.
            let exponent = (state >> 40) as u32 % 40;
            (state as u32 as f32 / 2f32.powi(32) - 0.5) * 2f32.powi(exponent as i32 - 20)
        })
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    /// Partials of one worker, and the most buffers that existed.
    fn accumulate(leaves: &[Vec<f32>], range: Range<u32>, halves: usize) -> (Vec<Vec<f32>>, usize) {
        let mut accumulator = Accumulator::new(leaves.len() as u32, range.clone(), leaves[0].len());
        accumulator.round_leading(halves);
        for _ in 0..2 {
            accumulator.reset();
            for leaf in range.clone() {
                accumulator.leaf().copy_from_slice(&leaves[leaf as usize]);
                accumulator.push();
            }
        }
        assert!(accumulator.buffers() <= accumulator.buffers_needed());
        (accumulator.partials().iter().map(|p| p.to_vec()).collect(), accumulator.buffers())
    }

    /// Sums the partials of all maximal nodes along the tree.
    fn combine(
        node: Range<u32>,
        nodes: &mut std::vec::IntoIter<(Range<u32>, Vec<f32>)>,
        halves: usize,
    ) -> Vec<f32> {
        if nodes.as_slice()[0].0 == node {
            return nodes.next().unwrap().1;
        }
        let (left, right) = children(&node).unwrap();
        let mut sum = combine(left, nodes, halves);
        bfloat::add_assign(&mut sum, &combine(right, nodes, halves), halves);
        sum
    }

    #[test]
    fn every_number_of_workers_gives_the_same_bits_within_the_buffer_bounds() {
        for v in 1..=33u32 {
            let leaves: Vec<Vec<f32>> =
                (0..v).map(|leaf| noise(u64::from(leaf) + 7).take(19).collect()).collect();
            // None are rounded, some, all.
            let halves = [0, 11, 19][v as usize % 3];
            let expected = sum_by_definition(&leaves, halves);
            for w in 1..=v {
                let mut parts = Vec::new();
                for range in ranges(v, w) {
                    let nodes = maximal_nodes(v, range.clone());
                    let (partials, buffers) = accumulate(&leaves, range, halves);
                    assert_eq!(nodes.len(), partials.len());
                    let log = u32::BITS - (v - 1).leading_zeros();
                    let bound =
                        if v % w == 0 && (v / w).is_power_of_two() { (v / w).ilog2() + 1 } else { 2 * log };
                    assert!(buffers as u32 <= bound, "V={v} W={w}: {buffers} buffers, bound {bound}");
                    parts.extend(nodes.into_iter().zip(partials));
                }
                let sum = combine(0..v, &mut parts.into_iter(), halves);
                assert_eq!(bits(&sum), bits(&expected), "V={v} W={w}");
            }
        }
    }

    #[test]
    fn nodes_that_were_added_up_elsewhere_give_the_same_bits() {
        for v in 1..=17u32 {
            let leaves: Vec<Vec<f32>> =
                (0..v).map(|leaf| noise(u64::from(leaf) + 3).take(5).collect()).collect();
            for range in (1..=v).flat_map(|w| ranges(v, w)) {
                let mut accumulator = Accumulator::new(v, range.clone(), 5);
                for node in maximal_nodes(v, range.clone()) {
                    // As a workload does that keeps its sums.
                    let mut stack: Vec<Vec<f32>> = Vec::new();
                    for leaf in node.clone() {
                        stack.push(leaves[leaf as usize].clone());
                        for _ in 0..accumulator.merges(leaf) {
                            let right = stack.pop().unwrap();
                            add_assign(stack.last_mut().unwrap(), &right);
                        }
                    }
                    let [sum] = stack.as_slice() else { panic!("one sum is left of {node:?}") };
                    accumulator.leaf().copy_from_slice(sum);
                    accumulator.push_node(node.end - node.start);
                }
                let (expected, _) = accumulate(&leaves, range, 0);
                assert_eq!(accumulator.partials(), expected.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_last_leaf_that_comes_in_parts_gives_the_same_bits() {
        const LENGTH: usize = 37;
        for v in 1..=17u32 {
            let leaves: Vec<Vec<f32>> =
                (0..v).map(|leaf| noise(u64::from(leaf) + 11).take(LENGTH).collect()).collect();
            for range in (1..=v).flat_map(|w| ranges(v, w)) {
                // None are rounded, some of a part, all.
                let halves = [0, 21, LENGTH][v as usize % 3];
                let (expected, _) = accumulate(&leaves, range.clone(), halves);
                let mut accumulator = Accumulator::new(v, range.clone(), LENGTH);
                accumulator.round_leading(halves);
                for round in 0..2 {
                    accumulator.reset();
                    for leaf in range.start..range.end - 1 {
                        accumulator.leaf().copy_from_slice(&leaves[leaf as usize]);
                        accumulator.push();
                    }
                    let leaf = &leaves[range.end as usize - 1];
                    let mut last = accumulator.open_last(1, &[16..30, 0..16, 30..37]);
                    assert_eq!(last.offsets, None);
                    // Cut elsewhere than the parts are.
                    for (start, end) in [(20, LENGTH), (0, 9), (9, 20)] {
                        last.parts.iter_mut().for_each(|part| assert!(part.take(start, &leaf[start..end])));
                    }
                    assert!(last.parts.iter().all(|part| part.is_whole()));
                    assert!(!last.parts[1].take(0, &leaf[..1]), "what has come is not awaited");
                    let parts: Vec<_> = last.parts.into_iter().map(|part| part.close()).collect();
                    for (number, sum) in expected.iter().enumerate() {
                        assert_eq!(bits(parts[0][number]), bits(&sum[16..30]), "round {round} of {range:?}");
                        assert_eq!(bits(parts[1][number]), bits(&sum[..16]));
                    }
                    accumulator.close_last(1);
                    assert_eq!(
                        accumulator.partials(),
                        expected.iter().map(Vec::as_slice).collect::<Vec<_>>()
                    );
                }
                assert!(accumulator.buffers() <= accumulator.buffers_needed());
            }
        }
    }

    #[test]
    fn buffer_bound_holds_for_large_numbers_of_virtual_nodes() {
        for v in [1u32, 2, 3, 63, 64, 65, 100, 255, 256, 257, 1000, 1024, 4095] {
            for w in 1..=v.min(300) {
                for range in ranges(v, w) {
                    let needed = Accumulator::new(v, range, 0).buffers_needed() as u32;
                    let log = u32::BITS - (v - 1).leading_zeros();
                    assert!(needed <= (2 * log).max(1), "V={v} W={w}: {needed}");
                }
            }
        }
    }

    #[test]
    fn nodes_split_at_the_largest_power_of_two_below() {
        assert_eq!(children(&(0..6)), Some((0..4, 4..6)));
        assert_eq!(children(&(0..8)), Some((0..4, 4..8)));
        assert_eq!(children(&(4..7)), Some((4..6, 6..7)));
        assert_eq!(children(&(4..5)), None);
        assert_eq!(maximal_nodes(7, 1..7), [1..2, 2..4, 4..7]);
        assert_eq!(maximal_nodes(8, 3..3), []);
    }

    #[test]
    fn a_new_range_keeps_what_buffers_it_needs() {
        let mut accumulator = Accumulator::new(8, 0..8, 3);
        for _ in 0..8 {
            accumulator.leaf().fill(1.0);
            accumulator.push();
        }
        assert_eq!(accumulator.buffers(), 4);
        accumulator.assign(8, 2..4);
        assert_eq!(accumulator.buffers(), 2);
        accumulator.leaf().fill(1.0);
        accumulator.push();
        assert!(!accumulator.is_complete());
        assert_eq!((accumulator.lacking(8, 0..8), accumulator.lacking(8, 3..4)), (2, 0));
        accumulator.give(vec![Vector::private(3), Vector::private(3)]);
        accumulator.assign(8, 0..8);
        assert_eq!(accumulator.buffers(), 4);
        accumulator.give(vec![Vector::private(3), Vector::private(3)]);
        accumulator.assign(8, 0..8);
        assert_eq!(accumulator.buffers(), 4);
    }

    proptest! {
        #[test]
        fn maximal_nodes_partition_the_range(v in 1u32..300, a in 0u32..300, b in 0u32..300) {
            let (a, b) = (a.min(v), b.min(v));
            let range = a.min(b)..a.max(b);
            let nodes = maximal_nodes(v, range.clone());
            let mut at = range.start;
            for node in &nodes {
                prop_assert_eq!(node.start, at);
                at = node.end;
            }
            prop_assert_eq!(at, range.end);
        }
    }
}
