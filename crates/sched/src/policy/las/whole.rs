//! Queues by attained service, worked out from the whole view each time.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Rule};
use serde::{Deserialize, Serialize};

use super::Queues;
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::greedy::run_in_order;

/// The same rule for any number of device types: all jobs of all queues are walked at each event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WholeView {
    queues: Queues,
    board: FreeDevices,
    jobs: Vec<Vec<JobId>>,
    forgiven_s: BTreeMap<JobId, f64>,
}

impl WholeView {
    /// With empty queues.
    pub fn new(queues: Queues) -> WholeView {
        let jobs = vec![Vec::new(); queues.count()];
        WholeView { queues, board: FreeDevices::default(), jobs, forgiven_s: BTreeMap::new() }
    }

    /// Its thresholds.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The devices that are free as far as it has got.
    pub(super) fn board(&mut self) -> &mut FreeDevices {
        &mut self.board
    }

    /// Executed seconds of a job that no longer count, since a promotion.
    pub fn forgiven_s(&self, id: JobId) -> f64 {
        self.forgiven_s.get(&id).copied().unwrap_or(0.0)
    }

    fn is_due(&self, queue: usize, id: JobId, view: &ClusterView, runs: bool, now_s: f64) -> bool {
        let seen = &view.jobs[&id];
        let due_s = self.queues.due_s(queue, self.forgiven_s(id), seen, runs, now_s);
        seen.is_running() == runs && due_s.is_some_and(|due_s| due_s <= now_s)
    }

    /// Takes in what happened, and moves jobs down and up.
    fn follow(&mut self, now_s: f64, view: &ClusterView, changes: &Changes) {
        self.board.follow(view, changes);
        let again: Vec<JobId> = changes.gone(view).filter(|id| view.jobs.contains_key(id)).collect();
        for queue in &mut self.jobs {
            queue.retain(|id| view.jobs.contains_key(id) && !again.contains(id));
        }
        for id in changes.gone(view) {
            self.forgiven_s.remove(&id);
        }
        // A job that was suspended and resumed at once may be named twice.
        let mut met = BTreeSet::new();
        let arrived = changes.arrived.iter().filter(|id| met.insert(**id));
        let arrived = arrived.filter_map(|&id| Some((id, view.jobs.get(&id)?)));
        let (run, wait): (Vec<_>, Vec<_>) = arrived.partition(|(_, seen)| seen.is_running());
        for (id, seen) in run.into_iter().chain(wait) {
            self.jobs[self.queues.entry(seen, now_s)].push(id);
        }
        for queue in 0..self.jobs.len() - 1 {
            let jobs = std::mem::take(&mut self.jobs[queue]);
            let (down, stay) = jobs.into_iter().partition(|&id| self.is_due(queue, id, view, true, now_s));
            self.jobs[queue] = stay;
            let down: Vec<JobId> = down;
            self.jobs[queue + 1].extend(down);
        }
        for queue in 1..self.jobs.len() {
            let jobs = std::mem::take(&mut self.jobs[queue]);
            let (up, stay): (Vec<JobId>, _) =
                jobs.into_iter().partition(|&id| self.is_due(queue, id, view, false, now_s));
            self.jobs[queue] = stay;
            for id in up {
                self.forgiven_s.insert(id, view.jobs[&id].executed_s);
                self.jobs[0].push(id);
            }
        }
    }

    /// Decides; within each queue, jobs of a smaller `index` go first, and of equal ones those that ran.
    pub fn decide_by<K: Ord>(
        &mut self,
        input: &PolicyInput<'_>,
        rule: Rule,
        index: impl Fn(&WholeView, JobId) -> K,
    ) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        self.follow(now_s, view, changes);
        let mut queues = std::mem::take(&mut self.jobs);
        for queue in &mut queues {
            queue.sort_by_cached_key(|&id| index(self, id));
        }
        let mut draft = DecisionBuilder::new(&mut self.board);
        let runs = run_in_order(view, &queues.concat(), &mut draft);
        let mut decision = draft.finish(rule, runs.iter().filter(|runs| !**runs).count(), None);
        let mut runs = runs.into_iter();
        let mut next_s = f64::INFINITY;
        for (number, queue) in queues.iter_mut().enumerate() {
            let jobs: Vec<(JobId, bool)> = std::mem::take(queue).into_iter().zip(runs.by_ref()).collect();
            for &(id, runs) in &jobs {
                let due_s = self.queues.due_s(number, self.forgiven_s(id), &view.jobs[&id], runs, now_s);
                next_s = next_s.min(due_s.unwrap_or(f64::INFINITY));
            }
            let (run, wait): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(_, runs)| *runs);
            queue.extend(run.into_iter().chain(wait).map(|(id, _)| id));
        }
        self.jobs = queues;
        decision.next_wakeup_s = next_s.is_finite().then(|| next_s.max(now_s.next_up()));
        decision
    }
}

impl Policy for WholeView {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.decide_by(input, Rule::LeastAttained, |_, _| ())
    }
}
