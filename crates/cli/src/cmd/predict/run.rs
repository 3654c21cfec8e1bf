//! A whole run whose protocol may change, as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_core::prediction::Protocol;
use bellwether_model::predict::RunAnswer;
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::written;
use bellwether_render::figure::figure;

use crate::options::TableFormat;

pub(super) fn render(runs: &[RunAnswer], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(runs),
        TableFormat::Json => render::json(&runs),
        TableFormat::Csv => csv(runs),
    }
}

fn table(runs: &[RunAnswer]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let mut text = format!("{:>7}", "workers");
    for part in &first.phases {
        let _ = write!(text, "  {:>12}  {:>12}", part.protocol, "examples/s");
    }
    let _ = writeln!(text, "  {:>12}  {:>10}  {:>9}", "whole run", "than bsp", "staleness");
    for run in runs {
        let _ = write!(text, "{:>7}", run.workers);
        for part in &run.phases {
            let _ = write!(text, "  {:>12}  {:>12}", written(part.time_s), figure(part.examples_per_s));
        }
        let staleness = run.phases.iter().rev().find_map(|part| part.staleness);
        let staleness = staleness.map_or("-".to_string(), |mean| format!("{mean:.1}"));
        let speedup = format!("x{:.2}", run.speedup);
        let _ = writeln!(text, "  {:>12}  {speedup:>10}  {staleness:>9}", written(run.time_s));
    }
    if first.phases.iter().any(|part| part.protocol != Protocol::Bsp.to_string()) {
        text.push_str(
            "the steps are the same; where updates are stale the accuracy may differ (docs/accuracy.md)\n",
        );
    }
    let reasons = runs.iter().filter_map(|run| run.validity.beyond());
    if let Some(why) = reasons.max_by_key(|why| why.len()) {
        let _ = writeln!(text, "extrapolated: {why}");
    }
    text.trim_end().to_string()
}

/// One line for each phase of each run.
fn csv(runs: &[RunAnswer]) -> String {
    let mut csv = Csv::new([
        "workers",
        "time_s",
        "examples_per_s",
        "speedup",
        "protocol",
        "from_step",
        "steps",
        "stretch_s",
        "stretch_examples_per_s",
        "low",
        "high",
        "staleness",
        "model",
    ]);
    for RunAnswer { workers, time_s, examples_per_s, speedup, phases, .. } in runs {
        for part in phases {
            csv.row(&[
                workers,
                time_s,
                examples_per_s,
                speedup,
                &part.protocol,
                &part.from_step,
                &part.steps,
                &part.time_s,
                &part.examples_per_s,
                &part.low,
                &part.high,
                &cell(part.staleness),
                &part.model,
            ]);
        }
    }
    csv.text()
}
