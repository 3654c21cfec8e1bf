//! The shape of the canonical summation tree over virtual nodes, and how workers share its leaves.
//!
//! Adding `f32` is not associative, so the order of additions decides bits. Every sum of a job therefore
//! follows one binary tree over its virtual nodes (the leaves `0..V`), whoever holds them: a node `[lo, hi)` with more
//! than one leaf splits at the largest power of two below its number of leaves. The runtime adds along it;
//! models count what it makes travel.

use std::ops::Range;

/// Splits a canonical node in its two children; `None` for a leaf (or an empty range).
pub fn children(node: &Range<u32>) -> Option<(Range<u32>, Range<u32>)> {
    let leaves = node.end.saturating_sub(node.start);
    if leaves < 2 {
        return None;
    }
    // The largest power of two strictly below `leaves`.
    let left_leaves = 1u32 << (31 - (leaves - 1).leading_zeros());
    let middle = node.start + left_leaves;
    Some((node.start..middle, middle..node.end))
}

/// The leaves of each of `workers` workers: worker `i` holds `[i*V/W, (i+1)*V/W)`.
///
/// # Panics
///
/// If `workers` is 0.
pub fn ranges(virtual_nodes: u32, workers: u32) -> Vec<Range<u32>> {
    assert!(workers > 0, "a range needs a worker that holds it");
    let bound = |i: u32| {
        let bound = u64::from(i) * u64::from(virtual_nodes) / u64::from(workers);
        u32::try_from(bound).expect("a bound never exceeds the number of virtual nodes")
    };
    (0..workers).map(|i| bound(i)..bound(i + 1)).collect()
}

/// The largest canonical nodes that lie wholly inside `range`, from left to right.
///
/// Together they are exactly `range`; an empty range has none.
pub fn maximal_nodes(virtual_nodes: u32, range: Range<u32>) -> Vec<Range<u32>> {
    fn visit(node: Range<u32>, range: &Range<u32>, found: &mut Vec<Range<u32>>) {
        if node.end <= range.start || range.end <= node.start {
            return;
        }
        if range.start <= node.start && node.end <= range.end {
            found.push(node);
        } else if let Some((left, right)) = children(&node) {
            visit(left, range, found);
            visit(right, range, found);
        }
    }
    let mut found = Vec::new();
    if range.start < range.end {
        visit(0..virtual_nodes, &range, &mut found);
    }
    found
}
