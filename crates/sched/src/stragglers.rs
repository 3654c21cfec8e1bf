//! Which workers are slower than the others for no known reason, and when to replace them.
//!
//! ```text
//! pace     = (work / compute time) / median of that over the workers of the step
//! mean     = (1 - a) mean + a pace          at first the first pace
//! slow     when mean < threshold for `dwell_steps` steps in a row, after `least_steps` steps
//!          and mean < average - d deviations of the means of the workers of the step
//! ```
//!
//! Only time of computing counts, as a worker that waits for a straggler takes as long as the straggler. A worker that
//! falls from 1 to a part f is below the threshold H after `ln((H - f) / (1 - f)) / ln(1 - a)` steps. A replacement is
//! started first, and the straggler leaves when it has joined, so the job never dips below its size. A fixed number of
//! replacements is started in an hour at most: a fault of the job and not of its workers must not make workers come and
//! go for ever.
//!
//! A plain state machine: time is told to it, and its whole state can be written down. Source: the detection of Or,
//! Zhang and Freedman, MLSys 2020, with guards of ours: least steps, steps in a row, a budget.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

const HOUR_S: f64 = 3600.0;

/// When a worker counts as slow, and how often workers are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Weight of the newest step in the mean, above 0 up to 1.
    pub weight: f64,
    /// Pace below which a worker is slow, between 0 and 1.
    pub threshold: f64,
    /// Standard deviations of all workers' means by which its own must also be below their average. With 1, no worker
    /// is slow where half of the workers would be. 0 asks for nothing.
    #[serde(default)]
    pub deviations: f64,
    /// Steps of a worker before it can be slow.
    pub least_steps: u64,
    /// Steps in a row for which its mean must be below the threshold; 0 is as 1.
    pub dwell_steps: u64,
    /// Replacements started within any hour, at most.
    pub per_hour: u32,
}

/// One worker in one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The worker.
    pub worker: u32,
    /// What it computed, in any unit that all share: virtual nodes, or, where workers are known to differ in speed, the
    /// seconds that were expected of it.
    pub work: f64,
    /// Seconds of computing.
    pub compute_s: f64,
}

/// What the runtime has to do, or should write down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Start a worker that will take the place of this one.
    Start(Slow),
    /// The worker is slow too, but the budget of the hour is spent. Said once until it is replaced or quick again.
    Withhold(Slow),
}

/// A slow worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// Which.
    pub worker: u32,
    /// Its mean pace; 1 is that of the median worker.
    pub pace: f64,
    /// Steps for which it has been below the threshold.
    pub steps: u64,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Action::Start(Slow { worker, pace, steps }) | Action::Withhold(Slow { worker, pace, steps })) =
            self;
        write!(f, "worker {worker} computes at {pace:.2} of the median pace for {steps} steps: ")?;
        match self {
            Action::Start(_) => write!(f, "a replacement starts, and the worker leaves when that has joined"),
            Action::Withhold(_) => write!(f, "it stays, as the replacements of this hour are used up"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Pace {
    mean: f64,
    steps: u64,
    /// Steps in a row below the threshold.
    slow_steps: u64,
    /// A replacement is on its way.
    replaced: bool,
    /// The lack of budget was said.
    withheld: bool,
}

/// What is known of all workers of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stragglers {
    limits: Limits,
    paces: BTreeMap<u32, Pace>,
    /// When replacements were started, within the last hour, in seconds.
    started_s: Vec<f64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { weight: 0.1, threshold: 0.8, deviations: 0.0, least_steps: 10, dwell_steps: 5, per_hour: 4 }
    }
}

impl Limits {
    fn is_slow(&self, pace: &Pace) -> bool {
        pace.steps >= self.least_steps && pace.slow_steps >= self.dwell_steps.max(1)
    }
}

impl Pace {
    fn found(&self, worker: u32) -> Slow {
        Slow { worker, pace: self.mean, steps: self.slow_steps }
    }
}

impl Stragglers {
    /// No worker known yet.
    ///
    /// # Errors
    ///
    /// Returns an error for a weight or a threshold outside 0 to 1, or a negative number of deviations.
    pub fn new(limits: Limits) -> Result<Stragglers, InputError> {
        let Limits { weight, threshold, deviations, .. } = limits;
        if !(weight > 0.0 && weight <= 1.0 && threshold > 0.0 && threshold < 1.0) {
            let what = format!("weight {weight} and threshold {threshold}");
            return Err(
                InputError::new("stragglers", what).hint("give 0 < weight <= 1 and 0 < threshold < 1")
            );
        }
        if !(deviations >= 0.0 && deviations.is_finite()) {
            let what = format!("{deviations} deviations");
            return Err(InputError::new("stragglers", what).hint("give 0 or more, 1 for example"));
        }
        Ok(Stragglers { limits, paces: BTreeMap::new(), started_s: Vec::new() })
    }

