//! The queues that divide the slots: what their jobs hold by the last decision, and what they had of late.

use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::cluster::{ClusterView, JobView};
use bellwether_core::policy::Decision;
use bellwether_core::queue::{QueueTree, QueuesFile};
use bellwether_sched::queues::History;

use super::{LineError, State};
use crate::ledger::KeptQueues;
use crate::outlook::Deciding;

/// Queues that divide the slots.
#[derive(Debug, Clone)]
pub struct Queues {
    /// As they were described.
    pub file: Arc<QueuesFile>,
    /// The same, checked.
    pub tree: QueueTree,
    /// What each had of late, as of the last decision. Slots that are held between two decisions are taken to be those
    /// that were held after the first of them.
    pub history: History,
    /// By queue and type of slot, what its jobs and those of the queues below hold by the last decision.
    pub held: Vec<Vec<u32>>,
}

impl Queues {
    fn new(file: &QueuesFile, view: &ClusterView, place: &str) -> Result<Queues, InputError> {
        let tree = QueueTree::new(file, place)?;
        tree.check_cluster(view, place)?;
        let (history, held) = (History::new(&tree), Vec::new());
        Ok(Queues { file: Arc::new(file.clone()), tree, history, held })
    }

    /// Those of a state that a compaction keeps.
    pub(super) fn kept(&self) -> KeptQueues {
        KeptQueues { file: (*self.file).clone(), history: self.history.clone(), held: self.held.clone() }
    }

    /// The same again. What cannot be so is left out: it decides about nothing but the order of those who borrow.
    pub(super) fn restored(kept: &KeptQueues, view: &ClusterView) -> Option<Queues> {
        let mut queues = Queues::new(&kept.file, view, "queues").ok()?;
        let count = queues.tree.queues().len();
        queues.count(view, view.jobs.values().filter(|seen| seen.is_running()));
        if kept.history.queues() == count {
            queues.history = kept.history.clone();
        }
        if kept.held.len() == count && kept.held.iter().all(|held| held.len() == view.device_types.len()) {
            queues.held.clone_from(&kept.held);
        }
        Some(queues)
    }

    /// Counts what jobs hold now.
    fn count<'v>(&mut self, view: &ClusterView, running: impl Iterator<Item = &'v JobView>) {
        self.held = vec![vec![0; view.device_types.len()]; self.tree.queues().len()];
        for seen in running {
            let Some(queue) = self.queue_of(seen) else { continue };
            for share in seen.allocation.shares() {
                let Some(node) = view.nodes.get(share.node.0 as usize) else { continue };
                for above in self.tree.path(queue) {
                    self.held[above][usize::from(node.device_type)] += share.devices;
                }
            }
        }
    }

    /// What the jobs of a queue, and of those below it, hold of a type by the last decision.
    pub fn held_of(&self, queue: usize, kind: usize) -> u32 {
        self.held.get(queue).and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0)
    }

    /// A job of a queue that is not there any more is in the default one.
    pub(super) fn queue_of(&self, seen: &JobView) -> Option<usize> {
        let queue = self.tree.of_job(seen.job.queue.as_deref());
        queue.or_else(|_| self.tree.of_job(None)).ok()
    }

    fn follow(&mut self, now_s: f64) {
        let held: Vec<u32> = self.held.iter().map(|kinds| kinds.iter().sum()).collect();
        self.history.follow(now_s, self.tree.half_life_s, |queue| held.get(queue).copied().unwrap_or(0));
    }
}

impl State {
    /// These queues divide the slots, or none do. What a queue had of late stays with its name.
    pub(super) fn divide(&mut self, file: Option<&QueuesFile>) -> Result<(), LineError> {
        let wrong = |error: InputError| LineError::Queues(error.to_string());
        let queues = file.map(|file| Queues::new(file, &self.view, "queues")).transpose().map_err(wrong)?;
        self.follow_queues();
        let before = std::mem::replace(&mut self.queues, queues);
        if let (Some(before), Some(now)) = (before, &mut self.queues) {
            now.history = before.history.moved(&before.tree, &now.tree);
        }
        self.count_queues();
        self.begin_policy();
        Ok(())
    }

    /// The queues as they were described, if any divide the slots.
    pub fn queues_file(&self) -> Option<&Arc<QueuesFile>> {
        self.queues.as_ref().map(|queues| &queues.file)
    }

    /// Until now queues had what they held.
    pub(super) fn follow_queues(&mut self) {
        if let Some(queues) = &mut self.queues {
            queues.follow(self.now_s);
        }
    }

    /// A decision, and what queues had until it and hold after it.
    pub(super) fn decide_in_queues(&mut self, decision: &Decision, deciding_s: f64) -> Result<(), LineError> {
        self.follow_queues();
        let decided = self.decide(decision, deciding_s);
        self.count_queues();
        decided
    }

    fn count_queues(&mut self) {
        self.sort_touched();
        let (view, active) = (&self.view, &self.active);
        if let Some(queues) = &mut self.queues {
            queues.count(view, active.holding.iter().filter_map(|job| view.jobs.get(job)));
        }
    }

    /// What makes the policy that decides.
    pub fn deciding(&self) -> Deciding {
        let queues = self.queues.as_ref().map(|queues| (queues.tree.clone(), queues.history.clone()));
        Deciding { policy: self.policy.clone(), queues }
    }
}
