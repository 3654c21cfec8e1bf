//! Strict priority: the highest weight first, all devices that it asks for or none, kept to its end.
//!
//! # Idea
//!
//! Waiting jobs stand in the order of their weights, equal ones in the order of arrival. The first starts when all that
//! it asks for is free; no job passes it, and running jobs are not disturbed, no matter which policy placed them. What
//! its limits no longer allow is taken from it, as in [`fifo`](super::fifo).
//!
//! # Source
//!
//! The baseline of Or, Zhang, Freedman, VirtualFlow, MLSys 2022.
//!
//! # Reads
//!
//! Weights, order of arrival and the devices asked for.
//!
//! # Complexity
//!
//! O(log jobs) for a job that starts.
//!
//! # Bad when
//!
//! Devices stand idle before a wide job, low weights starve, and a heavy job waits for light ones that run.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bellwether_core::cluster::JobId;
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use super::fifo::{enter, leave};
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::greedy::bits;

/// Strict priority.
pub const ABOUT: About = About {
    name: "priority",
    idea: "jobs start in order of their weights, and no job passes one that does not fit or disturbs one that runs",
    options: &[],
    bad_when: "devices stand idle before a wide job, and low weights starve",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: false },
    make: |_| Ok(Box::new(Priority::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Priority {
    board: FreeDevices,
    /// Lightest and latest first.
    waiting: BTreeSet<(u64, Reverse<JobId>)>,
}

impl Policy for Priority {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, changes, .. } = *input;
        self.board.follow(view, changes);
        let left: BTreeSet<JobId> = leave(view, changes).collect();
        if !left.is_empty() {
            self.waiting.retain(|(_, Reverse(id))| !left.contains(id));
        }
        self.waiting.extend(enter(view, changes).map(|(id, seen)| (bits(seen.job.weight), Reverse(id))));
        let mut draft = DecisionBuilder::new(&mut self.board);
        while let Some(&(_, Reverse(id))) = self.waiting.last() {
            let seen = &view.jobs[&id];
            if !draft.start_on(id, seen, seen.job.asked()) {
                break;
            }
            self.waiting.pop_last();
        }
        draft.finish(Rule::WeightedShares, self.waiting.len(), None)
    }
}
