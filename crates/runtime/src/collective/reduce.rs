//! The additions that join all members' partial sums, as a short program over blocks in cache.

use std::ops::Range;

use crate::bfloat::{add_assign, round};
use crate::tree::children;

/// Values per block: a few blocks lie in the first-level cache together.
const BLOCK: usize = 2048;

/// Where an operand comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    /// The partial sum of the n-th maximal node, over all members in rank order.
    Input(usize),
    /// The block that an earlier addition left.
    Block(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addition {
    left: Operand,
    right: Operand,
    /// Block that takes the sum; the last addition goes to the output instead.
    to: usize,
}

/// Adds the partial sums of `inputs` maximal nodes along the canonical tree.
#[derive(Debug)]
pub(super) struct Reduction {
    additions: Vec<Addition>,
    blocks: usize,
    /// Partial sums that go in.
    pub(super) inputs: usize,
}

impl Reduction {
    /// The additions above `nodes`, which partition the canonical node `root` into canonical nodes.
    pub(super) fn new(root: Range<u32>, nodes: &[Range<u32>]) -> Reduction {
        let mut reduction = Reduction { additions: Vec::new(), blocks: 0, inputs: nodes.len() };
        let mut next = 0;
        reduction.visit(root, nodes, &mut next, 0);
        assert_eq!(next, nodes.len(), "maximal nodes are nodes of the tree, in order");
        reduction
    }

    /// The additions for each of `roots`, of which `nodes` are the parts, both from left to right.
    pub(super) fn each(roots: &[Range<u32>], nodes: &[Range<u32>]) -> Vec<Reduction> {
        let mut rest = nodes;
        let each = |root: &Range<u32>| {
            let of_root = rest.partition_point(|node| node.end <= root.end);
            let (here, behind) = rest.split_at(of_root);
            rest = behind;
            Reduction::new(root.clone(), here)
        };
        roots.iter().map(each).collect()
    }

    fn visit(&mut self, node: Range<u32>, nodes: &[Range<u32>], next: &mut usize, depth: usize) -> Operand {
        if nodes[*next] == node {
            *next += 1;
            return Operand::Input(*next - 1);
        }
        let (left, right) = children(&node).expect("a leaf is a maximal node");
        let left = self.visit(left, nodes, next, depth);
        let taken = usize::from(matches!(left, Operand::Block(_)));
        let right = self.visit(right, nodes, next, depth + taken);
        self.additions.push(Addition { left, right, to: depth });
        self.blocks = self.blocks.max(depth + 1);
        Operand::Block(depth)
    }

    /// Values of scratch that [`run`](Reduction::run) needs.
    pub(super) fn scratch_length(&self) -> usize {
        // The last addition writes to the output.
        if self.additions.len() < 2 { 0 } else { self.blocks * BLOCK }
    }

    /// Writes the sum of all inputs to `out`; each addition rounds the first `halves` values to bfloat16.
    ///
    /// `input(i, range)` is the values `range` of input `i`, where `0..out.len()` is the whole input.
    pub(super) fn run<'a>(
        &self,
        input: impl Fn(usize, Range<usize>) -> &'a [f32],
        scratch: &mut [f32],
        out: &mut [f32],
        halves: usize,
    ) {
        match self.additions.as_slice() {
            [] => out.copy_from_slice(input(0, 0..out.len())),
            // One addition needs no scratch, hence no blocks.
            [only] => Self::last(*only, 0..out.len(), &input, scratch, out, halves),
            [additions @ .., last] => {
                let mut start = 0;
                while start < out.len() {
                    let range = start..out.len().min(start + BLOCK);
                    let halves = halves.clamp(range.start, range.end) - range.start;
                    for addition in additions {
                        Self::intermediate(*addition, range.clone(), &input, scratch, halves);
                    }
                    Self::last(*last, range.clone(), &input, scratch, &mut out[range.clone()], halves);
                    start = range.end;
                }
            }
        }
    }

    fn intermediate<'a>(
        addition: Addition,
        range: Range<usize>,
        input: &impl Fn(usize, Range<usize>) -> &'a [f32],
        scratch: &mut [f32],
        halves: usize,
    ) {
        let length = range.len();
        let (to, beyond) = scratch[addition.to * BLOCK..].split_at_mut(BLOCK);
        let to = &mut to[..length];
        match (addition.left, addition.right) {
            (Operand::Input(left), Operand::Input(right)) => {
                add(input(left, range.clone()), input(right, range), to, halves);
            }
            (Operand::Block(_), Operand::Input(right)) => add_assign(to, input(right, range), halves),
            (Operand::Input(left), Operand::Block(_)) => add_before(input(left, range), to, halves),
            // The right operand lies in the next block.
            (Operand::Block(_), Operand::Block(_)) => add_assign(to, &beyond[..length], halves),
        }
    }

    fn last<'a>(
        addition: Addition,
        range: Range<usize>,
        input: &impl Fn(usize, Range<usize>) -> &'a [f32],
        scratch: &[f32],
        out: &mut [f32],
        halves: usize,
    ) {
        let length = range.len();
        let operand = |operand| match operand {
            Operand::Input(index) => input(index, range.clone()),
            Operand::Block(block) => &scratch[block * BLOCK..block * BLOCK + length],
        };
        add(operand(addition.left), operand(addition.right), out, halves);
    }
}

