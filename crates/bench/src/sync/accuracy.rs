//! Accuracy by who waits for whom: the same task, seeds and number of samples under each protocol.

use bellwether_des::statistics::Tally;

use super::super::report::{Report, Row};
use super::super::statistics::{largest, mean, median, smallest};
use super::super::trial::Outcome;
use super::tasks::{TASKS, Task};
use super::{SyncArguments, session, set};
use crate::failure::Failure;
use crate::printer::Printer;

/// Points of accuracy that a switch may cost.
const BOUND_POINTS: f64 = 1.0;

const BSP: &str = "bsp";
const ASP: &str = "asp";

/// A way to train: its name, and what the table `[sync]` says.
type Way = (&'static str, &'static [(&'static str, &'static str)]);

const POLICIES: [Way; 8] = [
    (BSP, &[("policy", "\"bsp\"")]),
    (ASP, &[("policy", "\"asp\"")]),
    ("bsp 6.25 %, asp", &[("policy", "{ switch_at = 0.0625 }")]),
    ("bsp 12.5 %, asp", &[("policy", "{ switch_at = 0.125 }")]),
    ("bsp 25 %, asp", &[("policy", "{ switch_at = 0.25 }")]),
    ("bsp 50 %, asp", &[("policy", "{ switch_at = 0.5 }")]),
    ("asp 25 %, bsp", &[("policy", "{ phases = [[0.0, \"asp\"], [0.25, \"bsp\"]] }")]),
    ("asp 50 %, bsp", &[("policy", "{ phases = [[0.0, \"asp\"], [0.5, \"bsp\"]] }")]),
];

const SWITCH: (&str, &str) = ("policy", "{ switch_at = 0.125 }");
const RULES: [Way; 5] = [
    ("momentum kept, rate linear", &[SWITCH]),
    ("momentum scaled", &[SWITCH, ("momentum", "\"scale\"")]),
    ("momentum zero", &[SWITCH, ("momentum", "\"zero\"")]),
    ("rate by square root", &[SWITCH, ("rate", "\"square-root\"")]),
    ("rate kept", &[SWITCH, ("rate", "\"keep\"")]),
];

/// What came of the runs of a way, seed by seed.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) percent: Vec<f64>,
    staleness: Vec<f64>,
    pub(super) seconds: Vec<f64>,
    diverged: usize,
}

impl Results {
    /// Takes in a run; returns its accuracy in percent.
    pub(super) fn add(&mut self, task: &Task, outcome: &Outcome) -> f64 {
        let summary = &outcome.summary;
        // A run that failed knows nothing of its task.
        let accuracy = summary.accuracy.unwrap_or(task.chance);
        self.percent.push(100.0 * accuracy);
        self.staleness.extend(summary.staleness.as_ref().and_then(|staleness| staleness.mean()));
        self.seconds.push(summary.elapsed_s);
        self.diverged += usize::from(accuracy < 1.5 * task.chance);
        100.0 * accuracy
    }

    pub(super) fn row(&self, case: String, base: &Results) -> Row {
        let (accuracy, loss) = (interval(&self.percent), interval(&self.lost(base)));
        Row::new(case)
            .with("accuracy_percent", accuracy.0)
            .with("interval_points", accuracy.1)
            .with("lost_points", loss.0)
            .with("lost_interval_points", loss.1)
            .with("diverged", self.diverged)
            .with("staleness_mean", mean(&self.staleness))
            .with("staleness_least", smallest(&self.staleness))
            .with("staleness_most", largest(&self.staleness))
            .with("elapsed_median_s", median(&self.seconds))
            .samples("accuracy_samples_percent", &self.percent)
            .samples("staleness_samples", &self.staleness)
    }

    /// Points below `base`, seed by seed.
    fn lost(&self, base: &Results) -> Vec<f64> {
        base.percent.iter().zip(&self.percent).map(|(base, own)| base - own).collect()
    }
}

/// Mean, and half the width of its 95 % interval.
fn interval(samples: &[f64]) -> (f64, f64) {
    let interval = samples.iter().copied().collect::<Tally>().interval(0.95);
    (interval.mean, interval.half_width)
}

