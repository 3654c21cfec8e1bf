//! Who held what when, made ready for pictures.

use std::collections::BTreeMap;

use bellwether_core::cluster::{Node, NodeId};

use crate::world::Span;

/// Device-seconds held in each of `bins` equal parts of the time from `range.0` to `range.1`, in seconds.
pub fn held(spans: &[Span], range: (f64, f64), bins: usize) -> Vec<f64> {
    let width = (range.1 - range.0) / bins as f64;
    let mut held = vec![0.0; bins];
    for span in spans {
        let (start, end) = (span.start_s - range.0, span.end_s - range.0);
        let last = ((end / width) as usize).min(bins - 1);
        for (bin, sum) in held.iter_mut().enumerate().take(last + 1).skip((start / width) as usize) {
            let (low, high) = (bin as f64 * width, (bin + 1) as f64 * width);
            *sum += f64::from(span.devices) * (end.min(high) - start.max(low)).max(0.0);
        }
    }
    held
}

/// Devices of a node, side by side, that a job held for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// The job.
    pub job: u32,
    /// The first of the devices, counted over all nodes.
    pub row: u32,
    /// How many there are.
    pub rows: u32,
    /// Since when.
    pub start_s: f64,
    /// Until when.
    pub end_s: f64,
}

/// Gives each span single devices of its node: the first that are free then. Spans of nodes beyond `nodes` are left
/// out.
pub fn lanes(spans: &[Span], nodes: &[Node]) -> Vec<Bar> {
    let mut first_rows: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut rows = 0;
    for (index, node) in nodes.iter().enumerate() {
        first_rows.insert(NodeId(index as u32), rows);
        rows += node.devices;
    }
    let mut free_from_s = vec![f64::MIN; rows as usize];
    let mut ordered: Vec<&Span> = spans.iter().filter(|span| first_rows.contains_key(&span.node)).collect();
    ordered.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.job.cmp(&b.job)));
    let mut bars = Vec::new();
    for span in ordered {
        let (first, devices) = (first_rows[&span.node], nodes[span.node.0 as usize].devices);
        let (job, start_s, end_s) = (span.job.0, span.start_s, span.end_s);
        let free = |row: &u32| free_from_s[*row as usize] <= start_s;
        let rows: Vec<u32> = (first..first + devices).filter(free).take(span.devices as usize).collect();
        for side_by_side in rows.chunk_by(|a, b| a + 1 == *b) {
            bars.push(Bar { job, row: side_by_side[0], rows: side_by_side.len() as u32, start_s, end_s });
        }
        for row in rows {
            free_from_s[row as usize] = end_s;
        }
    }
    bars
}
