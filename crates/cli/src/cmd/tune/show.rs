//! What a search found, as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_core::job::Job;
use bellwether_core::prediction::Protocol;
use bellwether_core::units::{Dollars, DollarsPerHour};
use bellwether_des::statistics::Tally;
use bellwether_sched::tune::{Ask, Gain, Setting};
use bellwether_session::tune::{State, then};
use serde::Serialize;

use crate::options::TableFormat;
use crate::render;
use crate::render::csv::{Csv, cell};
use crate::render::duration::written;
use crate::render::words::count;

/// Probability of the intervals.
const LEVEL: f64 = 0.95;

/// One share of synchronous steps.
#[derive(Debug, Serialize)]
struct Row {
    fraction: f64,
    sessions: usize,
    diverged: u32,
    /// Mean accuracy, or mean loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    /// Half of the interval of the mean; absent for fewer than two sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    half_width: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: String,
    workers: u32,
    measure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
    margin: f64,
    settings: Vec<Row>,
    /// The least share that passed.
    pub(super) best: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<Gain>,
    sessions: usize,
    cost_s: f64,
    cost_samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_dollars: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recurrences: Option<u64>,
    /// Seconds gained after that many recurrences, the search paid; negative where it is not paid yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    net_gain_s: Option<f64>,
    /// What belongs into the job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

impl Row {
    fn new(setting: &Setting) -> Row {
        let scores: Tally = setting.scores.iter().copied().collect();
        let half_width = scores.interval(LEVEL).half_width;
        Row {
            fraction: setting.fraction,
            sessions: setting.scores.len() + setting.diverged as usize,
            diverged: setting.diverged,
            mean: (scores.count() > 0).then(|| scores.mean()),
            half_width: half_width.is_finite().then_some(half_width),
            seconds: setting.seconds,
            passed: setting.passed,
        }
    }

    /// The mean with its interval, of accuracies in percent.
    fn score(&self, accuracies: bool) -> String {
        let Some(mean) = self.mean else { return "diverged".into() };
        let (scale, digits) = if accuracies { (100.0, 2) } else { (1.0, 4) };
        let unit = if accuracies { " %" } else { "" };
        let interval = self.half_width.map_or(String::new(), |half| format!(" ± {:.digits$}", half * scale));
        let lost = if self.diverged > 0 { ", then diverged" } else { "" };
        format!("{:.digits$}{interval}{unit}{lost}", mean * scale)
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

/// Whether the best share is worth a change of the job file: not where it takes as long as synchronous training.
fn pays(gain: Option<&Gain>) -> bool {
    gain.is_none_or(|gain| gain.best_s < gain.synchronous_s)
}

impl Report {
    pub(super) fn new(
        state: &State,
        job: &Job,
        recurrences: Option<u64>,
        price: Option<DollarsPerHour>,
    ) -> Report {
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
            settings: search.settings().iter().map(Row::new).collect(),
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

    pub(super) fn render(&self, format: TableFormat) -> String {
        match format {
            TableFormat::Table => self.table(),
            TableFormat::Json => render::json(self),
            TableFormat::Csv => self.csv(),
        }
    }

    fn table(&self) -> String {
        let accuracies = self.measure == "accuracy";
        let mut text = format!(
            "{:>11}  {:>8}  {:>24}  {:>10}  {}\n",
            "synchronous", "sessions", self.measure, "time", "good enough"
        );
        for row in &self.settings {
            let verdict = match row.passed {
                Some(true) => "yes",
                Some(false) => "no",
                None => "sets the target",
            };
            let _ = writeln!(
                text,
                "{:>9} %  {:>8}  {:>24}  {:>10}  {verdict}",
                row.fraction * 100.0,
                row.sessions,
                row.score(accuracies),
                row.seconds.map_or("–".into(), written),
            );
        }
        if let Some(target) = self.target {
            let wanted = match accuracies {
                true => format!("{:.2} % or more", (target - self.margin) * 100.0),
                false => format!("{:.4} or less", target * (1.0 + self.margin)),
            };
            let _ = writeln!(text, "{:<18} a mean {} of {wanted}", "good enough", self.measure);
        }
        let _ = writeln!(text, "{:<18} {}", "cost", self.cost());
        if let Some(gain) = &self.gain {
            let _ = writeln!(text, "{:<18} {}", "gain", self.worth(gain));
        }
        if let Some(policy) = self.policy.as_ref().filter(|_| pays(self.gain.as_ref())) {
            let _ = write!(text, "{:<18} [sync] policy = {policy}", "in the job file");
        } else if self.gain.is_some() {
            let _ = write!(text, "{:<18} nothing: synchronous training takes no longer", "in the job file");
        }
        text.trim_end().to_string()
    }

    fn cost(&self) -> String {
        let dollars = self.cost_dollars.map_or(String::new(), |cost| format!(", {}", Dollars::new(cost)));
        format!(
            "{}, {}, {}{dollars}",
            count(self.sessions, "session"),
            written(self.cost_s),
            count(self.cost_samples as usize, "sample")
        )
    }

    fn worth(&self, gain: &Gain) -> String {
        let Gain { synchronous_s, extrapolated, best_s, recurrences } = *gain;
        let how = if extrapolated { " (from the line through the others)" } else { "" };
        let mut text = format!("{} instead of {}{how} each time", written(best_s), written(synchronous_s));
        match recurrences {
            Some(count) => {
                let _ = write!(text, "; the search has paid for itself after {count:.1} recurrences");
            }
            None => text.push_str("; the search never pays for itself"),
        }
        if let Some((count, net_s)) = self.recurrences.zip(self.net_gain_s) {
            let word = if net_s < 0.0 { "lost" } else { "gained" };
            let _ = write!(text, "; after {count}, {} are {word}", written(net_s.abs()));
        }
        text
    }

    fn csv(&self) -> String {
        let mut csv =
            Csv::new(["fraction", "sessions", "diverged", "mean", "half_width", "seconds", "passed"]);
        for row in &self.settings {
            let Row { fraction, sessions, diverged, mean, half_width, seconds, passed } = row;
            let [mean, half_width, seconds] = [*mean, *half_width, *seconds].map(cell);
            csv.row(&[fraction, sessions, diverged, &mean, &half_width, &seconds, &cell(*passed)]);
        }
        csv.text()
    }
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
