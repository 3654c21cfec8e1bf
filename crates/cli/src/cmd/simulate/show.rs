//! The figures of policies side by side: as a table, as JSON, or as CSV.

use std::fmt::{Display, Write};

use bellwether::simulate::{PolicyResult, QueueReport};
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::column;
use bellwether_render::figure::{grouped, percent};
use bellwether_render::{self as render, table::aligned};
use bellwether_sim::report::Report;
use serde_json::{Map, Value};

use crate::options::TableFormat;

pub(super) fn render(results: &[PolicyResult], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(results),
        TableFormat::Json => {
            let objects: Vec<Value> = results.iter().map(|result| Value::Object(result.figures())).collect();
            render::json(&objects)
        }
        TableFormat::Csv => csv(results),
    }
}

fn csv(results: &[PolicyResult]) -> String {
    let mut objects: Vec<Map<String, Value>> = results.iter().map(PolicyResult::figures).collect();
    // A row has no room for those of queues; `--queues-out` writes them.
    for object in &mut objects {
        object.remove("queues");
    }
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
                Best::Low => result.mean_of_ended(of),
                Best::High | Best::None => result.mean(|o| of(&o.report)),
            })
            .collect();
        let top = match best {
            Best::Low => values.iter().copied().fold(f64::MAX, f64::min),
            Best::High => values.iter().copied().fold(f64::MIN, f64::max),
            Best::None => f64::NAN,
        };
        rows[0].push(title.into());
        let shown = show.all(&values);
        // A value that all have is not the best one.
        let differ = shown.iter().any(|text| *text != shown[0]);
        for ((row, value), text) in rows[1..].iter_mut().zip(&values).zip(shown) {
            let mark = if differ && *value == top { "*" } else { " " };
            row.push(format!("{text}{mark}"));
        }
    }
    let decision = |result: &PolicyResult| result.mean(|o| o.deciding_s / (o.decisions.max(1) as f64));
    let decisions: Vec<f64> = results.iter().map(decision).collect();
    let times: Vec<f64> = results.iter().map(|result| result.mean(|o| o.wall_s)).collect();
    for (title, values) in [("decision", decisions), ("time", times)] {
        rows[0].push(title.into());
        rows[1..].iter_mut().zip(column(&values)).for_each(|(row, text)| row.push(text));
    }
    let mut text = aligned(&rows);
    text.push_str(&footnotes(results));
    text.push_str(&queue_table(results));
    text.trim_end().to_owned()
}

/// A figure of a queue, as it is called in CSV and in a table, which has no room for all of them.
struct QueueColumn {
    name: &'static str,
    title: Option<&'static str>,
    of: fn(&QueueReport) -> Option<f64>,
    show: Show,
}

const fn queue_column(
    name: &'static str,
    title: Option<&'static str>,
    of: fn(&QueueReport) -> Option<f64>,
    show: Show,
) -> QueueColumn {
    QueueColumn { name, title, of, show }
}

const COUNT: Show = Show::As(|value| grouped(value, 0));

const QUEUE_COLUMNS: [QueueColumn; 9] = [
    queue_column("jobs", Some("jobs"), |q| Some(q.jobs), COUNT),
    queue_column("finished", None, |q| Some(q.finished), COUNT),
    queue_column("refused", None, |q| Some(q.refused), COUNT),
    queue_column("avg_jct_s", Some("mean JCT"), |q| q.avg_jct_s, Show::Time),
    queue_column("avg_queueing_s", Some("waiting"), |q| q.avg_queueing_s, Show::Time),
    queue_column("device_hours", Some("GPU-hours"), |q| Some(q.device_hours), COUNT),
    queue_column("guarantee_received", Some("of guarantee"), |q| q.guarantee_received, Show::As(percent)),
    queue_column("borrowed_device_hours", Some("borrowed"), |q| Some(q.borrowed_device_hours), COUNT),
    queue_column("preemptions", Some("stops"), |q| Some(q.preemptions), COUNT),
];

/// Policies and their queues, where there are some or a job names one.
fn by_queue(results: &[PolicyResult]) -> Vec<(&str, QueueReport)> {
    let of = |result: &'_ PolicyResult| result.queues().into_iter();
    results.iter().flat_map(|result| of(result).map(|queue| (result.policy.as_str(), queue))).collect()
}

/// A row per policy and queue; empty if there are none, and no job names one.
fn queue_table(results: &[PolicyResult]) -> String {
    let all = by_queue(results);
    if all.is_empty() {
        return String::new();
    }
    let mut rows = vec![vec!["policy".to_owned(), "queue".to_owned()]];
    rows.extend(all.iter().map(|(policy, queue)| vec![(*policy).to_owned(), queue.queue.clone()]));
    for QueueColumn { title, of, show, .. } in QUEUE_COLUMNS {
        let Some(title) = title else { continue };
        let values: Vec<f64> = all.iter().map(|(_, queue)| of(queue).unwrap_or(f64::NAN)).collect();
        rows[0].push(title.into());
        rows[1..].iter_mut().zip(show.all(&values)).for_each(|(row, text)| row.push(text));
    }
    format!("\n{}", aligned(&rows))
}

/// The figures of queues as CSV: a row per policy and queue.
pub(super) fn queues(results: &[PolicyResult]) -> String {
    let mut csv = Csv::new(["policy", "queue"].into_iter().chain(QUEUE_COLUMNS.map(|column| column.name)));
    for (policy, queue) in by_queue(results) {
        let figures = QUEUE_COLUMNS.map(|column| cell((column.of)(&queue)));
        csv.write([policy.to_owned(), queue.queue.clone()].into_iter().chain(figures));
    }
    csv.text() + "\n"
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
        let jobs = first.mean(|o| o.report.jobs);
        let seeds = first.outcomes.len();
        let over = if seeds > 1 { format!(", means over {seeds} seeds") } else { String::new() };
        let _ = writeln!(text, "{jobs:.0} jobs{over}; * marks the best of a column");
    }
    for result in results {
        let refused = result.mean(|o| o.report.refused);
        let unfinished = result.mean(|o| o.report.unfinished);
        let (due, met) = (result.mean(|o| o.report.deadlines), result.mean(|o| o.report.deadlines_met));
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
