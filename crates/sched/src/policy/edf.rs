//! Earliest deadline first: the devices that were asked for or none, with preemption.
//!
//! # Idea
//!
//! At every arrival and completion jobs are walked in the order of their deadlines, those without one last and in the
//! order of arrival. Each job that fits into what is left runs; the others stop or wait.
//!
//! # Source
//!
//! Liu and Layland, Scheduling algorithms for multiprogramming in a hard-real-time environment, JACM 1973, for one
//! processor. On gangs that do not fit exactly it is a rule of thumb.
//!
//! # Reads
//!
//! Deadlines, order of arrival and the devices asked for.
//!
//! # Complexity
//!
//! O(jobs log jobs) for an event.
//!
//! # Bad when
//!
//! The cluster is overloaded: devices go to jobs that miss their deadlines all the same, and make others miss theirs.

use bellwether_core::cluster::{JobId, JobView};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::greedy::{Place, bits, run_in_order};

/// Earliest deadline first.
pub const ABOUT: About = About {
    name: "edf",
    idea: "the nearest deadline goes first, on the devices asked for; who has none comes last",
    options: &[],
    bad_when: "the cluster is overloaded: jobs that are late anyway make others late",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Edf::default())),
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Edf {
    board: FreeDevices,
}

impl Policy for Edf {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { view, changes, .. } = *input;
        self.board.follow(view, changes);
        let place =
            |(&id, seen): (&JobId, &JobView)| (bits(seen.job.deadline_s.unwrap_or(f64::INFINITY)), id);
        let mut places: Vec<Place> = view.jobs.iter().map(place).collect();
        places.sort_unstable();
        let order: Vec<JobId> = places.into_iter().map(|(_, id)| id).collect();
        let mut draft = DecisionBuilder::new(&mut self.board);
        let runs = run_in_order(view, &order, &mut draft);
        let waiting = runs.iter().filter(|runs| !**runs).count();
        draft.finish(Rule::Deadline, waiting, None)
    }
}
