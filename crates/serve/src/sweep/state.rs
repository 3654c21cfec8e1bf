//! The state of a sweep: the fold over the lines of its ledger, and nothing else changes it.

use std::collections::BTreeMap;

use bellwether_core::sweep::{Ladder, SweepFile};
use bellwether_sched::search::{Decision, Plan, Search, TrialState};

use super::ledger::{Entry, Line, Outcome, Predicted};

/// What is known of a trial's job.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialJob {
    /// Its name.
    pub name: String,
    /// Steps of a unit of length, at least 1.
    pub unit_steps: u64,
    /// Steps of the whole trial.
    pub total_steps: u64,
    /// How it ended, if it has.
    pub end: Option<JobEnd>,
}

/// The end of a trial's job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEnd {
    /// How.
    pub outcome: Outcome,
    /// Steps that it had done.
    pub step: u64,
    /// Digest of what was trained.
    pub digest: Option<String>,
    /// Seconds of all its workers together.
    pub worker_s: f64,
}

/// A better figure than all before it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Progress {
    /// Seconds that the sweep had been at work.
    pub time_s: f64,
    /// The trial.
    pub trial: u64,
    /// Units of length that all trials had been trained.
    pub units: u64,
    /// The figure.
    pub figure: f64,
}

/// The state of a sweep.
#[derive(Debug, Clone)]
pub struct State {
    /// Random name of the sweep.
    pub id: String,
    /// What its author wrote when it began.
    pub file: SweepFile,
    /// Digest of the job without the varied keys.
    pub base: String,
    /// Slots for workers.
    pub slots: u32,
    /// The trials and what follows from them.
    pub search: Search,
    /// The jobs of trials.
    pub jobs: BTreeMap<u64, TrialJob>,
    /// Seconds that the sweep has been at work.
    pub time_s: f64,
    /// Why all trials wait, if they do.
    pub halted: Option<String>,
    /// Seconds of all workers together, once it is over.
    pub over: Option<f64>,
    /// Processes that carried the sweep.
    pub processes: u32,
    /// What it was predicted to come to.
    pub predicted: Option<Predicted>,
    /// Figures that were better than all before.
    pub progress: Vec<Progress>,
}

impl State {
    /// The state after these lines.
    ///
    /// # Errors
    ///
    /// Returns what contradicts the lines before it.
    pub fn fold(lines: &[Line]) -> Result<State, String> {
        let (first, rest) = lines.split_first().ok_or("there is no line")?;
        let Entry::Opened { id, file, plan, base, slots, predicted, .. } = &first.entry else {
            return Err("the first line does not open a sweep".into());
        };
        check(file, plan)?;
        let mut state = State {
            id: id.clone(),
            file: file.as_ref().clone(),
            base: base.clone(),
            slots: *slots,
            search: Search::new(Plan::clone(plan)),
            jobs: BTreeMap::new(),
            time_s: first.time_s,
            halted: None,
            over: None,
            processes: 1,
            predicted: *predicted,
            progress: Vec::new(),
        };
        for (number, line) in rest.iter().enumerate() {
            state.apply(line).map_err(|why| format!("line {}: {why}", number + 2))?;
        }
        Ok(state)
    }

