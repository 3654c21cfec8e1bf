//! What a session would start, found out without starting anything.

use std::collections::VecDeque;

use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::metrics;
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use serde::Serialize;

use crate::begin::outset::Outset;

/// Steps at the end of a run that say how long those that follow will take.
const STEPS: usize = 100;

/// What a session would start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Name of the job.
    pub job: String,
    /// Name that its run would have.
    pub run: String,
    /// Numbers of workers that are allowed.
    pub workers: WorkerRange,
    /// Workers at the start; absent where a measurement would choose.
    pub initial_workers: Option<u32>,
    /// Samples of a step.
    pub batch: u64,
    /// Virtual nodes that the workers share.
    pub virtual_nodes: u32,
    /// Steps of the whole run.
    pub steps: u64,
    /// Steps that are done.
    pub first_step: u64,
    /// Samples of an epoch.
    pub training_samples: u64,
    /// Held-out samples.
    pub held_out_samples: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Bytes that a worker keeps from step to step, at least: parameters, their gradients, and the state of the
    /// optimizer and the model. Activations and data come on top.
    pub worker_bytes: u64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Seconds that the steps to come take, as the last ones of the run did or as a plan says; absent where neither is
    /// known.
    pub expected_s: Option<f64>,
}

impl Outlook {
    pub(crate) fn new(job: &Job, outset: &Outset, description: &WorkloadDescription) -> Outlook {
        let steps = job.total_steps(description.training_samples);
        let optimizer = Optimizer::new(job, steps);
        let slots = optimizer.slots().len() as u64;
        // Parameters, slots and gradient of the virtual node that takes local steps.
        let outer = job.sync.has_outer_steps();
        let local = if outer { 2 + optimizer.local_slots() as u64 } else { 0 };
        let parameters = description.layout.parameter_count() as u64;
        let state = description.layout.state_count() as u64;
        let workers = u64::from(outset.workers.min.max(1));
        let held = job.sharding.map_or(workers, |sharding| u64::from(sharding.copies).min(workers));
        Outlook {
            job: job.name.clone(),
            run: String::new(),
            workers: outset.workers,
            initial_workers: None,
            batch: job.batch.size,
            virtual_nodes: job.batch.virtual_nodes,
            steps,
            first_step: outset.first_step,
            training_samples: description.training_samples,
            held_out_samples: description.held_out_samples,
            parameters,
            worker_bytes: 4
                * (2 * parameters
                    + (parameters * slots * held).div_ceil(workers)
                    + state
                    + local * parameters),
            checkpoint_bytes: 4 * (parameters * (1 + slots) + state),
            expected_s: None,
        }
    }

    /// Of a new run: a plan says how fast it is.
    pub(crate) fn begins(&mut self, state_dir: &StateDir, job: &Job, plan: Option<&Plan>) {
        self.run = format!("{}-{}", job.name, state_dir.next_number(job));
        let chosen = plan.and_then(|plan| plan.candidates.get(plan.choice?));
        let samples = self.steps as f64 * self.batch as f64;
        self.expected_s = chosen.map(|chosen| samples / chosen.examples_per_s);
    }

    /// Of a run that is taken up again: it was measured.
    pub(crate) fn resumes(&mut self, run: &RunDir) {
        self.run.clone_from(&run.name);
        let left = self.steps.saturating_sub(self.first_step);
        self.expected_s = step_s(run).map(|step_s| step_s * left as f64);
    }
}

/// Seconds of a step of a run, as the last ones took.
fn step_s(run: &RunDir) -> Option<f64> {
    let mut last = VecDeque::new();
    for step in metrics::read(&run.path) {
        last.push_back(step.duration_s / step.steps() as f64);
        last.drain(..last.len().saturating_sub(STEPS));
    }
    (!last.is_empty()).then(|| last.iter().sum::<f64>() / last.len() as f64)
}