pub(super) fn measure(
    arguments: &SyncArguments,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), Failure> {
    for task in chosen(arguments) {
        for rate in task.rates {
            let case = format!("{}, rate {rate}", task.name);
            let results = runs(task, *rate, &POLICIES, &case, arguments, printer)?;
            for ((way, _), result) in POLICIES.iter().zip(&results) {
                report.row(result.row(format!("{case}: {way}"), &results[0]));
            }
            bars(report, &case, &results);
        }
    }
    report.note(
        "Accuracy is that of the held-out samples, mean and half of its 95 % interval over the seeds (Student); what is \
         lost against bsp is paired by seed. Workers are paced: each sleeps in proportion to its computing. Staleness is \
         the updates of a piece of the parameters between its pull and the update; mean, least and most of the runs' \
         means.",
    );
    Ok(())
}

/// The rules for changing momentum and rate at the switch, at the highest rate, where they matter most.
pub(super) fn rules(
    arguments: &SyncArguments,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), Failure> {
    for task in chosen(arguments) {
        let rate = task.rates[task.rates.len() - 1];
        let case = format!("{}, rate {rate}, bsp 12.5 %, asp", task.name);
        let results = runs(task, rate, &RULES, &case, arguments, printer)?;
        for ((rule, _), result) in RULES.iter().zip(&results) {
            report.row(result.row(format!("{case}: {rule}"), &results[0]));
        }
    }
    Ok(())
}

pub(super) fn chosen(arguments: &SyncArguments) -> impl Iterator<Item = &'static Task> {
    TASKS.iter().filter(|task| arguments.tasks.iter().any(|name| name == task.name))
}

/// Every way with every seed, in turns.
fn runs(
    task: &Task,
    rate: f64,
    ways: &[Way],
    case: &str,
    arguments: &SyncArguments,
    printer: &Printer,
) -> Result<Vec<Results>, Failure> {
    let mut results: Vec<Results> = ways.iter().map(|_| Results::default()).collect();
    for seed in 1..=arguments.seeds {
        for ((name, table), results) in ways.iter().zip(&mut results) {
            let mut options = vec![format!("--speed={}", arguments.pace)];
            // A way that names a rule of its own comes after it, and wins.
            options.extend(set("momentum", &format!("\"{}\"", arguments.momentum)));
            options.extend(table.iter().flat_map(|(key, value)| set(key, value)));
            let accuracy = results.add(task, &session(&task.text(rate, seed), &options)?);
            printer.note(format_args!("{case}, {name}, seed {seed}: {accuracy:.1} %"));
        }
    }
    Ok(results)
}

fn bars(report: &mut Report, case: &str, results: &[Results]) {
    let [bsp, asp, switches @ .., asp_25, asp_50] = results else { return };
    let named = POLICIES.iter().map(|(name, _)| name).skip(2);
    for (name, switch) in named.zip(&switches[..3]) {
        let lost = mean(&switch.lost(bsp));
        report.at_most(format!("{case}: points that {name} loses"), "points", lost, BOUND_POINTS);
    }
    let (lost, width) = interval(&asp.lost(bsp));
    if lost > width {
        let best = switches[..3].iter().map(|switch| mean(&asp.lost(bsp)) - mean(&switch.lost(bsp)));
        let gains = best.fold(f64::NAN, f64::max);
        report.bar(
            format!("{case}: points that the best switch at 25 % or less wins over asp"),
            gains,
            0.0,
            gains > 0.0,
        );
    } else {
        report.note(format!("{case}: asp loses {lost:.2} ± {width:.2} points, which may be nothing."));
    }
    for (share, ahead, behind) in [(25, &switches[2], asp_25), (50, &switches[3], asp_50)] {
        let (gain, width) = interval(&behind.lost(ahead));
        report.bar(
            format!(
                "{case}: points that bsp {share} % first is better than asp {share} % first (± {width:.2})"
            ),
            gain,
            0.0,
            gain > 0.0,
        );
    }
}
