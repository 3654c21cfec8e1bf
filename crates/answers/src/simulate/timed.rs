//! A policy with a stop-watch, and a diary of its decisions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput};
use serde_json::json;

/// Wraps a policy.
pub(super) struct Timed<'a> {
    inner: &'a mut dyn Policy,
    /// Decisions so far.
    pub(super) decisions: u64,
    /// Seconds that they took together, and the longest.
    pub(super) total_s: f64,
    pub(super) longest_s: f64,
    /// A line per decision that does something, where they are wanted.
    pub(super) diary: Option<Vec<String>>,
    name: &'a str,
    /// Jobs that ended, in all simulations.
    done: &'a AtomicUsize,
}

impl<'a> Timed<'a> {
    pub(super) fn new(
        inner: &'a mut dyn Policy,
        name: &'a str,
        diary: bool,
        done: &'a AtomicUsize,
    ) -> Timed<'a> {
        let diary = diary.then(Vec::new);
        Timed { inner, decisions: 0, total_s: 0.0, longest_s: 0.0, diary, name, done }
    }
}

impl Policy for Timed<'_> {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        let start = Instant::now();
        let decision = self.inner.decide(input);
        let took_s = start.elapsed().as_secs_f64();
        self.decisions += 1;
        self.done.fetch_add(changes.ended.len(), Ordering::Relaxed);
        self.total_s += took_s;
        self.longest_s = self.longest_s.max(took_s);
        if let Some(diary) = self.diary.as_mut().filter(|_| !decision.actions.is_empty()) {
            diary.push(line(self.name, now_s, view, &decision));
        }
        decision
    }
}

fn line(policy: &str, now_s: f64, view: &ClusterView, decision: &Decision) -> String {
    let name = |id: JobId| view.jobs.get(&id).map_or("", |seen| seen.job.description.name.as_str());
    let action = |action: &Action| match action {
        Action::Allocate { job, allocation, batch, beside, .. } => {
            let mut line = json!({
                "job": name(*job),
                "devices": allocation.devices(),
                "nodes": allocation.shares().iter().map(|share| (share.node.0, share.devices)).collect::<Vec<_>>(),
                "batch": batch.map(|batch| batch.samples),
            });
            if let Some(other) = beside {
                line["beside"] = json!(name(*other));
            }
            line
        }
        Action::Refuse { job, why } => json!({ "job": name(*job), "refused": why }),
    };
    let actions: Vec<_> = decision.actions.iter().map(action).collect();
    let line = json!({
        "policy": policy, "time_s": now_s, "reason": decision.reason.to_string(), "actions": actions,
    });
    format!("{line}\n")
}
