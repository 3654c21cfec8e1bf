//! `memory`: memory of a worker that trains, beside what its vectors need.

use std::time::Duration;

use bellwether_core::units::Bytes;
use bellwether_runtime::tree::{maximal_nodes, ranges};
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::trial::Trial;
use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct MemoryArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,3")]
    workers: Vec<u32>,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    parameters: Bytes,
    /// Workers that hold each part of the optimizer's state, which they share then
    #[arg(long, value_name = "N")]
    copies: Option<u32>,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

const VIRTUAL_NODES: u32 = 8;

/// Adam's moments.
const SLOTS: u64 = 2;

/// What a worker may use over what its vectors need.
const BOUND: f64 = 1.1;

/// The same where the workers share the optimizer's state.
const SHARED_BOUND: f64 = 1.05;

/// After these all buffers have been used.
const STEPS: u64 = 4;

/// Looks at the memory of all workers.
const LOOKS: u32 = 10;

/// Time between two of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub(super) fn measure(arguments: &MemoryArguments, printer: &Printer) -> Result<Report, Failure> {
    let parameters = arguments.parameters;
    let settings = json!({
        "workers": arguments.workers, "virtual_nodes": VIRTUAL_NODES, "parameters_bytes": parameters.0, "optimizer": "adam",
        "copies": arguments.copies,
    });
    if let Some(wrong) = arguments.workers.iter().find(|w| !(1..=VIRTUAL_NODES).contains(*w)) {
        return Err(Failure::at("--workers", format!("{wrong}: choose from 1 to {VIRTUAL_NODES}")));
    }
    let bound = if arguments.copies.is_some() { SHARED_BOUND } else { BOUND };
    let mut report = Report::begin("memory", settings, &[]);
    for workers in &arguments.workers {
        printer.note(format_args!("{workers} workers"));
        let bare_bytes = peak(Bytes(4096), *workers, arguments.copies)?;
        let peak_bytes = peak(parameters, *workers, arguments.copies)?;
        let expected_bytes = (parameters.0 as f64 * vectors(*workers, arguments.copies)).round() as u64;
        let ratio = peak_bytes.saturating_sub(bare_bytes) as f64 / expected_bytes as f64;
        let kind = if aligned(*workers) { "aligned" } else { "unaligned" };
        let case = format!("{workers} workers, {kind}");
        report.row(
            Row::new(&case)
                .with("peak_bytes", peak_bytes)
                .with("without_vectors_bytes", bare_bytes)
                .with("partials", partials(*workers))
                .with("expected_bytes", expected_bytes)
                .with("of_expected", ratio),
        );
        report.at_most(format!("{case}: vectors over what they need"), "", ratio, bound);
    }
    report.note(
        "Expected: parameters, two optimizer slots, one reduced gradient, and partial sums: log2(V/W) + 1 when the \
         ranges are aligned, else at most 2·⌈log2 V⌉, and with peers at least 2, as gradients leave while others are \
         computed. Where the state is shared, of slots and reduced gradient copies / W, and the new parameters on \
         their way. Measured: the most that any worker had in ten looks (Pss, so that what \
         peers read counts once), less the same with 4 KiB of parameters.",
    );
    Ok(report)
}

/// Vectors as long as the parameters that a worker has.
fn vectors(workers: u32, copies: Option<u32>) -> f64 {
    // With peers the last gradient leaves while it is computed: it has a vector of its own beside a sum.
    let sums = if workers > 1 { partials(workers).max(2) } else { partials(workers) };
    let whole = (1 + sums) as f64;
    let shared = (SLOTS + 1) as f64;
    match copies {
        // Also those on their way from the owners.
        Some(copies) => whole + 1.0 + shared * f64::from(copies.min(workers)) / f64::from(workers),
        None => whole + shared,
    }
}

/// What a worker has, as a mean over all, in the largest of some looks.
fn peak(parameters: Bytes, workers: u32, copies: Option<u32>) -> Result<u64, Failure> {
    let job = Synthetic { step_ms: 1, parameters, virtual_nodes: VIRTUAL_NODES, steps: ENDLESS, adam: true };
    let sharding = copies.map_or_else(String::new, |copies| format!("[sharding]\ncopies = {copies}\n"));
    let mut trial = Trial::start(&format!("{}{sharding}", job.text()), workers)?;
    trial.settle(workers as usize, STEPS)?;
    let active = trial.members().active.clone();
    let looks = (0..LOOKS).filter_map(|_| {
        std::thread::sleep(BETWEEN_LOOKS);
        let processes = active.iter().filter_map(|worker| trial.process(*worker));
        let bytes: Vec<u64> = processes.filter_map(proportional_bytes).collect();
        // The mean: which of two workers a shared page counts for depends on who has read it so far.
        bytes.iter().sum::<u64>().checked_div(bytes.len() as u64)
    });
    looks.max().ok_or_else(|| Failure::at("memory", "this system does not tell a process's memory"))
}

/// Memory of a process, where the system tells. What workers read at each other counts for each of them by its part:
/// their resident memory would count it for all.
fn proportional_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Whether every worker's range is one node of the tree.
fn aligned(workers: u32) -> bool {
    ranges(VIRTUAL_NODES, workers).into_iter().all(|range| maximal_nodes(VIRTUAL_NODES, range).len() == 1)
}

/// Partial sums that a worker keeps at a time.
fn partials(workers: u32) -> u64 {
    if aligned(workers) {
        u64::from((VIRTUAL_NODES / workers).ilog2()) + 1
    } else {
        2 * u64::from(VIRTUAL_NODES.next_power_of_two().ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partials_are_those_of_the_tree() {
        let all: Vec<u64> = [1, 2, 4, 8, 3].into_iter().map(partials).collect();
        assert_eq!(all, [4, 3, 2, 1, 6]);
        assert!(!aligned(3) && aligned(8));
    }
}
