//! Silent corruption: which virtual node of which step is computed again, by whom, and what is said of a difference.
//!
//! In every step whose number is a multiple of `every`, the worker that computes one virtual node and another one that
//! computes it again put a digest of it into the control bytes of the step's own collective. So every worker compares
//! them before anything of the step is applied, and a step is either done by all or by none, as ever.
//!
//! Who it is follows from the step and the membership alone. Check number c = step / every takes virtual node `c · s
//! mod V`, where s is coprime to V and near V divided by the golden ratio: each V checks in a row take every node once,
//! and the nodes of a few checks in a row lie far apart, so that they belong to different workers. Every V checks the
//! distance in rank between the two workers grows by one: after V · (W − 1) checks every virtual node has met every
//! other worker.

use std::ops::Range;

use crate::membership::{Membership, Verdict, WorkerId};

/// A digest of what a worker computed for a virtual node.
pub type Digest = [u8; 32];

/// A virtual node that is computed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The step.
    pub step: u64,
    /// The virtual node.
    pub node: u32,
    /// Whose node it is.
    pub worker: WorkerId,
    /// Who computes it again; the same worker where it is alone.
    pub checker: WorkerId,
    /// The worker that decides whose result is wrong; there is one only if there are three workers.
    pub judge: Option<WorkerId>,
}

/// The check that is due in an update of these steps: one at most, in the first step that has one.
pub fn due(every: u64, steps: &Range<u64>, virtual_nodes: u32, membership: &Membership) -> Option<Check> {
    let number = if every == 0 { return None } else { steps.start.div_ceil(every) };
    let step = number.checked_mul(every).filter(|step| steps.contains(step))?;
    let nodes = u64::from(virtual_nodes.max(1));
    let (turn, place) = (number / nodes, number % nodes);
    let node = (u128::from(place) * u128::from(stride(nodes)) % u128::from(nodes)) as u32;
    let workers = membership.active.len();
    let owner = membership.active.iter().position(|member| member.nodes.contains(&node))?;
    let others = workers as u64 - 1;
    let away = if others == 0 { 0 } else { 1 + (turn % others) as usize };
    let checker = (owner + away) % workers;
    let judge = (1..workers).map(|next| (checker + next) % workers).find(|rank| *rank != owner);
    let worker = |rank: usize| membership.active[rank].worker;
    Some(Check {
        step,
        node,
        worker: worker(owner),
        checker: worker(checker),
        judge: judge.filter(|_| workers > 2).map(worker),
    })
}

/// The number coprime to `nodes` that is next below its 0.618th part.
fn stride(nodes: u64) -> u64 {
    let coprime = |number: &u64| gcd(*number, nodes) == 1;
    (1..=(nodes * 618).div_ceil(1000)).rev().find(coprime).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Digest of a virtual node: its gradient, the model state that it left, and the sum of its losses.
pub fn digest(values: &[f32], loss_sum: f64) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytemuck::cast_slice(values));
    hasher.update(&loss_sum.to_bits().to_le_bytes());
    hasher.finalize().into()
}

impl Check {
    /// Whose digest differs from that of the judge, which agrees with the other.
    pub fn verdict(&self, digests: [Digest; 2], judged: Digest) -> Verdict {
        let wrong = |worker| self.judge.map_or(Verdict::Open, |judge| Verdict::Wrong { worker, judge });
        match digests.map(|digest| digest == judged) {
            [true, false] => wrong(self.checker),
            [false, true] => wrong(self.worker),
            _ => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::membership::Active;
    use crate::tree::ranges;

    fn membership(virtual_nodes: u32, workers: u32) -> Membership {
        let active = ranges(virtual_nodes, workers).into_iter().zip(11..);
        let active = active.map(|(nodes, worker)| Active { worker, address: String::new(), nodes });
        Membership { active: active.collect(), ..Membership::default() }
    }

    proptest! {
        #[test]
        fn every_node_meets_every_other_worker(virtual_nodes in 2u32..40, workers in 2u32..9, every in 1u64..50, turn in 0u64..9) {
            let workers = workers.min(virtual_nodes);
            let membership = membership(virtual_nodes, workers);
            let checks = u64::from(virtual_nodes) * u64::from(workers - 1);
            let mut seen = BTreeSet::new();
            for number in turn * checks..(turn + 1) * checks {
                let step = number * every;
                let check = due(every, &(step..step + 1), virtual_nodes, &membership).unwrap();
                prop_assert_eq!(check.step, step);
                let owner = membership.active.iter().find(|m| m.worker == check.worker).unwrap();
                prop_assert!(owner.nodes.contains(&check.node) && check.checker != check.worker);
                prop_assert_eq!(check.judge.is_some(), workers > 2);
                prop_assert!(check.judge != Some(check.worker) && check.judge != Some(check.checker));
                prop_assert!(seen.insert((check.node, check.checker)));
                if every > 1 {
                    prop_assert_eq!(due(every, &(step + 1..step + every), virtual_nodes, &membership), None);
                }
            }
            prop_assert_eq!(seen.len() as u64, checks);
        }
    }

    #[test]
    fn checks_in_a_row_take_different_workers() {
        let membership = membership(8, 4);
        let owners: Vec<_> =
            (0..4).map(|step| due(1, &(step..step + 1), 8, &membership).unwrap().worker).collect();
        assert_eq!(BTreeSet::from_iter(&owners).len(), 4, "{owners:?}");
        // An update of several steps is checked once.
        assert_eq!(due(4, &(2..11), 8, &membership).map(|check| check.step), Some(4));
        assert_eq!(due(0, &(0..9), 8, &membership), None);
    }

    #[test]
    fn a_lone_worker_checks_itself_and_two_have_no_judge() {
        let alone = due(1, &(5..6), 8, &membership(8, 1)).unwrap();
        assert_eq!((alone.worker, alone.checker, alone.judge), (11, 11, None));
        let two = due(1, &(5..6), 8, &membership(8, 2)).unwrap();
        assert_eq!((two.worker + two.checker, two.judge), (23, None));
    }

    #[test]
    fn two_of_three_are_right() {
        let check = due(1, &(0..1), 3, &membership(3, 3)).unwrap();
        let (judge, [a, b, c]) = (check.judge.unwrap(), [[1; 32], [2; 32], [3; 32]]);
        assert_eq!(check.verdict([a, b], a), Verdict::Wrong { worker: check.checker, judge });
        assert_eq!(check.verdict([a, b], b), Verdict::Wrong { worker: check.worker, judge });
        assert_eq!(check.verdict([a, b], c), Verdict::Open);
    }
}
