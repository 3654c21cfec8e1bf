//! Workers of unequal speed: who computes how fast, and whether they should train together at all.

use std::collections::BTreeMap;
use std::iter::repeat;

use bellwether_core::job::Job;
use bellwether_core::tree::ranges_by_speed;
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::mapping::{self, Problem, Worker};

use crate::error::RunError;

/// The speeds with which the first `workers` workers, and those that are named, share the job's virtual nodes; those
/// beyond the named ones are taken for 1. None where none is named.
///
/// # Errors
///
/// Returns an error if the workers of one speed would be faster without the others.
pub(crate) fn known(job: &Job, workers: u32, named: &[f64]) -> Result<BTreeMap<WorkerId, f64>, RunError> {
    if named.is_empty() {
        return Ok(BTreeMap::new());
    }
    let numbered = |count: usize| (1..).zip(named.iter().copied().chain(repeat(1.0)).take(count));
    refuse_slower(job.batch.virtual_nodes, &numbered(workers as usize).collect())?;
    Ok(numbered(named.len().max(workers as usize)).collect())
}

/// Times are in units of one virtual node on the fastest worker: what the exchange takes is not known yet. The mapping
/// of the solver is the one that the coordinator makes of the speeds, as long as no worker is left out.
fn refuse_slower(virtual_nodes: u32, speeds: &BTreeMap<WorkerId, f64>) -> Result<(), RunError> {
    let all: Vec<f64> = speeds.values().copied().collect();
    let worker = |speed: &f64| Worker { device_type: 0, node_s: 1.0 / speed, most: virtual_nodes };
    let workers: Vec<Worker> = all.iter().map(worker).collect();
    let problem = Problem { workers: &workers, virtual_nodes, sync_s: &|_| 0.0 };
    let best = mapping::solve(&problem)?;
    let counts: Vec<u32> =
        ranges_by_speed(virtual_nodes, &all).into_iter().map(|range| range.end - range.start).collect();
    let together = mapping::step_s(&problem, &counts)?;
    if together <= best.step_s {
        return Ok(());
    }
    let idle = (1..).zip(&best.counts).filter(|(_, count)| **count == 0).map(|(id, _)| id.to_string());
    let idle: Vec<String> = idle.collect();
    Err(RunError::Slower(format!(
        "a step of all {} workers would take {:.2} times as long as without worker {}",
        speeds.len(),
        together / best.step_s,
        idle.join(", ")
    )))
}
