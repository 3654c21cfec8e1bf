//! One decision out of those of several policies.

use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, ClusterView, JobId};
use bellwether_core::policy::{Action, Decision, Reason, Rule};

use super::reclaim;

/// Actions in the order in which they were decided.
#[derive(Debug, Default)]
pub(super) struct Draft {
    actions: Vec<Action>,
    /// What the first policy decided by.
    reason: Option<Reason>,
    /// Policies that were asked.
    asked: u32,
    /// Whether jobs lost devices that no policy took from them.
    is_forced: bool,
    /// Devices that were lent and taken back.
    pub(super) reclaimed: u32,
}

impl Draft {
    /// Where actions go that no policy decided.
    pub(super) fn forced(&mut self) -> &mut Vec<Action> {
        self.is_forced = true;
        &mut self.actions
    }

    /// Adds what a policy decided.
    pub(super) fn add(&mut self, decision: Decision) {
        self.actions.extend(decision.actions);
        self.reason.get_or_insert(decision.reason);
        self.asked += 1;
    }

    /// The decision. What one policy decided alone stays as it is; of several, a job is acted on once.
    pub(super) fn finish(self, view: &ClusterView, waiting: u32, next_wakeup_s: Option<f64>) -> Decision {
        let Draft { actions, reason, asked, is_forced, reclaimed } = self;
        let nothing =
            Reason { rule: Rule::Custom, started: 0, stopped: 0, resized: 0, waiting: 0, reclaimed: 0 };
        let mut reason = Reason { waiting, reclaimed, ..reason.unwrap_or(nothing) };
        if asked <= 1 && !is_forced {
            return Decision { actions, reason, next_wakeup_s };
        }
        (reason.started, reason.stopped, reason.resized) = (0, 0, 0);
        let actions = net(view, actions, &mut reason);
        Decision { actions, reason, next_wakeup_s }
    }
}

/// What all actions together come to: first who releases devices, then who gets some.
fn net(view: &ClusterView, actions: Vec<Action>, reason: &mut Reason) -> Vec<Action> {
    let mut last: BTreeMap<JobId, usize> = BTreeMap::new();
    for (place, action) in actions.iter().enumerate() {
        last.insert(subject(action), place);
    }
    let none = Allocation::none();
    let (mut releases, mut others) = (Vec::new(), Vec::new());
    for (place, action) in actions.into_iter().enumerate() {
        if last[&subject(&action)] != place {
            continue;
        }
        let Action::Allocate { job, allocation, batch, beside, way, .. } = &action else {
            others.push(action);
            continue;
        };
        let seen = view.jobs.get(job);
        let (before, was_beside) = seen.map_or((&none, None), |seen| (&seen.allocation, seen.beside));
        if (before, was_beside) == (allocation, *beside) {
            // It is where it was; perhaps with another batch, or in another way.
            if !allocation.is_empty() && (batch.is_some() || way.is_some()) {
                reason.resized += 1;
                others.push(action);
            }
            continue;
        }
        match (before.is_empty(), allocation.is_empty()) {
            (true, _) => reason.started += 1,
            (false, true) => reason.stopped += 1,
            (false, false) => reason.resized += 1,
        }
        if !before.is_empty() {
            releases.push(reclaim::stop_action(*job));
        }
        if !allocation.is_empty() {
            others.push(action);
        }
    }
    releases.extend(others);
    releases
}

fn subject(action: &Action) -> JobId {
    match action {
        Action::Allocate { job, .. } | Action::Refuse { job, .. } => *job,
    }
}
