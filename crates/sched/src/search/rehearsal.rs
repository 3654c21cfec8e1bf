//! A whole search on known learning curves: how long it takes, what it costs and what it finds, without any training.
//!
//! Trial n learns along curve n modulo their number. A trial with w workers takes `unit_s(w)` for a unit of length;
//! beginning, pausing and going on take `change_s`. Workers are dealt out by [`Search::shares`]. It assumes that the
//! speed does not depend on the values of the keys.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Decision, Plan, Search, TrialState};

/// The metric of one trial by length, the last length being that of a whole trial.
pub type Curve = BTreeMap<u64, f64>;

/// What a rehearsal is told.
pub struct Stage<'a> {
    /// Curves of trials, at least one, each with a figure at least.
    pub curves: &'a [Curve],
    /// Slots for workers, at least 1.
    pub workers: u32,
    /// Most workers of a trial, at least 1.
    pub most_workers: u32,
    /// Seconds that a unit of length takes by the number of workers.
    pub unit_s: &'a dyn Fn(u32) -> f64,
    /// Seconds until a trial that begins or goes on trains.
    pub change_s: f64,
    /// Worker-seconds, and seconds, after which no trial goes on.
    pub limits: (Option<f64>, Option<f64>),
}

/// What a search would come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rehearsed {
    /// Seconds until it is over.
    pub seconds: f64,
    /// Seconds of all workers together.
    pub worker_s: f64,
    /// Trials that began.
    pub trials: u64,
    /// Those that were trained to their end.
    pub finished: u64,
    /// Units of length that were trained.
    pub units: u64,
    /// The figure of the best trial at its last evaluation.
    pub best: Option<f64>,
    /// Its number.
    pub best_trial: Option<u64>,
    /// Seconds until the trial that is best in the end had its best figure.
    pub best_at_s: Option<f64>,
    /// Worker-seconds and best figure whenever a trial had a better one.
    pub progress: Vec<(f64, f64)>,
}

/// A trial that trains.
#[derive(Debug, Clone, Copy)]
struct Runner {
    trial: u64,
    workers: u32,
    /// Length at which it is, with parts of a unit.
    at: f64,
    /// Seconds before it trains.
    waits_s: f64,
}

/// Rehearses the plan.
///
/// # Errors
///
/// Returns what contradicts itself in a decision, which would be a fault of the scheduler.
///
/// # Panics
///
/// Panics where there is no curve.
pub fn rehearse(plan: Plan, stage: &Stage<'_>) -> Result<Rehearsed, String> {
    let mut search = Search::new(plan);
    let mut found = Rehearsed::default();
    let mut at: BTreeMap<u64, u64> = BTreeMap::new();
    let mut runners: Vec<Runner> = Vec::new();
    loop {
        let spent = stage.limits.0.is_some_and(|most| found.worker_s >= most)
            || stage.limits.1.is_some_and(|most| found.seconds >= most);
        if spent {
            break;
        }
        decide(&mut search, stage, &mut runners, &at)?;
        let shares = search.shares(stage.workers, |_| stage.most_workers);
        runners.retain(|runner| shares.contains_key(&runner.trial));
        for (trial, workers) in &shares {
            match runners.iter_mut().find(|runner| runner.trial == *trial) {
                Some(runner) => runner.workers = *workers,
                None => {
                    let from = at.get(trial).copied().unwrap_or(0) as f64;
                    let (trial, workers) = (*trial, *workers);
                    runners.push(Runner { trial, workers, at: from, waits_s: stage.change_s });
                }
            }
        }
        if runners.is_empty() {
            break;
        }
        advance(&mut search, stage, &mut runners, &mut at, &mut found)?;
    }
    conclude(&search, found)
}

