//! What a search found, as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_core::units::Dollars;
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::written;
use bellwether_render::words::count;
use bellwether_sched::tune::Gain;
use bellwether_session::tune::{Report, SettingReport};

use crate::options::TableFormat;

pub(super) fn render(report: &Report, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(report),
        TableFormat::Json => render::json(report),
        TableFormat::Csv => csv(report),
    }
}

fn table(report: &Report) -> String {
    let accuracies = report.measure == "accuracy";
    let mut text = format!(
        "{:>11}  {:>8}  {:>24}  {:>10}  {}\n",
        "synchronous", "sessions", report.measure, "time", "good enough"
    );
    for row in &report.settings {
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
            score(row, accuracies),
            row.seconds.map_or("–".into(), written),
        );
    }
    if let Some(target) = report.target {
        let wanted = match accuracies {
            true => format!("{:.2} % or more", (target - report.margin) * 100.0),
            false => format!("{:.4} or less", target * (1.0 + report.margin)),
        };
        let _ = writeln!(text, "{:<18} a mean {} of {wanted}", "good enough", report.measure);
    }
    let _ = writeln!(text, "{:<18} {}", "cost", cost(report));
    if let Some(gain) = &report.gain {
        let _ = writeln!(text, "{:<18} {}", "gain", worth(report, gain));
    }
    if let Some(policy) = report.policy.as_ref().filter(|_| report.pays()) {
        let _ = write!(text, "{:<18} [sync] policy = {policy}", "in the job file");
    } else if report.gain.is_some() {
        let _ = write!(text, "{:<18} nothing: synchronous training takes no longer", "in the job file");
    }
    text.trim_end().to_string()
}

fn cost(report: &Report) -> String {
    let dollars = report.cost_dollars.map_or(String::new(), |cost| format!(", {}", Dollars::new(cost)));
    format!(
        "{}, {}, {}{dollars}",
        count(report.sessions, "session"),
        written(report.cost_s),
        count(report.cost_samples as usize, "sample")
    )
}

fn worth(report: &Report, gain: &Gain) -> String {
    let Gain { synchronous_s, extrapolated, best_s, recurrences } = *gain;
    let how = if extrapolated { " (from the line through the others)" } else { "" };
    let mut text = format!("{} instead of {}{how} each time", written(best_s), written(synchronous_s));
    match recurrences {
        Some(count) => {
            let _ = write!(text, "; the search has paid for itself after {count:.1} recurrences");
        }
        None => text.push_str("; the search never pays for itself"),
    }
    if let Some((count, net_s)) = report.recurrences.zip(report.net_gain_s) {
        let word = if net_s < 0.0 { "lost" } else { "gained" };
        let _ = write!(text, "; after {count}, {} are {word}", written(net_s.abs()));
    }
    text
}

fn csv(report: &Report) -> String {
    let mut csv = Csv::new(["fraction", "sessions", "diverged", "mean", "half_width", "seconds", "passed"]);
    for row in &report.settings {
        let SettingReport { fraction, sessions, diverged, mean, half_width, seconds, passed } = row;
        let [mean, half_width, seconds] = [*mean, *half_width, *seconds].map(cell);
        csv.row(&[fraction, sessions, diverged, &mean, &half_width, &seconds, &cell(*passed)]);
    }
    csv.text()
}

/// The mean with its interval, of accuracies in percent.
fn score(row: &SettingReport, accuracies: bool) -> String {
    let Some(mean) = row.mean else { return "diverged".into() };
    let (scale, digits) = if accuracies { (100.0, 2) } else { (1.0, 4) };
    let unit = if accuracies { " %" } else { "" };
    let interval = row.half_width.map_or(String::new(), |half| format!(" ± {:.digits$}", half * scale));
    let lost = if row.diverged > 0 { ", then diverged" } else { "" };
    format!("{:.digits$}{interval}{unit}{lost}", mean * scale)
}
