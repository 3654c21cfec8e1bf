//! What each queue is entitled to now: its guarantee as far as it has demand, then its part of the surplus.
//!
//! Types of device are dealt out one by one. Entitlements are whole devices, and they never add up to more than there
//! is. The odd devices that no queue has a whole part of are in no entitlement: they are lent to the queue that asks
//! first.

use bellwether_core::queue::QueueTree;

/// Parts that differ by less from a whole number are that number.
const ROUNDING: f64 = 1e-9;

/// Whether a queue does not hold what a job of it needs, and what it had of late.
pub(super) type Order = (bool, Vec<(u64, usize)>);

/// Rights to devices of one type, by queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// What each has as soon as its jobs can use it.
    pub(super) guarantee: Vec<u32>,
    /// The most that each may hold.
    pub(super) limit: Vec<u32>,
    /// What each may claim now, even from queues that hold it.
    pub(super) entitled: Vec<u32>,
}

impl Rights {
    /// Deals `up` devices out; with `deals_surplus` also those that no guarantee needs. `demand` says how many
    /// devices the jobs of a leaf can use that run on at most this many at least, and `widest` how many the job needs
    /// that needs most, of those that need at most this many.
    ///
    /// A job that needs more than its queue is entitled to is left out: with it the queue would keep devices from
    /// others that it cannot use. Where that is so in several, the one that comes last by `order` leaves its job out
    /// first, which may give another one what it needs.
    pub(super) fn new(
        tree: &QueueTree,
        (guarantee, limit): (Vec<u32>, Vec<u32>),
        (up, deals_surplus): (u32, bool),
        demand: impl Fn(usize, u32) -> u64,
        widest: impl Fn(usize, u32) -> u32,
        order: impl Fn(usize, u32) -> Order,
    ) -> Rights {
        let mut rights = Rights { entitled: vec![0; guarantee.len()], guarantee, limit };
        let bounds = if deals_surplus { rights.limit.clone() } else { rights.guarantee.clone() };
        let leaves: Vec<usize> = tree.leaves().collect();
        let mut widths: Vec<u32> = vec![0; rights.guarantee.len()];
        for &leaf in &leaves {
            let most = tree.path(leaf).map(|at| rights.limit[at]).min().unwrap_or(u32::MAX);
            widths[leaf] = widest(leaf, most.min(up));
        }
        loop {
            rights.deal(tree, up, &bounds, |leaf| demand(leaf, widths[leaf]));
            let is_too_wide = |leaf: &&usize| widths[**leaf] > rights.entitled[**leaf];
            let wide = leaves.iter().filter(is_too_wide);
            let Some(&leaf) = wide.max_by_key(|leaf| order(**leaf, widths[**leaf])) else { return rights };
            widths[leaf] = widest(leaf, rights.entitled[leaf]);
        }
    }

    /// No queue gets more than `most`.
    fn deal(&mut self, tree: &QueueTree, up: u32, most: &[u32], demand: impl Fn(usize) -> u64) {
        let queues = tree.queues();
        let mut wanted = vec![0_u32; queues.len()];
        // Queues come after those above them.
        for at in (0..queues.len()).rev() {
            let below = &queues[at].children;
            let sum = match below.is_empty() {
                true => demand(at),
                false => below.iter().map(|child| u64::from(wanted[*child])).sum(),
            };
            wanted[at] = u32::try_from(sum).unwrap_or(u32::MAX).min(most[at]);
        }
        self.fill(tree, None, up, &wanted);
        for at in 0..queues.len() {
            self.fill(tree, Some(at), self.entitled[at], &wanted);
        }
    }

    /// Deals `amount` devices out among the queues below one: guarantees first, and the rest by weight.
    fn fill(&mut self, tree: &QueueTree, parent: Option<usize>, amount: u32, wanted: &[u32]) {
        let mut open: Vec<usize> = tree.below(parent).collect();
        let mut left = amount;
        for &at in &open {
            self.entitled[at] = self.guarantee[at].min(wanted[at]).min(left);
            left -= self.entitled[at];
        }
        loop {
            open.retain(|at| self.entitled[*at] < wanted[*at]);
            let weights: f64 = open.iter().map(|at| tree.queues()[*at].weight).sum();
            let part = |at: usize| f64::from(left) * tree.queues()[at].weight / weights + ROUNDING;
            let lacks = |at: usize| wanted[at] - self.entitled[at];
            let satisfied: Vec<usize> =
                open.iter().copied().filter(|at| f64::from(lacks(*at)) <= part(*at)).collect();
            let grants: Vec<(usize, u32)> = match satisfied.is_empty() {
                false => satisfied.iter().map(|at| (*at, lacks(*at))).collect(),
                true => open.iter().map(|at| (*at, part(*at) as u32)).collect(),
            };
            for (at, devices) in grants {
                let devices = devices.min(left);
                self.entitled[at] += devices;
                left -= devices;
            }
            if satisfied.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::queue::QueueTree;

    use super::Rights;

    const TREE: &str = r#"
        queues = [
            { name = "a", guarantee = "50%" },
            { name = "a/x", guarantee = "50%", weight = 3 },
            { name = "a/y" },
            { name = "b", guarantee = "25%", limit = 10 },
        ]
    "#;

    /// Entitlements of `default`, `a/x`, `a/y` and `b` to 16 devices.
    fn entitled(demands: [u64; 4], widths: [u32; 4]) -> [u32; 4] {
        let tree = QueueTree::parse(TREE, "test").expect("it is a tree");
        let of = ["default", "a/x", "a/y", "b"].map(|name| tree.find(name).expect("it is there"));
        let place = |leaf: usize| of.iter().position(|at| *at == leaf).expect("it is a leaf");
        let bounds = (tree.guarantees("gpu", 16), tree.limits("gpu", 16));
        // Each has one job: all its demand, or nothing.
        let demand = |leaf: usize, most: u32| {
            if widths[place(leaf)] <= most { demands[place(leaf)] } else { 0 }
        };
        let widest = |leaf: usize, most: u32| {
            if widths[place(leaf)] <= most { widths[place(leaf)] } else { 0 }
        };
        let order = |leaf: usize, _| (true, vec![(0, leaf)]);
        let rights = Rights::new(&tree, bounds, (16, true), demand, widest, order);
        of.map(|at| rights.entitled[at])
    }

    #[test]
    fn guarantees_first_and_surplus_by_weight() {
        // 8 and 4 are guaranteed, and 4 are surplus: a third of them for each of three queues.
        assert_eq!(entitled([99, 99, 99, 99], [1; 4]), [1, 4 + 3, 1, 4 + 1]);
        // What `b` does not want is surplus, too; and a limit is one.
        assert_eq!(entitled([99, 99, 99, 0], [1; 4]), [4, 4 + 6, 2, 0]);
        assert_eq!(entitled([0, 0, 0, 99], [1; 4]), [0, 0, 0, 10]);
        assert_eq!(entitled([99, 0, 0, 99], [1; 4]), [6, 0, 0, 10]);
        // What one of two has no use for goes to the other, within what both are guaranteed.
        assert_eq!(entitled([99, 0, 99, 99], [1; 4]), [1, 0, 9, 5]);
    }

    #[test]
    fn who_cannot_use_its_part_leaves_it() {
        // `a/x` cannot have the 12 that its job needs while `b` has its 4 and `default` its part.
        assert_eq!(entitled([99, 12, 0, 4], [1, 12, 1, 1]), [12, 0, 0, 4]);
        assert_eq!(entitled([1, 12, 0, 0], [1, 12, 1, 1]), [1, 12, 0, 0]);
    }
}