    /// Takes in a step that ended at `now_s`; answers which replacements to start, the slowest worker first.
    ///
    /// Observations without positive finite numbers are passed over, as are all when there are fewer than two: one
    /// worker is its own median.
    pub fn observe(&mut self, now_s: f64, step: &[Observation]) -> Vec<Action> {
        if !self.watch(step) {
            return Vec::new();
        }
        self.started_s.retain(|started_s| now_s - started_s < HOUR_S);
        self.decide(now_s)
    }

    /// Takes in a step and decides nothing; [`Stragglers::slow`] tells what it showed. The answer is whether it showed
    /// anything: observations are passed over as [`Stragglers::observe`] has it.
    pub fn watch(&mut self, step: &[Observation]) -> bool {
        let good =
            |seen: &&Observation| seen.work > 0.0 && seen.compute_s > 0.0 && seen.compute_s.is_finite();
        let speeds = step.iter().filter(good).map(|seen| (seen.worker, seen.work / seen.compute_s));
        let speeds: BTreeMap<u32, f64> = speeds.filter(|(_, speed)| speed.is_normal()).collect();
        if speeds.len() < 2 {
            return false;
        }
        let median = median(speeds.values().copied().collect());
        for (worker, speed) in &speeds {
            self.take(*worker, speed / median);
        }
        self.judge(speeds.keys());
        true
    }

    /// Who is slow, the slowest worker first; those whose replacement is on its way too.
    pub fn slow(&self) -> Vec<Slow> {
        let slow = self.paces.iter().filter(|(_, pace)| self.limits.is_slow(pace));
        let mut slow: Vec<Slow> = slow.map(|(&worker, pace)| pace.found(worker)).collect();
        slow.sort_by(|a, b| a.pace.total_cmp(&b.pace));
        slow
    }

    /// A replacement for `worker` has joined: the answer is whether `worker` is there and must leave now. It is not
    /// known any more afterwards.
    pub fn joined(&mut self, worker: u32) -> bool {
        self.paces.remove(&worker).is_some()
    }

    /// The replacement for `worker` will not come. Its start counts in the budget all the same.
    pub fn failed(&mut self, worker: u32) {
        if let Some(pace) = self.paces.get_mut(&worker) {
            pace.replaced = false;
        }
    }

    /// A worker left, for whatever reason.
    pub fn left(&mut self, worker: u32) {
        self.paces.remove(&worker);
    }

    /// The mean pace of a worker; 1 is that of the median worker.
    pub fn pace(&self, worker: u32) -> Option<f64> {
        self.paces.get(&worker).map(|pace| pace.mean)
    }

    fn take(&mut self, worker: u32, value: f64) {
        let new = Pace { mean: value, steps: 0, slow_steps: 0, replaced: false, withheld: false };
        let pace = self.paces.entry(worker).or_insert(new);
        pace.mean += self.limits.weight * (value - pace.mean);
        pace.steps += 1;
    }

    /// Counts the steps in a row in which the workers of this step are below what is asked of them.
    fn judge<'a>(&mut self, workers: impl Iterator<Item = &'a u32> + Clone) {
        let Limits { threshold, deviations, .. } = self.limits;
        let means: Vec<f64> = workers.clone().filter_map(|worker| self.pace(*worker)).collect();
        let count = means.len() as f64;
        let average = means.iter().sum::<f64>() / count;
        let variance = means.iter().map(|mean| (mean - average).powi(2)).sum::<f64>() / count;
        // Half of the workers are one deviation below the average: rounding must not make stragglers of them.
        let least = average - deviations * variance.sqrt() * (1.0 + 1e-9);
        for worker in workers {
            let Some(pace) = self.paces.get_mut(worker) else { continue };
            if pace.mean < threshold && (deviations == 0.0 || pace.mean < least) {
                pace.slow_steps += 1;
            } else {
                (pace.slow_steps, pace.withheld) = (0, false);
            }
        }
    }

    fn decide(&mut self, now_s: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        for found in self.slow() {
            let Some(pace) = self.paces.get_mut(&found.worker).filter(|pace| !pace.replaced) else {
                continue;
            };
            if self.started_s.len() < self.limits.per_hour as usize {
                pace.replaced = true;
                self.started_s.push(now_s);
                actions.push(Action::Start(found));
            } else if !pace.withheld {
                pace.withheld = true;
                actions.push(Action::Withhold(found));
            }
        }
        actions
    }
}

/// The value in the middle, or the mean of both.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}
