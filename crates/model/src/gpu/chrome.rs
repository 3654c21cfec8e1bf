//! Every block as a slice of Chrome's trace format, which Perfetto opens: a process for the device, rows for each
//! multiprocessor, and a counter of resident blocks for each kernel.

use serde_json::{Value, json};

use super::BlockRun;
use super::report::Report;

/// Blocks of a trace that a viewer still opens; the first ones are written.
pub const TRACE_BLOCKS_MAX: usize = 200_000;

/// Rows of a multiprocessor: no device holds as many blocks.
const LANES: u64 = 1_000;

/// The first [`TRACE_BLOCKS_MAX`] blocks as a trace.
pub fn chrome_trace(report: &Report<'_>) -> String {
    let all = &report.outcome.blocks;
    let shown = &all[..all.len().min(TRACE_BLOCKS_MAX)];
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": 0, "args": { "name": report.device.description },
    })];
    slices(report, shown, &mut events);
    counters(report, shown, &mut events);
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

/// Whole nanoseconds, so that rounding cannot make neighbours overlap.
fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Blocks that are on a multiprocessor at the same time lie on several rows of it.
fn slices(report: &Report<'_>, blocks: &[BlockRun], events: &mut Vec<Value>) {
    let outcome = &report.outcome;
    let mut blocks: Vec<&BlockRun> = blocks.iter().collect();
    blocks.sort_by(|a, b| a.multiprocessor.cmp(&b.multiprocessor).then(a.start_us.total_cmp(&b.start_us)));
    for of_one in blocks.chunk_by(|a, b| a.multiprocessor == b.multiprocessor) {
        let number = of_one[0].multiprocessor;
        let mut ends_ns: Vec<u64> = Vec::new();
        for block in of_one {
            let (start_ns, end_ns) = (nanoseconds(block.start_us), nanoseconds(block.end_us));
            let lane = ends_ns.iter().position(|end_ns| *end_ns <= start_ns).unwrap_or(ends_ns.len());
            let thread = u64::from(number) * LANES + lane as u64;
            if lane == ends_ns.len() {
                ends_ns.push(end_ns);
                let name =
                    if lane == 0 { format!("SM {number}") } else { format!("SM {number} ({})", lane + 1) };
                for (key, value) in [
                    ("thread_name", json!({ "name": name })),
                    ("thread_sort_index", json!({ "sort_index": thread })),
                ] {
                    events.push(json!({ "ph": "M", "name": key, "pid": 0, "tid": thread, "args": value }));
                }
            }
            ends_ns[lane] = end_ns;
            let launch = &outcome.launches[block.launch as usize];
            events.push(json!({
                "ph": "X", "name": outcome.kernels[launch.kernel].name, "cat": "block", "pid": 0, "tid": thread,
                "ts": microseconds(start_ns), "dur": microseconds(end_ns - start_ns),
                "args": {
                    "block": block.block, "launch": block.launch, "round": launch.round,
                    "stream": outcome.streams[launch.stream].name,
                },
            }));
        }
    }
}

/// How many blocks of each kernel are on the device.
fn counters(report: &Report<'_>, blocks: &[BlockRun], events: &mut Vec<Value>) {
    let outcome = &report.outcome;
    let kernel = |block: &BlockRun| outcome.launches[block.launch as usize].kernel;
    let starts = blocks.iter().map(|block| (kernel(block), nanoseconds(block.start_us), 1));
    let ends = blocks.iter().map(|block| (kernel(block), nanoseconds(block.end_us), -1));
    let mut changes: Vec<(usize, u64, i64)> = starts.chain(ends).collect();
    changes.sort_unstable();
    for of_kernel in changes.chunk_by(|a, b| a.0 == b.0) {
        let name = format!("resident blocks of {}", outcome.kernels[of_kernel[0].0].name);
        let mut resident = 0;
        for at_once in of_kernel.chunk_by(|a, b| a.1 == b.1) {
            resident += at_once.iter().map(|change| change.2).sum::<i64>();
            events.push(json!({
                "ph": "C", "name": name, "pid": 0, "ts": microseconds(at_once[0].1), "args": { "blocks": resident },
            }));
        }
    }
}
