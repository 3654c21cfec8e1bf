//! An outcome as a table, as JSON, or as CSV; and several side by side.

use std::fmt::Write;

use bellwether_model::gpu::{Advice, Device, KernelReport, Report, StreamSummary};
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::microseconds;
use bellwether_render::table::aligned;
use bellwether_render::words::{count, numbers};

use super::explain;
use super::list::word;
use crate::options::TableFormat;

/// Kernels of which it is said which multiprocessors they were on.
const WHERE_MAX: usize = 8;

pub(super) fn render(report: &Report<'_>, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(report),
        TableFormat::Json => render::json(&report.json()),
        TableFormat::Csv => csv(report),
    }
}

/// Several disciplines by the turnaround of each stream; there is one discipline at least.
pub(super) fn side_by_side(reports: &[Report<'_>], format: TableFormat) -> String {
    let streams =
        || reports.iter().flat_map(|report| report.outcome.streams.iter().map(move |of| (report, of)));
    match format {
        TableFormat::Json => {
            let all: Vec<_> = reports.iter().map(Report::json).collect();
            render::json(&all)
        }
        TableFormat::Csv => {
            let mut csv =
                Csv::new(["discipline", "stream", "process", "rounds", "mean_turnaround_us", "end_us"]);
            for (report, stream) in streams() {
                let StreamSummary { name, process, rounds, mean_turnaround_us, end_us, .. } = stream;
                csv.row(&[&report.outcome.discipline, name, process, rounds, mean_turnaround_us, end_us]);
            }
            csv.text()
        }
        TableFormat::Table => {
            let mut rows =
                vec![[vec!["discipline".to_string()], STREAM.map(str::to_string).to_vec()].concat()];
            let row = |(report, of): (&Report<'_>, _)| {
                [vec![report.outcome.discipline.to_string()], stream(of)].concat()
            };
            rows.extend(streams().map(row));
            format!("{}\n{}", aligned(&rows), trust(reports[0].device)).trim_end().to_string()
        }
    }
}

/// The head of a table of streams.
const STREAM: [&str; 5] = ["stream", "process", "rounds", "mean turnaround", "end"];

fn stream(stream: &StreamSummary) -> Vec<String> {
    vec![
        stream.name.clone(),
        stream.process.clone(),
        stream.rounds.to_string(),
        microseconds(stream.mean_turnaround_us),
        microseconds(stream.end_us),
    ]
}

fn table(report: &Report<'_>) -> String {
    let outcome = &report.outcome;
    let mut text = format!(
        "{} blocks on {} under {}: done after {}\n\n",
        outcome.blocks.len(),
        report.device.description,
        outcome.discipline,
        microseconds(outcome.end_us)
    );
    let head = [
        "kernel",
        "blocks",
        "threads",
        "per SM",
        "limited by",
        "launches",
        "first start",
        "last start",
        "end",
        "alone",
        "here",
        "slowdown",
        "its SMs",
    ];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    rows.extend(report.kernels.iter().map(kernel));
    text.push_str(&aligned(&rows));
    if !report.workload.streams.is_empty() {
        let mut rows = vec![STREAM.map(str::to_string).to_vec()];
        rows.extend(outcome.streams.iter().map(stream));
        text.push('\n');
        text.push_str(&aligned(&rows));
    }
    text.push('\n');
    if report.kernels.len() <= WHERE_MAX {
        for kernel in &report.kernels {
            let (some, which) = (count(kernel.multiprocessors.len(), "SM"), numbers(&kernel.multiprocessors));
            let _ = writeln!(text, "{}: on {some}: {which}", kernel.name);
        }
    }
    for advice in &report.advice {
        let _ = writeln!(text, "{}", self::advice(advice));
    }
    text.push_str(&trust(report.device));
    if let Some(decision) = &outcome.explained {
        text.push('\n');
        text.push_str(&explain::table(decision, outcome));
    }
    text.trim_end().to_string()
}

fn kernel(kernel: &KernelReport) -> Vec<String> {
    let company = match kernel.colocated_launches {
        0 => "isolated".to_string(),
        all if all == kernel.launches => format!("with {}", kernel.colocated_with.join(", ")),
        some => format!("with {} ({some} of {})", kernel.colocated_with.join(", "), kernel.launches),
    };
    if kernel.launches == 0 {
        let name = vec![kernel.name.clone(), kernel.blocks.to_string(), kernel.threads_per_block.to_string()];
        return [name, vec!["-".into(); 9], vec!["never launched".into()]].concat();
    }
    vec![
        kernel.name.clone(),
        kernel.blocks.to_string(),
        kernel.threads_per_block.to_string(),
        kernel.occupancy.blocks.to_string(),
        kernel.occupancy.limit.to_string(),
        kernel.launches.to_string(),
        microseconds(kernel.start_us),
        microseconds(kernel.placed_us),
        microseconds(kernel.end_us),
        microseconds(kernel.alone_us),
        microseconds(kernel.mean_us),
        format!("{:.2}", kernel.slowdown),
        company,
    ]
}

fn advice(advice: &Advice) -> String {
    let Advice { kernel, threads_per_block, isolated_with_threads_per_block, mean_us, isolated_mean_us } =
        advice;
    format!(
        "{kernel}: {isolated_with_threads_per_block} threads per block instead of {threads_per_block} would keep \
         its blocks on SMs of their own: a launch would take {} instead of {} (tried, with blocks of the same time)",
        microseconds(*isolated_mean_us),
        microseconds(*mean_us)
    )
}

/// How far the placement can be trusted.
fn trust(device: &Device) -> String {
    let (order, issue) = (word(device.order_evidence), word(device.issue_evidence));
    let evidence = if order == issue { order } else { format!("{order} (ties), {issue} (blocks at once)") };
    format!("rules of {}: {evidence}. {}\n", device.name, device.note)
}

fn csv(report: &Report<'_>) -> String {
    let mut csv = Csv::new([
        "discipline",
        "kernel",
        "blocks",
        "threads_per_block",
        "blocks_per_multiprocessor",
        "limited_by",
        "launches",
        "multiprocessors",
        "start_us",
        "placed_us",
        "end_us",
        "alone_us",
        "mean_us",
        "slowdown",
        "isolated",
        "colocated_launches",
        "colocated_with",
    ]);
    for kernel in &report.kernels {
        let number = |value: f64| cell((!value.is_nan()).then_some(value));
        csv.row(&[
            &report.outcome.discipline,
            &kernel.name,
            &kernel.blocks,
            &kernel.threads_per_block,
            &kernel.occupancy.blocks,
            &kernel.occupancy.limit,
            &kernel.launches,
            &kernel.multiprocessors.len(),
            &number(kernel.start_us),
            &number(kernel.placed_us),
            &number(kernel.end_us),
            &number(kernel.alone_us),
            &number(kernel.mean_us),
            &number(kernel.slowdown),
            &kernel.isolated,
            &kernel.colocated_launches,
            &kernel.colocated_with.join(";"),
        ]);
    }
    csv.text()
}
