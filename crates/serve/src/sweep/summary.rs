//! What a sweep found, and what it cost.

use bellwether_core::sweep::{Sample, TrialScheduler};
use bellwether_sched::search::TrialState;
use serde::Serialize;

use super::ledger::Predicted;
use super::state::{Progress, State};

/// What a sweep found, and what it cost.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Random name of the sweep.
    pub id: String,
    /// What is compared.
    pub metric: &'static str,
    /// The sampler and the trial scheduler.
    pub scheduler: &'static str,
    /// Whether every trial has ended.
    pub over: bool,
    /// Why the trials wait, if they do.
    pub halted: Option<String>,
    /// The best trial.
    pub winner: Option<u64>,
    /// All trials by number.
    pub trials: Vec<TrialSummary>,
    /// Seconds that the sweep was at work.
    pub seconds: f64,
    /// Seconds of all workers together.
    pub worker_s: f64,
    /// What they cost, where a price is known, in dollars.
    pub cost_dollars: Option<f64>,
    /// What was predicted before it began.
    pub predicted: Option<Predicted>,
    /// Processes that carried the sweep.
    pub processes: u32,
    /// Whenever a trial had a better figure than all before it.
    pub progress: Vec<Progress>,
}

/// A trial.
#[derive(Debug, Clone, Serialize)]
pub struct TrialSummary {
    /// Its number.
    pub trial: u64,
    /// Its job.
    pub job: Option<String>,
    /// Its values.
    pub sample: Sample,
    /// What became of it: training, paused, finished, stopped, failed.
    pub state: &'static str,
    /// Why.
    pub why: String,
    /// The metric by length, as evaluated.
    pub reports: Vec<(u64, f64)>,
    /// Its last figure.
    pub figure: Option<f64>,
    /// Steps that it had done when it ended.
    pub step: Option<u64>,
    /// Steps of the whole trial.
    pub total_steps: Option<u64>,
    /// Digest of what was trained.
    pub digest: Option<String>,
    /// Seconds of all its workers together.
    pub worker_s: f64,
}

impl Summary {
    /// The summary of a state; `worker_s`: seconds of the workers of each trial, as far as an engine knows of it.
    pub fn of(state: &State, worker_s: &dyn Fn(u64) -> Option<f64>) -> Summary {
        let trials: Vec<TrialSummary> =
            state.search.trials.iter().map(|trial| one(state, trial.number as usize, worker_s)).collect();
        let all_s = trials.iter().map(|trial| trial.worker_s).sum::<f64>();
        let scheduler: &TrialScheduler = &state.search.plan().scheduler;
        Summary {
            id: state.id.clone(),
            metric: state.search.plan().metric.name(),
            scheduler: scheduler.name(),
            over: state.over.is_some(),
            halted: state.halted.clone(),
            winner: state.search.best().map(|trial| trial.number),
            trials,
            seconds: state.time_s,
            worker_s: all_s,
            cost_dollars: state.file.budget.price.map(|price| price.get() * all_s / 3600.0),
            predicted: state.predicted,
            processes: state.processes,
            progress: state.progress.clone(),
        }
    }
}

fn one(state: &State, number: usize, worker_s: &dyn Fn(u64) -> Option<f64>) -> TrialSummary {
    let trial = &state.search.trials[number];
    let (word, why) = match &trial.state {
        TrialState::Training => ("training", String::new()),
        TrialState::Paused => ("paused", String::new()),
        TrialState::Finished => ("finished", String::new()),
        TrialState::Stopped(reason) => ("stopped", reason.to_string()),
        TrialState::Failed(why) => ("failed", why.clone()),
    };
    let job = state.jobs.get(&trial.number);
    let end = job.and_then(|job| job.end.as_ref());
    TrialSummary {
        trial: trial.number,
        job: job.map(|job| job.name.clone()),
        sample: trial.sample.clone(),
        state: word,
        why,
        reports: trial.reports.iter().map(|(at, figure)| (*at, *figure)).collect(),
        figure: trial.reports.last_key_value().map(|(_, figure)| *figure),
        step: end.map(|end| end.step),
        total_steps: job.map(|job| job.total_steps),
        digest: end.and_then(|end| end.digest.clone()),
        worker_s: worker_s(trial.number).or(end.map(|end| end.worker_s)).unwrap_or(0.0),
    }
}
