//! Rows to fit and rows to predict, with what the baselines say of the latter.

use std::collections::BTreeMap;

use bellwether_model::elastic::Row;
use bellwether_model::scaling::{linear_scaling_s, log_log};

/// One model's rows, some to fit and the others to predict.
pub struct Split {
    pub name: String,
    pub fitted: Vec<Row>,
    pub held_out: Vec<HeldOut>,
}

/// A row that is not fitted.
pub struct HeldOut {
    pub row: Row,
    /// Where it ran: replicas per node where that is known, else the counts.
    pub place: String,
    /// Step time under linear scaling.
    pub linear_s: f64,
    /// Step time on straight lines between the fitted rows, in logarithms.
    pub log_log_s: f64,
}

/// Full nodes of ElasticFlow's tables.
pub fn node_size(device: &str) -> u32 {
    if device == "A100" { 8 } else { 4 }
}

/// The tables of ElasticFlow: 1 GPU, one full node, and the smallest and largest measured counts of several
/// nodes are fitted. Linear scaling is from 1 GPU at the same global batch.
pub fn elasticflow() -> Vec<Split> {
    super::ELASTICFLOW.iter().map(|&(device, model, table)| elasticflow_split(device, model, table)).collect()
}

fn elasticflow_split(device: &str, model: &str, table: &str) -> Split {
    let node = node_size(device);
    let rows = super::elasticflow(table, node);
    let over_nodes = || rows.iter().filter(|(_, row)| row.nodes > 1).map(|(_, row)| row.replicas);
    let counts = [Some(1), Some(node), over_nodes().min(), over_nodes().max()];
    let is_fitted = |row: &Row| counts.contains(&Some(row.replicas));
    let held_out = rows.iter().filter(|(_, row)| !is_fitted(row)).map(|(batch, row)| {
        let mut points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|(other, fitted)| other == batch && is_fitted(fitted))
            .map(|(_, fitted)| (f64::from(fitted.replicas), fitted.step_s))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        HeldOut {
            row: *row,
            place: format!("global batch {batch}, {} GPUs", row.replicas),
            linear_s: linear_scaling_s(points[0].1, row.replicas),
            log_log_s: log_log(&points, f64::from(row.replicas)).expect("every batch has fitted rows"),
        }
    });
    let held_out = held_out.collect();
    let fitted = rows.iter().map(|(_, row)| *row).filter(is_fitted).collect();
    Split { name: format!("{device} {model}"), fitted, held_out }
}

/// The tables of Pollux, with nodes of 4: 1 GPU, one full node, the smallest placement over nodes (`small`) and 16
/// full nodes are fitted. Linear scaling is from 1 GPU at the same local batch; the lines between rows are drawn
/// in the batch first and then in the count, in one node and over nodes separately.
pub fn pollux(small: &[u32]) -> Vec<Split> {
    super::POLLUX.iter().map(|job| pollux_split(job, small)).collect()
}

fn pollux_split(job: &super::PolluxJob, small: &[u32]) -> Split {
    let (mut fitted, mut rest) = (Vec::new(), Vec::new());
    for placed in super::placements(job.placements) {
        let chosen = placed.placement == [1] || placed.placement == [4] || placed.placement == small;
        let place: String = placed.placement.iter().map(u32::to_string).collect();
        if chosen { fitted.push(placed.row) } else { rest.push((format!("placement {place}"), placed.row)) }
    }
    for row in super::scalability(job.scalability) {
        let chosen = (row.nodes, row.replicas) == (16, 64);
        let place = format!("{} GPUs on {} nodes", row.replicas, row.nodes);
        if chosen { fitted.push(row) } else { rest.push((place, row)) }
    }
    let mut counts: BTreeMap<(bool, u32), Vec<(f64, f64)>> = BTreeMap::new();
    for row in &fitted {
        counts.entry((row.nodes > 1, row.replicas)).or_default().push((row.local_batch, row.step_s));
    }
    counts.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let at = |points: &[(f64, f64)], batch: f64| log_log(points, batch).expect("a fitted count has rows");
    let held_out = rest.into_iter().map(|(place, row)| {
        let same_kind = counts.iter().filter(|((over_nodes, _), _)| *over_nodes == (row.nodes > 1));
        let points: Vec<(f64, f64)> =
            same_kind.map(|((_, count), points)| (f64::from(*count), at(points, row.local_batch))).collect();
        HeldOut {
            place: format!("{place}, local batch {}", row.local_batch),
            linear_s: at(&counts[&(false, 1)], row.local_batch),
            log_log_s: log_log(&points, f64::from(row.replicas)).expect("both kinds have fitted rows"),
            row,
        }
    });
    let held_out = held_out.collect();
    Split { name: format!("pollux {}", job.name), fitted, held_out }
}

/// Relative error of a throughput predicted by its step time.
pub fn throughput_error(predicted_s: f64, measured_s: f64) -> f64 {
    measured_s / predicted_s - 1.0
}

/// Mean of the sizes of errors.
pub fn mean_size(errors: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = errors.len().max(1) as f64;
    errors.map(f64::abs).sum::<f64>() / count
}
