//! An outcome as a table, as JSON, or as CSV; and several side by side.

use std::collections::BTreeSet;
use std::fmt::Write;

use bellwether_model::gpu::{Device, StreamSummary};
use bellwether_sim::workload::csv_cell;

use super::explain;
use super::list::word;
use super::report::{Kernel, Report};
use crate::cmd::predict::show::duration;
use crate::cmd::simulate::show::aligned;
use crate::options::TableFormat;

/// Kernels of which it is said which multiprocessors they were on.
const WHERE_MAX: usize = 8;

pub(super) fn render(report: &Report<'_>, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(report),
        TableFormat::Json => serde_json::to_string_pretty(&report.json()).unwrap_or_default(),
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
            serde_json::to_string_pretty(&all).unwrap_or_default()
        }
        TableFormat::Csv => {
            let mut text = String::from("discipline,stream,process,rounds,mean_turnaround_us,end_us");
            for (report, stream) in streams() {
                let (name, process) = (csv_cell(&stream.name), csv_cell(&stream.process));
                let StreamSummary { rounds, mean_turnaround_us, end_us, .. } = stream;
                let discipline = report.outcome.discipline;
                let _ =
                    write!(text, "\n{discipline},{name},{process},{rounds},{mean_turnaround_us},{end_us}");
            }
            text
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
        time(stream.mean_turnaround_us),
        time(stream.end_us),
    ]
}

fn table(report: &Report<'_>) -> String {
    let outcome = &report.outcome;
    let mut text = format!(
        "{} blocks on {} under {}: done after {}\n\n",
        outcome.blocks.len(),
        report.device.description,
        outcome.discipline,
        time(outcome.end_us)
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
            let count = kernel.multiprocessors.len();
            let (s, which) = (if count == 1 { "" } else { "s" }, numbers(&kernel.multiprocessors));
            let _ = writeln!(text, "{}: on {count} SM{s}: {which}", kernel.name);
        }
    }
    for advice in &report.advice {
        let _ = writeln!(text, "{advice}");
    }
    text.push_str(&trust(report.device));
    if let Some(decision) = &outcome.explained {
        text.push('\n');
        text.push_str(&explain::table(decision, outcome));
    }
    text.trim_end().to_string()
}

fn kernel(kernel: &Kernel) -> Vec<String> {
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
        time(kernel.start_us),
        time(kernel.placed_us),
        time(kernel.end_us),
        time(kernel.alone_us),
        time(kernel.mean_us),
        format!("{:.2}", kernel.slowdown),
        company,
    ]
}

/// How far the placement can be trusted.
fn trust(device: &Device) -> String {
    let (order, issue) = (word(device.order_evidence), word(device.issue_evidence));
    let evidence = if order == issue { order } else { format!("{order} (ties), {issue} (blocks at once)") };
    format!("rules of {}: {evidence}. {}\n", device.name, device.note)
}

fn csv(report: &Report<'_>) -> String {
    let mut text = String::from(
        "discipline,kernel,blocks,threads_per_block,blocks_per_multiprocessor,limited_by,launches,multiprocessors,\
         start_us,placed_us,end_us,alone_us,mean_us,slowdown,isolated,colocated_launches,colocated_with",
    );
    for kernel in &report.kernels {
        let number = |value: f64| if value.is_nan() { String::new() } else { value.to_string() };
        let cells = [
            report.outcome.discipline.to_string(),
            csv_cell(&kernel.name).into_owned(),
            kernel.blocks.to_string(),
            kernel.threads_per_block.to_string(),
            kernel.occupancy.blocks.to_string(),
            kernel.occupancy.limit.to_string(),
            kernel.launches.to_string(),
            kernel.multiprocessors.len().to_string(),
            number(kernel.start_us),
            number(kernel.placed_us),
            number(kernel.end_us),
            number(kernel.alone_us),
            number(kernel.mean_us),
            number(kernel.slowdown),
            kernel.isolated.to_string(),
            kernel.colocated_launches.to_string(),
            csv_cell(&kernel.colocated_with.join(";")).into_owned(),
        ];
        text.push('\n');
        text.push_str(&cells.join(","));
    }
    text
}

/// A time in microseconds, with a unit that suits it.
pub(super) fn time(us: f64) -> String {
    if us == 0.0 { "0".into() } else { duration(us * 1e-6) }
}

/// Numbers with what is regular among them shortened: `0–66`, or `0, 2 … 66`.
pub(super) fn numbers(set: &BTreeSet<u32>) -> String {
    let all: Vec<u32> = set.iter().copied().collect();
    let mut words = Vec::new();
    let mut from = 0;
    while from < all.len() {
        let run = |step: u32| all[from..].windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let (one, two) = (run(1), run(2));
        let last = from + one.max(two);
        if one.max(two) < 3 {
            words.push(all[from].to_string());
            from += 1;
        } else if one > two {
            words.push(format!("{}–{}", all[from], all[last]));
            from = last + 1;
        } else {
            words.push(format!("{}, {} … {}", all[from], all[from + 1], all[last]));
            from = last + 1;
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_numbers_are_shortened() {
        let text = |all: &[u32]| numbers(&all.iter().copied().collect());
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[67]), "67");
        assert_eq!(text(&[0, 1, 2, 3, 9]), "0–3, 9");
        assert_eq!(text(&[0, 2, 4, 6, 67]), "0, 2 … 6, 67");
        assert_eq!(text(&[1, 2, 4]), "1, 2, 4");
    }

    #[test]
    fn times_have_units() {
        assert_eq!([time(0.0), time(2.5), time(1540.0)].join(" "), "0 2.500 us 1.540 ms");
    }
}
