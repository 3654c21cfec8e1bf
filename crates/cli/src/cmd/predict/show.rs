//! Predictions as a table, as JSON, or as CSV.

use std::fmt::{Display, Write};

use bellwether_model::memory::bytes;
use bellwether_model::predict::Answer;
use bellwether_render as render;
use bellwether_render::csv::Csv;
use bellwether_render::duration::column;
use bellwether_render::figure::figure;

use crate::options::TableFormat;

pub(super) fn render(rows: &[Answer], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(rows),
        TableFormat::Json => render::json(&rows),
        TableFormat::Csv => csv(rows),
    }
}

fn table(rows: &[Answer]) -> String {
    let stale = rows.iter().any(|row| row.staleness.is_some());
    let known = rows.iter().any(|row| row.worker_bytes.is_some());
    let mut head = if stale { format!("{:>9}  ", "staleness") } else { String::new() };
    if known {
        let _ = write!(head, "{:>10}  ", "memory");
    }
    let mut text = format!(
        "{:>7}  {:>12}  {:>25}  {:>10}  {:>10}  {head}{:<8}\n",
        "workers", "examples/s", "95 % interval", "step", "efficiency", "bound by"
    );
    let steps = column(&rows.iter().map(|row| row.step_s).collect::<Vec<_>>());
    for (row, step) in rows.iter().zip(steps) {
        let interval = format!("{} … {}", figure(row.low), figure(row.high));
        let mut beside = match stale {
            true => format!("{:>9.1}  ", row.staleness.unwrap_or(0.0)),
            false => String::new(),
        };
        if known {
            let _ = write!(beside, "{:>10}  ", row.worker_bytes.map_or("?".into(), bytes));
        }
        let _ = writeln!(
            text,
            "{:>7}  {:>12}  {:>25}  {:>10}  {:>8.0} %  {beside}{}{}",
            row.workers,
            figure(row.examples_per_s),
            interval,
            step,
            row.efficiency * 100.0,
            row.bottleneck,
            if row.knee { "  ← knee" } else { "" }
        );
    }
    if known {
        text.push_str("memory: of the largest worker at its peak, as far as it is resident\n");
    }
    if rows.iter().any(|row| row.knee) {
        text.push_str("knee: beyond it, workers add less than half of what the first one does\n");
    } else if rows.len() > 1 {
        text.push_str(
            "no knee: up to the last of these, workers add at least half of what the first one does\n",
        );
    }
    let reasons = rows.iter().filter_map(|row| row.validity.beyond());
    if let Some(why) = reasons.max_by_key(|why| why.len()) {
        let _ = writeln!(text, "extrapolated: {why}");
    }
    text.trim_end().to_string()
}

fn csv(rows: &[Answer]) -> String {
    let mut head = vec![
        "workers",
        "examples_per_s",
        "low",
        "high",
        "step_s",
        "bottleneck",
        "efficiency",
        "knee",
        "validity",
        "model",
    ];
    let stale = rows.iter().any(|row| row.staleness.is_some());
    if stale {
        head.push("staleness");
    }
    let known = rows.iter().any(|row| row.worker_bytes.is_some());
    if known {
        head.push("worker_bytes");
    }
    let mut csv = Csv::new(head);
    for row in rows {
        let validity =
            row.validity.beyond().map_or("interpolated".into(), |why| format!("extrapolated: {why}"));
        let Answer {
            workers, examples_per_s, low, high, step_s, bottleneck, efficiency, knee, model, ..
        } = row;
        let staleness = row.staleness.unwrap_or(0.0);
        let worker_bytes = row.worker_bytes.map_or(String::new(), |bytes| bytes.to_string());
        let mut cells: Vec<&dyn Display> =
            vec![workers, examples_per_s, low, high, step_s, bottleneck, efficiency, knee, &validity, model];
        if stale {
            cells.push(&staleness);
        }
        if known {
            cells.push(&worker_bytes);
        }
        csv.row(&cells);
    }
    csv.text()
}
