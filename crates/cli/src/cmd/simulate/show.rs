//! The figures of policies side by side: as a table, as JSON, or as CSV.

use std::fmt::{Display, Write};

use bellwether_sim::report::Report;
use serde_json::{Map, Value, json};

use super::experiment::{Outcome, PolicyResult};
use crate::options::TableFormat;
use crate::render::csv::{Csv, cell};
use crate::render::duration::column;
use crate::render::figure::{grouped, percent};
use crate::render::{self, table::aligned};

pub(super) fn render(results: &[PolicyResult], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(results),
        TableFormat::Json => {
            let objects: Vec<Value> = results.iter().map(|result| Value::Object(object(result))).collect();
            render::json(&objects)
        }
        TableFormat::Csv => csv(results),
    }
}

/// Figures of jobs that ended: where none did, they are not known, and not zero.
const OF_ENDED: [&str; 10] = [
    "avg_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "avg_slowdown",
    "makespan_s",
    "avg_queueing_s",
    "max_rho",
    "p95_rho",
    "unfair",
];

/// The mean over seeds.
fn mean(result: &PolicyResult, of: impl Fn(&Outcome) -> f64) -> f64 {
    result.outcomes.iter().map(of).sum::<f64>() / result.outcomes.len().max(1) as f64
}

/// The mean over seeds with a job that ended; not a number where there is none.
fn mean_of_ended(result: &PolicyResult, of: impl Fn(&Report) -> f64) -> f64 {
    let reports =
        || result.outcomes.iter().map(|outcome| &outcome.report).filter(|report| report.finished > 0.0);
    reports().map(of).sum::<f64>() / reports().count() as f64
}

fn object(result: &PolicyResult) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("policy".into(), json!(result.policy));
    object.insert("seeds".into(), json!(result.outcomes.len()));
    let figures: Vec<Value> =
        result.outcomes.iter().filter_map(|outcome| serde_json::to_value(&outcome.report).ok()).collect();
    let Some(Value::Object(first)) = figures.first() else { return object };
    for key in first.keys() {
        let any = !OF_ENDED.contains(&key.as_str());
        let counted = figures.iter().filter(|figures| any || figures["finished"].as_f64() > Some(0.0));
        let values: Vec<f64> = counted.filter_map(|figures| figures[key].as_f64()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // Counts of one seed are whole.
        let whole = mean.fract() == 0.0 && mean.abs() < 1e15 && !key.ends_with("_s");
        object.insert(key.clone(), if whole { json!(mean as i64) } else { json!(mean) });
    }
    object.insert("decisions".into(), json!(mean(result, |o| o.decisions as f64)));
    object.insert(
        "decision_mean_s".into(),
        json!(mean(result, |o| o.deciding_s / (o.decisions.max(1) as f64))),
    );
    object.insert("decision_max_s".into(), json!(mean(result, |o| o.longest_decision_s)));
    object.insert("wall_s".into(), json!(mean(result, |o| o.wall_s)));
    object
}

fn csv(results: &[PolicyResult]) -> String {
    let objects: Vec<Map<String, Value>> = results.iter().map(object).collect();
    let Some(first) = objects.first() else { return String::new() };
    let mut csv = Csv::new(first.keys());
    for object in &objects {
        csv.write(object.values().map(|value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }));
    }
    csv.text()
}

