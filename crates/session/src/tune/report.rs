//! What a search found.

use bellwether_core::job::Job;
use bellwether_core::prediction::Protocol;
use bellwether_core::units::DollarsPerHour;
use bellwether_des::statistics::Tally;
use bellwether_sched::tune::{Ask, Gain, Setting};
use serde::Serialize;

use super::state::{State, then};

/// Probability of the intervals.
const LEVEL: f64 = 0.95;

/// One share of synchronous steps.
#[derive(Debug, Serialize)]
pub struct SettingReport {
    /// Share of synchronous steps.
    pub fraction: f64,
    /// Sessions with it.
    pub sessions: usize,
    /// How many of them diverged.
    pub diverged: u32,
    /// Mean accuracy, or mean loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Half of the interval of the mean; absent for fewer than two sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Mean time of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Whether it is good enough; absent for the one that sets the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The job's name.
    pub job: String,
    /// Workers of every session.
    pub workers: u32,
    /// What is compared: `accuracy` or `loss`.
    pub measure: &'static str,
    /// What is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// How much less is good enough.
    pub margin: f64,
    /// The shares that were tried.
    pub settings: Vec<SettingReport>,
    /// The least share that passed.
    pub best: Option<f64>,
    /// What the best share gains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// Sessions that were trained.
    pub sessions: usize,
    /// Seconds that they took.
    pub cost_s: f64,
    /// Samples that they trained on.
    pub cost_samples: u64,
    /// What they cost, where the price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_dollars: Option<f64>,
    /// How often the job will be trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrences: Option<u64>,
    /// Seconds gained after that many recurrences, the search paid; negative where it is not paid yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_gain_s: Option<f64>,
    /// What belongs into the job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl SettingReport {
    fn new(setting: &Setting) -> SettingReport {
        let scores: Tally = setting.scores.iter().copied().collect();
        let half_width = scores.interval(LEVEL).half_width;
        SettingReport {
            fraction: setting.fraction,
            sessions: setting.scores.len() + setting.diverged as usize,
            diverged: setting.diverged,
            mean: (scores.count() > 0).then(|| scores.mean()),
            half_width: half_width.is_finite().then_some(half_width),
            seconds: setting.seconds,
            passed: setting.passed,
        }
    }
}

/// The policy of a job file that is synchronous for a share of the steps.
fn policy(job: &Job, fraction: f64) -> String {
    match then(job) {
        _ if fraction >= 1.0 => "\"bsp\"".into(),
        Protocol::Asp => format!("{{ switch_at = {fraction} }}"),
        then => format!("{{ switch_at = {fraction}, to = \"{then}\" }}"),
    }
}

impl Report {
    /// Sums up a search for `job`, which will recur this often at this price of a worker.
    pub fn new(state: &State, job: &Job, recurrences: Option<u64>, price: Option<DollarsPerHour>) -> Report {
        let search = &state.search;
        let best = match search.next() {
            Ask::Done(best) => best,
            Ask::Run { .. } => None,
        };
        let (cost_s, cost_samples) = search.cost();
        let gain = search.gain();
        let workers = job.workers.min;
        let net = |count: u64, gain: Gain| count as f64 * (gain.synchronous_s - gain.best_s) - cost_s;
        Report {
            job: job.name.clone(),
            workers,
            measure: if search.accuracies() == Some(false) { "loss" } else { "accuracy" },
            target: search.target(),
            margin: search.margin(),
            settings: search.settings().iter().map(SettingReport::new).collect(),
            best,
            gain,
            sessions: search.sessions().len(),
            cost_s,
            cost_samples,
            cost_dollars: price.map(|price| price.get() * cost_s / 3600.0 * f64::from(workers)),
            recurrences,
            net_gain_s: recurrences.zip(gain).map(|(count, gain)| net(count, gain)),
            policy: best.map(|best| policy(job, best)),
        }
    }

    /// Whether the best share is worth a change of the job file: not if it takes as long as synchronous training.
    pub fn pays(&self) -> bool {
        pays(self.gain.as_ref())
    }
}

fn pays(gain: Option<&Gain>) -> bool {
    gain.is_none_or(|gain| gain.best_s < gain.synchronous_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_setting_is_not_recommended() {
        let gain = |best_s| Gain { synchronous_s: 0.95, extrapolated: false, best_s, recurrences: None };
        assert!(pays(None) && pays(Some(&gain(0.5))));
        assert!(!pays(Some(&gain(1.14))) && !pays(Some(&gain(0.95))));
    }
}
