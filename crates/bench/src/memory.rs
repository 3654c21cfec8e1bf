//! `memory`: peak resident memory of a worker, beside what its vectors need.

use bellwether_core::units::Bytes;
use bellwether_runtime::tree::{maximal_nodes, ranges};
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::trial::{Trial, peak_resident_bytes};
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
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

const VIRTUAL_NODES: u32 = 8;

/// Adam's moments.
const SLOTS: u64 = 2;

/// What a worker may use over what its vectors need.
const BOUND: f64 = 1.1;

/// After these all buffers have been used.
const STEPS: u64 = 4;

pub(super) fn measure(arguments: &MemoryArguments, printer: &Printer) -> Result<Report, Failure> {
    let parameters = arguments.parameters;
    let settings = json!({
        "workers": arguments.workers, "virtual_nodes": VIRTUAL_NODES, "parameters_bytes": parameters.0, "optimizer": "adam",
    });
    if let Some(wrong) = arguments.workers.iter().find(|w| !(1..=VIRTUAL_NODES).contains(*w)) {
        return Err(Failure::at("--workers", format!("{wrong}: choose from 1 to {VIRTUAL_NODES}")));
    }
    let mut report = Report::begin("memory", settings, &[]);
    for workers in &arguments.workers {
        printer.note(format_args!("{workers} workers"));
        let bare_bytes = peak(Bytes(4096), *workers)?;
        let peak_bytes = peak(parameters, *workers)?;
        // Parameters, slots and the reduced gradient once, and the partial sums.
        let expected_bytes = parameters.0 * (1 + SLOTS + 1 + partials(*workers));
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
        report.at_most(format!("{case}: vectors over what they need"), "", ratio, BOUND);
    }
    report.note(
        "Expected: parameters, two optimizer slots, one reduced gradient, and partial sums: log2(V/W) + 1 when the \
         ranges are aligned, else at most 2·⌈log2 V⌉. Measured: the largest peak of any worker (VmHWM), less that of \
         the same worker with 4 KiB of parameters.",
    );
    Ok(report)
}

/// The largest peak among the workers.
fn peak(parameters: Bytes, workers: u32) -> Result<u64, Failure> {
    let job = Synthetic { step_ms: 1, parameters, virtual_nodes: VIRTUAL_NODES, steps: ENDLESS, adam: true };
    let mut trial = Trial::start(&job.text(), workers)?;
    trial.settle(workers as usize, STEPS)?;
    let active = trial.members().active.clone();
    let peaks = active.iter().filter_map(|worker| trial.process(*worker)).filter_map(peak_resident_bytes);
    peaks.max().ok_or_else(|| Failure::at("memory", "this system does not tell a process's memory"))
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