/// Rows are policies; the best of each column is marked.
fn table(results: &[PolicyResult]) -> String {
    type Column = (&'static str, fn(&Report) -> f64, Show, Best);
    let columns: [Column; 11] = [
        ("mean JCT", |r| r.avg_jct_s, Show::Time, Best::Low),
        ("median", |r| r.median_jct_s, Show::Time, Best::Low),
        ("p95", |r| r.p95_jct_s, Show::Time, Best::Low),
        ("p99", |r| r.p99_jct_s, Show::Time, Best::Low),
        ("makespan", |r| r.makespan_s, Show::Time, Best::Low),
        ("queueing", |r| r.avg_queueing_s, Show::Time, Best::Low),
        ("used", |r| r.utilisation, Show::As(percent), Best::High),
        ("rho p95", |r| r.p95_rho, Show::As(|v| format!("{v:.2}")), Best::Low),
        ("stops", |r| r.preemptions, Show::As(|v| grouped(v, 0)), Best::None),
        ("restarts/job", |r| r.restarts_per_job, Show::As(|v| format!("{v:.2}")), Best::None),
        ("GPU-hours", |r| r.device_hours, Show::As(|v| grouped(v, 0)), Best::None),
    ];
    let mut rows: Vec<Vec<String>> = vec![vec!["policy".into()]];
    rows.extend(results.iter().map(|result| vec![result.policy.clone()]));
    for (title, of, show, best) in columns {
        let values: Vec<f64> = results
            .iter()
            .map(|result| match best {
                Best::Low => mean_of_ended(result, of),
                Best::High | Best::None => mean(result, |o| of(&o.report)),
            })
            .collect();
        let top = match best {
            Best::Low => values.iter().copied().fold(f64::MAX, f64::min),
            Best::High => values.iter().copied().fold(f64::MIN, f64::max),
            Best::None => f64::NAN,
        };
        rows[0].push(title.into());
        let shown = show.all(&values);
        // What everybody has is nobody's merit.
        let differ = shown.iter().any(|text| *text != shown[0]);
        for ((row, value), text) in rows[1..].iter_mut().zip(&values).zip(shown) {
            let mark = if differ && *value == top { "*" } else { " " };
            row.push(format!("{text}{mark}"));
        }
    }
    let decision = |result| mean(result, |o| o.deciding_s / (o.decisions.max(1) as f64));
    let decisions: Vec<f64> = results.iter().map(decision).collect();
    let times: Vec<f64> = results.iter().map(|result| mean(result, |o| o.wall_s)).collect();
    for (title, values) in [("decision", decisions), ("time", times)] {
        rows[0].push(title.into());
        rows[1..].iter_mut().zip(column(&values)).for_each(|(row, text)| row.push(text));
    }
    let mut text = aligned(&rows);
    text.push_str(&footnotes(results));
    text.trim_end().to_owned()
}

/// How the values of a column are written.
#[derive(Debug, Clone, Copy)]
enum Show {
    /// As times, all in one unit.
    Time,
    /// Each by itself.
    As(fn(f64) -> String),
}

impl Show {
    fn all(self, values: &[f64]) -> Vec<String> {
        match self {
            Show::Time => column(values),
            Show::As(show) => {
                values.iter().map(|value| if value.is_nan() { "-".into() } else { show(*value) }).collect()
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Best {
    Low,
    High,
    None,
}

fn footnotes(results: &[PolicyResult]) -> String {
    let mut text = String::new();
    if let Some(first) = results.first() {
        let jobs = mean(first, |o| o.report.jobs);
        let seeds = first.outcomes.len();
        let over = if seeds > 1 { format!(", means over {seeds} seeds") } else { String::new() };
        let _ = writeln!(text, "{jobs:.0} jobs{over}; * marks the best of a column");
    }
    for result in results {
        let refused = mean(result, |o| o.report.refused);
        let unfinished = mean(result, |o| o.report.unfinished);
        let (due, met) = (mean(result, |o| o.report.deadlines), mean(result, |o| o.report.deadlines_met));
        if due > 0.0 {
            let _ = writeln!(text, "{}: {met:.0} of {due:.0} deadlines met", result.policy);
        }
        if refused > 0.0 {
            let why = result.recording.jobs.iter().find_map(|job| job.refused.as_ref());
            let why = why.map_or(String::new(), |why| format!(" (for example: {why})"));
            let _ = writeln!(text, "{}: {refused:.0} jobs refused{why}", result.policy);
        }
        if unfinished > 0.0 {
            let _ = writeln!(text, "{}: {unfinished:.0} jobs never ended", result.policy);
        }
    }
    text
}

/// A row per job and policy.
pub(super) fn jobs(results: &[PolicyResult]) -> String {
    let mut csv = Csv::new(["job_id", "policy", "submit_s", "start_s", "end_s", "restarts"]);
    for result in results {
        for (entry, record) in result.entries.iter().zip(&result.recording.jobs) {
            let (start_s, end_s) = (cell(record.start_s), cell(record.end_s));
            let job = &entry.job;
            let cells: [&dyn Display; 6] =
                [&job.description.name, &result.policy, &job.arrival_s, &start_s, &end_s, &record.restarts];
            csv.row(&cells);
        }
    }
    csv.text() + "\n"
}
