//! The shape of the canonical summation tree over virtual nodes, and how workers share its leaves.
//!
//! Adding `f32` is not associative, so the order of additions decides bits. Every sum of a job therefore follows one
//! binary tree over its virtual nodes (the leaves `0..V`), no matter which worker holds them: a node `[lo, hi)` with
//! more than one leaf splits at the largest power of two below its number of leaves. The runtime adds along it; models
//! count what it makes travel.

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

/// The leaves of workers that compute at these speeds, so that the one that takes longest takes as little as it can;
/// with equal speeds as [`ranges`] has them. Each worker has at least one leaf when there are enough.
///
/// ```
/// use bellwether_core::tree::{ranges, ranges_by_speed};
/// assert_eq!(ranges_by_speed(8, &[1.0, 0.5, 1.0]), [0..3, 3..5, 5..8]);
/// assert_eq!(ranges_by_speed(8, &[2.0, 2.0, 2.0]), ranges(8, 3));
/// ```
///
/// # Panics
///
/// If a speed is not a positive number.
pub fn ranges_by_speed(virtual_nodes: u32, speeds: &[f64]) -> Vec<Range<u32>> {
    assert!(speeds.iter().all(|speed| *speed > 0.0), "a speed is a positive number");
    let workers = u32::try_from(speeds.len()).expect("no more workers than virtual nodes");
    if speeds.windows(2).all(|pair| pair[0] == pair[1]) {
        return if workers == 0 { Vec::new() } else { ranges(virtual_nodes, workers) };
    }
    // One each, then each further one to whom it delays least, of equals to whom has least.
    let mut counts = vec![u32::from(workers <= virtual_nodes); speeds.len()];
    for _ in counts.iter().sum()..virtual_nodes {
        let ends = |worker: &usize| f64::from(counts[*worker] + 1) / speeds[*worker];
        let next =
            (0..counts.len()).min_by(|a, b| ends(a).total_cmp(&ends(b)).then(counts[*a].cmp(&counts[*b])));
        counts[next.expect("there is a worker")] += 1;
    }
    let mut first = 0;
    let mut range = |count: &u32| {
        first += count;
        first - count..first
    };
    counts.iter().map(&mut range).collect()
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
