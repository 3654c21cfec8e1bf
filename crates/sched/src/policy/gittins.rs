//! The job that is likeliest to end soon for what it takes goes first: 2D-Gittins.
//!
//! # Idea
//!
//! Queues as in [`las2d`](super::las). Within a queue, jobs are ordered by the Gittins index of what they have had, a
//! device-seconds: of the jobs that needed more than a, the share that needed no more than `quantum` beyond it, over
//! what they took of the quantum on average. The distribution of what jobs need is learnt from the jobs that have ended
//! so far: nothing is known of those that have not. Where no job is known that needed more, the index is 0; of equal
//! indices those that run go first, then in the order of the queue.
//!
//! # Source
//!
//! Gittins, Bandit processes and dynamic allocation indices, 1979; for gangs of devices: Gu et al., Tiresias, NSDI
//! 2019.
//!
//! # Reads
//!
//! Device-seconds of jobs that have ended and of those that are there, and how many devices they ask for.
//!
//! # Complexity
//!
//! All n jobs at each event, O(n log n) and two searches among those that ended; per job that ends, O(√n) of the jobs
//! that ended before it. The index changes while a job runs, so no order outlasts an event.
//!
//! # Bad when
//!
//! Few jobs have ended, or later jobs are not like earlier ones; restarts are costly.

use std::cmp::Reverse;

use bellwether_core::ParseError;
use bellwether_core::cluster::JobId;
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use super::las::{Attained, FIRST, MORE, PROMOTE, Queues, WholeView};
use crate::greedy::bits;
use crate::options::Options;

/// Gittins index of attained service, in queues.
pub const SERVICE: About = About {
    name: "gittins2d",
    idea: "as las2d; in a queue, who is likeliest to end for what it takes, learnt from jobs that ended",
    options: &[FIRST, MORE, PROMOTE, ("quantum", 3250.0, "device-seconds over which the index looks ahead")],
    bad_when: "few jobs have ended yet, later jobs are not like earlier ones, or restarts are costly",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| Ok(Box::new(Gittins::new(options)?)),
};

/// What jobs needed that have ended: many that were sorted in at once, and few since then, so that one more costs
/// O(√n).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    old: Sorted,
    recent: Sorted,
}

/// Numbers in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Sorted {
    values: Vec<f64>,
    /// Sums of the first one, of the first two, and so on.
    sums: Vec<f64>,
}

impl Sorted {
    fn add(&mut self, values: &[f64]) {
        self.values.extend(values);
        self.values.sort_by(f64::total_cmp);
        let mut sum = 0.0;
        let up_to = |value: &f64| {
            sum += value;
            sum
        };
        self.sums = self.values.iter().map(up_to).collect();
    }

    /// How many are no larger than `most`, and their sum.
    fn up_to(&self, most: f64) -> (f64, f64) {
        let count = self.values.partition_point(|value| *value <= most);
        (count as f64, count.checked_sub(1).map_or(0.0, |last| self.sums[last]))
    }
}

impl Samples {
    /// Takes in one more.
    pub fn add(&mut self, value: f64) {
        self.recent.add(&[value]);
        if self.recent.values.len().pow(2) > self.old.values.len() {
            self.old.add(&std::mem::take(&mut self.recent).values);
        }
    }

    /// How many are no larger than `most`, and their sum.
    fn up_to(&self, most: f64) -> (f64, f64) {
        let ((count, sum), (more, added)) = (self.old.up_to(most), self.recent.up_to(most));
        (count + more, sum + added)
    }

    /// The Gittins index at `attained` with this quantum; 0 from the largest sample on.
    ///
    /// ```
    /// use bellwether_sched::policy::gittins::Samples;
    /// let mut samples = Samples::default();
    /// for value in [4.0, 1.0, 9.0] {
    ///     samples.add(value);
    /// }
    /// // Of 4 and 9, one ends within 3 of 2: after 2, where the other takes all 3.
    /// assert_eq!(samples.index(2.0, 3.0), (1.0 / 2.0) / ((2.0 + 3.0) / 2.0));
    /// assert_eq!(samples.index(9.0, 3.0), 0.0);
    /// ```
    pub fn index(&self, attained: f64, quantum: f64) -> f64 {
        let all = (self.old.values.len() + self.recent.values.len()) as f64;
        let (below, sum_below) = self.up_to(attained);
        let (within, sum_within) = self.up_to(attained + quantum);
        if below == all {
            return 0.0;
        }
        let ended = within - below;
        let took = sum_within - sum_below - ended * attained + (all - within) * quantum;
        if took > 0.0 { ended / took } else { f64::MAX }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Gittins {
    queues: WholeView,
    samples: Samples,
    quantum: f64,
}

impl Gittins {
    fn new(options: &Options) -> Result<Gittins, ParseError> {
        let queues = WholeView::new(Queues::read(Attained::Service, options)?);
        let quantum = options.get("quantum");
        if quantum <= 0.0 {
            return Err(options.out_of_range("quantum", "a number above 0"));
        }
        Ok(Gittins { queues, samples: Samples::default(), quantum })
    }
}

impl Policy for Gittins {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        // A job that ended without devices was not done.
        for (_, seen) in changes.ended.iter().filter(|(_, seen)| seen.is_running()) {
            self.samples.add(seen.device_s);
        }
        let (samples, quantum) = (&self.samples, self.quantum);
        let index = |queues: &WholeView, id: JobId| {
            let seen = &view.jobs[&id];
            let forgiven = queues.forgiven_s(id) * f64::from(seen.job.asked());
            Reverse(bits(samples.index(seen.device_s(now_s) - forgiven, quantum)))
        };
        self.queues.decide_by(input, Rule::GittinsIndex, index)
    }
}
