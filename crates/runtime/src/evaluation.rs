//! How the held-out set is cut and added up, so that an evaluation has the same bits for any workers.

use std::ops::Range;

use crate::tree::children;
use crate::workload::Evaluation;

/// Samples of the held-out set that one call of `evaluate` gets at most.
const BATCH: u64 = 256;

/// What virtual node `node` evaluates of `held_out` samples, in the parts in which a workload gets them.
pub fn parts(held_out: u64, virtual_nodes: u32, node: u32) -> impl Iterator<Item = Range<u64>> {
    let cut = |node: u64| held_out * node / u64::from(virtual_nodes);
    let (start, end) = (cut(u64::from(node)), cut(u64::from(node) + 1));
    (start..end).step_by(BATCH as usize).map(move |first| first..(first + BATCH).min(end))
}

/// The sums over all virtual nodes from that of each, in their order.
///
/// # Panics
///
/// When there is no virtual node.
pub fn total(nodes: &[Evaluation]) -> Evaluation {
    let count = u32::try_from(nodes.len()).expect("virtual nodes are numbered in 32 bits");
    let leaf = |node: &Range<u32>| {
        let Evaluation { loss_sum, correct, predictions } = nodes[node.start as usize];
        (node.len() == 1).then_some([loss_sum, correct as f64, predictions as f64])
    };
    let [loss_sum, correct, predictions] = tree_sum(&(0..count), &leaf);
    Evaluation { loss_sum, correct: correct as u64, predictions: predictions as u64 }
}

/// Adds along the canonical tree down to the nodes whose sums are known.
pub(crate) fn tree_sum(node: &Range<u32>, known: &dyn Fn(&Range<u32>) -> Option<[f64; 3]>) -> [f64; 3] {
    if let Some(sum) = known(node) {
        return sum;
    }
    let (left, right) = children(node).expect("a leaf is known");
    let (left, right) = (tree_sum(&left, known), tree_sum(&right, known));
    std::array::from_fn(|i| left[i] + right[i])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_sample_is_in_one_part(held_out in 0u64..5000, nodes in 1u32..40) {
            let all: Vec<u64> = (0..nodes).flat_map(|node| parts(held_out, nodes, node)).flatten().collect();
            prop_assert_eq!(all, (0..held_out).collect::<Vec<_>>());
            prop_assert!((0..nodes).flat_map(|node| parts(held_out, nodes, node)).all(|p| p.end - p.start <= BATCH));
        }
    }

    #[test]
    fn sums_are_added_along_the_tree() {
        let node = |loss_sum| Evaluation { loss_sum, correct: 1, predictions: 2 };
        let nodes = [1.0, 1e16, -1e16].map(node);
        // (1 + 1e16) loses the one, as it does in a run.
        assert_eq!(total(&nodes), Evaluation { loss_sum: 0.0, correct: 3, predictions: 6 });
        assert_eq!(total(&nodes[..1]), nodes[0]);
    }
}