/// Takes all decisions that are due.
fn decide(
    search: &mut Search,
    stage: &Stage<'_>,
    runners: &mut Vec<Runner>,
    at: &BTreeMap<u64, u64>,
) -> Result<(), String> {
    while let Some(decision) = search.next() {
        search.apply(&decision)?;
        match decision {
            Decision::Pause { trial, .. } | Decision::Stop { trial, .. } => {
                runners.retain(|runner| runner.trial != trial);
            }
            Decision::Begin { .. } => {}
            Decision::Continue { trial, .. } => {
                // One that went on without a pause is still there.
                if !runners.iter().any(|runner| runner.trial == trial) {
                    let from = at.get(&trial).copied().unwrap_or(0) as f64;
                    runners.push(Runner { trial, workers: 1, at: from, waits_s: stage.change_s });
                }
            }
        }
    }
    Ok(())
}

/// Lets time pass until the next evaluation.
fn advance(
    search: &mut Search,
    stage: &Stage<'_>,
    runners: &mut Vec<Runner>,
    at: &mut BTreeMap<u64, u64>,
    found: &mut Rehearsed,
) -> Result<(), String> {
    let curve = |trial: u64| &stage.curves[trial as usize % stage.curves.len()];
    let next = |runner: &Runner| {
        let after = curve(runner.trial).range(runner.at.floor() as u64 + 1..).next();
        after.map_or(runner.at, |(length, _)| *length as f64)
    };
    let left_s =
        |runner: &Runner| runner.waits_s + (next(runner) - runner.at) * (stage.unit_s)(runner.workers);
    let step_s = runners.iter().map(left_s).fold(f64::INFINITY, f64::min).max(0.0);
    found.seconds += step_s;
    let mut arrived = Vec::new();
    for runner in runners.iter_mut() {
        found.worker_s += step_s * f64::from(runner.workers);
        let goal = next(runner);
        if left_s(runner) <= step_s * (1.0 + 1e-12) {
            (runner.at, runner.waits_s) = (goal, 0.0);
            arrived.push((runner.trial, goal as u64));
        } else {
            let waited_s = runner.waits_s.min(step_s);
            runner.waits_s -= waited_s;
            runner.at += (step_s - waited_s) / (stage.unit_s)(runner.workers);
        }
    }
    arrived.sort_unstable();
    for (trial, length) in arrived {
        let before = at.insert(trial, length).unwrap_or(0);
        found.units += length - before;
        let Some(figure) = curve(trial).get(&length) else { continue };
        search.report(trial, length, *figure)?;
        note(search, *figure, found);
        let is_last = curve(trial).last_key_value().is_none_or(|(last, _)| *last <= length);
        let failed = matches!(search.trials[trial as usize].state, TrialState::Failed(_));
        if is_last && !failed {
            search.finish(trial)?;
        }
        if is_last || failed {
            runners.retain(|runner| runner.trial != trial);
        }
    }
    Ok(())
}

/// Notes a figure that is better than all before it.
fn note(search: &Search, figure: f64, found: &mut Rehearsed) {
    let cost = |figure: f64| search.plan().metric.cost(figure);
    let is_better = found.progress.last().is_none_or(|(_, best)| cost(figure) < cost(*best));
    if figure.is_finite() && is_better {
        found.progress.push((found.worker_s, figure));
        found.best_at_s = Some(found.seconds);
    }
}

fn conclude(search: &Search, mut found: Rehearsed) -> Result<Rehearsed, String> {
    found.trials = search.trials.len() as u64;
    found.finished = search.trials.iter().filter(|trial| trial.state == TrialState::Finished).count() as u64;
    if let Some(best) = search.best() {
        found.best_trial = Some(best.number);
        found.best = best.reports.last_key_value().map(|(_, figure)| *figure);
    }
    Ok(found)
}

/// Curves of `count` trials that differ by chance only, evaluated at these lengths: where nothing is known of what
/// trials are worth, this is what a search would cost.
pub fn by_chance(seed: u64, count: u64, lengths: &[u64]) -> Vec<Curve> {
    let figure = |trial: u64, at: u64| super::draw::Draws::new(seed, trial, at as usize).uniform();
    (0..count).map(|trial| lengths.iter().map(|at| (*at, figure(trial, *at))).collect()).collect()
}
