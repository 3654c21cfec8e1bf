//! What queues have had of late.

use bellwether_core::queue::QueueTree;
use serde::{Deserialize, Serialize};

/// Device-seconds that queues had, each counting half after every half-life.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// When it was last brought up to date, in seconds; absent before the first time.
    time_s: Option<f64>,
    /// By queue, as in [`QueueTree::queues`].
    device_s: Vec<f64>,
}

impl History {
    /// Of queues that had nothing yet.
    pub fn new(tree: &QueueTree) -> History {
        History { time_s: None, device_s: vec![0.0; tree.queues().len()] }
    }

    /// The same for the queues of another tree: what a queue had stays with its name.
    #[must_use]
    pub fn moved(&self, from: &QueueTree, to: &QueueTree) -> History {
        let had = |name: &str| from.find(name).and_then(|at| self.device_s.get(at)).copied().unwrap_or(0.0);
        History { time_s: self.time_s, device_s: to.queues().iter().map(|queue| had(&queue.name)).collect() }
    }

    /// Of how many queues it tells.
    pub fn queues(&self) -> usize {
        self.device_s.len()
    }

    /// Each queue held this many devices until now.
    pub fn follow(&mut self, now_s: f64, half_life_s: f64, held: impl Fn(usize) -> u32) {
        let Some(before_s) = self.time_s.replace(now_s) else { return };
        let passed_s = now_s - before_s;
        if !(passed_s > 0.0 && passed_s.is_finite()) {
            return;
        }
        let kept = (-passed_s / half_life_s).exp2();
        // The integral of what decays while it comes.
        let seconds = half_life_s / std::f64::consts::LN_2 * (1.0 - kept);
        for (queue, device_s) in self.device_s.iter_mut().enumerate() {
            *device_s = *device_s * kept + f64::from(held(queue)) * seconds;
        }
    }

    /// Device-seconds of a queue, as they count now.
    pub fn device_s(&self, queue: usize) -> f64 {
        self.device_s[queue]
    }

    /// Where a queue stands in the order of those that had least for their weight: from the top of the tree down, so
    /// that siblings are compared with each other.
    pub(super) fn place(&self, tree: &QueueTree, queue: usize) -> Vec<(u64, usize)> {
        let part = |at: usize| crate::greedy::bits(self.device_s[at] / tree.queues()[at].weight);
        let mut place: Vec<(u64, usize)> = tree.path(queue).map(|at| (part(at), at)).collect();
        place.reverse();
        place
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::queue::QueueTree;

    use super::History;

    #[test]
    fn what_was_had_counts_half_after_a_half_life() {
        let tree = QueueTree::parse("queues = []", "test").unwrap();
        let mut history = History::new(&tree);
        history.follow(5.0, 100.0, |_| 7);
        assert_eq!(history.device_s(0), 0.0);
        history.follow(105.0, 100.0, |_| 8);
        let had = history.device_s(0);
        // 8 devices for 100 s, of which the first second counts half by now.
        assert!((had - 8.0 * 100.0 * 0.5 / std::f64::consts::LN_2).abs() < 1e-9, "{had}");
        history.follow(205.0, 100.0, |_| 0);
        assert!((history.device_s(0) - had / 2.0).abs() < 1e-9);
        // As good as never.
        history.follow(1e9, 100.0, |_| 0);
        assert_eq!(history.device_s(0), 0.0);
    }
}