/// `out[i] = left[i] + right[i]`, of which the first `halves` are rounded.
#[inline]
fn add(left: &[f32], right: &[f32], out: &mut [f32], halves: usize) {
    assert!(left.len() == out.len() && right.len() == out.len(), "operands of one length");
    let ((rounded, out), (left_of_rounded, left)) = (out.split_at_mut(halves), left.split_at(halves));
    let (right_of_rounded, right) = right.split_at(halves);
    for ((o, l), r) in rounded.iter_mut().zip(left_of_rounded).zip(right_of_rounded) {
        *o = round(*l + *r);
    }
    for ((o, l), r) in out.iter_mut().zip(left).zip(right) {
        *o = *l + *r;
    }
}

/// `right[i] = left[i] + right[i]`, of which the first `halves` are rounded.
#[inline]
fn add_before(left: &[f32], right: &mut [f32], halves: usize) {
    assert_eq!(left.len(), right.len(), "operands of one length");
    let ((left_of_rounded, left), (rounded, right)) = (left.split_at(halves), right.split_at_mut(halves));
    for (r, l) in rounded.iter_mut().zip(left_of_rounded) {
        *r = round(*l + *r);
    }
    for (r, l) in right.iter_mut().zip(left) {
        *r += *l;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_go_left_to_right_and_blocks_are_shared() {
        // 0..6 over single leaves: ((0+1)+(2+3))+(4+5).
        let leaves: Vec<Range<u32>> = (0..6).map(|leaf| leaf..leaf + 1).collect();
        let reduction = Reduction::new(0..6, &leaves);
        assert_eq!(reduction.additions.len(), 5);
        assert_eq!(reduction.blocks, 2);
        let values: Vec<Vec<f32>> = (0..6).map(|leaf| vec![2f32.powi(leaf * 5); 5000]).collect();
        let mut scratch = vec![0.0; reduction.scratch_length()];
        let mut out = vec![0.0; 5000];
        reduction.run(|i, range| &values[i][range], &mut scratch, &mut out, 0);
        let expected =
            ((values[0][0] + values[1][0]) + (values[2][0] + values[3][0])) + (values[4][0] + values[5][0]);
        assert!(out.iter().all(|v| v.to_bits() == expected.to_bits()));
    }

    #[test]
    fn a_single_input_is_copied() {
        let reduction = Reduction::new(0..4, std::slice::from_ref(&(0..4)));
        let mut out = [0.0; 3];
        reduction.run(|_, range| &[1.0, 2.0, 3.0][range], &mut [], &mut out, 0);
        assert_eq!(out, [1.0, 2.0, 3.0]);
    }
}