    /// Takes in a line.
    ///
    /// # Errors
    ///
    /// Returns what contradicts the lines before it.
    pub fn apply(&mut self, line: &Line) -> Result<(), String> {
        self.time_s = self.time_s.max(line.time_s);
        match &line.entry {
            Entry::Opened { .. } => return Err("the sweep is open".into()),
            Entry::Resumed { budget, concurrent, .. } => {
                self.search.limit(budget.trials, *concurrent);
                self.file.budget = *budget;
                (self.halted, self.over) = (None, None);
                self.processes += 1;
            }
            Entry::Decided { decision } => self.search.apply(decision)?,
            Entry::Started { trial, job, unit_steps, total_steps } => {
                let (name, unit_steps) = (job.clone(), (*unit_steps).max(1));
                let job = TrialJob { name, unit_steps, total_steps: *total_steps, end: None };
                if *trial >= self.search.trials.len() as u64 || self.jobs.insert(*trial, job).is_some() {
                    return Err(format!("trial {trial} has not begun, or has a job"));
                }
            }
            Entry::Reported { trial, at, figure, .. } => {
                self.search.report(*trial, *at, figure.unwrap_or(f64::NAN))?;
                self.note(*trial, *figure);
            }
            Entry::Ended { trial, outcome, why, step, digest, worker_s } => {
                let end =
                    JobEnd { outcome: *outcome, step: *step, digest: digest.clone(), worker_s: *worker_s };
                match outcome {
                    Outcome::Finished => self.search.finish(*trial)?,
                    Outcome::Failed => self.search.fail(*trial, why.clone())?,
                    Outcome::Stopped => {}
                }
                if let Some(job) = self.jobs.get_mut(trial) {
                    job.end = Some(end);
                }
            }
            Entry::Halted { why } => self.halted = Some(why.clone()),
            Entry::Over { worker_s, .. } => self.over = Some(*worker_s),
        }
        Ok(())
    }

    /// Notes a figure that is better than all before it.
    fn note(&mut self, trial: u64, figure: Option<f64>) {
        let Some(figure) = figure else { return };
        let cost = |figure: f64| self.search.plan().metric.cost(figure);
        if self.progress.last().is_none_or(|last| cost(figure) < cost(last.figure)) {
            let units = self.units();
            self.progress.push(Progress { time_s: self.time_s, trial, units, figure });
        }
    }

    /// Units of length that all trials were trained, as far as they were evaluated.
    pub fn units(&self) -> u64 {
        let last = |reports: &BTreeMap<u64, f64>| reports.last_key_value().map_or(0, |(at, _)| *at);
        self.search.trials.iter().map(|trial| last(&trial.reports)).sum()
    }

    /// The next decision, if one is due.
    pub fn next(&self) -> Option<Decision> {
        if self.halted.is_some() { None } else { self.search.next() }
    }

    /// Whether every trial has ended, with its job, and no more begin.
    pub fn is_over(&self) -> bool {
        let ended = |trial: u64| self.jobs.get(&trial).is_none_or(|job| job.end.is_some());
        self.search.is_over() && self.search.trials.iter().all(|trial| ended(trial.number))
    }

    /// The step at which a trial waits; `None` where it is trained to its end.
    pub fn rung(&self, trial: u64) -> Option<u64> {
        let search = &self.search;
        let to = search.trials.get(usize::try_from(trial).ok()?)?.to?;
        let is_last = search.plan().ladder.is_none_or(|ladder| to >= ladder.maximum);
        let unit = self.jobs.get(&trial)?.unit_steps;
        if is_last { None } else { Some(to.saturating_mul(unit)) }
    }

    /// Whether a trial is to train.
    pub fn trains(&self, trial: u64) -> bool {
        let trial = usize::try_from(trial).ok().and_then(|trial| self.search.trials.get(trial));
        self.halted.is_none() && trial.is_some_and(|trial| trial.state == TrialState::Training)
    }
}

/// A plan that somebody changed by hand must not make a search without end.
fn check(file: &SweepFile, plan: &Plan) -> Result<(), String> {
    let checked = file.clone().check().map_err(|error| error.to_string())?;
    let is_ladder = |ladder: &Ladder| {
        let Ladder { minimum, maximum, reduction } = *ladder;
        minimum >= 1 && maximum >= minimum && reduction >= 2
    };
    let is_whole = plan.ladder.is_some() == plan.scheduler.resources().is_some();
    if checked.space != plan.space || plan.concurrent == 0 || !is_whole || !plan.ladder.iter().all(is_ladder)
    {
        return Err("the plan is not that of the sweep file".into());
    }
    Ok(())
}
