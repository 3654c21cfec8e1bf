//! Workers of unequal speed: who computes how fast, and whether they should train together at all.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::tree::ranges_by_speed;
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::mapping::{self, Problem, Worker};
use bellwether_workloads::Pace;

use crate::failure::Failure;

/// The same paces, the fastest at full speed: no worker can be made faster than it is.
pub(super) fn relative(paces: &[Pace]) -> Vec<Pace> {
    let fastest = paces.iter().map(|pace| pace.speed).fold(1.0, f64::max);
    paces.iter().map(|pace| Pace { speed: pace.speed / fastest, ..*pace }).collect()
}

/// The pace of a worker; those beyond the named ones are as fast as they can be.
pub(super) fn of(paces: &[Pace], worker: WorkerId) -> Option<Pace> {
    let place = usize::try_from(worker).ok()?.checked_sub(1)?;
    paces.get(place).copied().filter(|pace| pace.speed < 1.0 || pace.hang.is_some())
}

/// The speeds by which the first `workers` workers share the job's virtual nodes. One that turns slow later is not known
/// to be slow.
///
/// # Errors
///
/// An honest no where the workers of one speed would be faster without the others.
pub(super) fn known(job: &Job, workers: u32, paces: &[Pace]) -> Result<BTreeMap<WorkerId, f64>, Failure> {
    let paces = relative(paces);
    if paces.iter().all(|pace| pace.after.is_some()) {
        return Ok(BTreeMap::new());
    }
    let speed = |worker: WorkerId| match of(&paces, worker) {
        Some(Pace { speed, after: None, .. }) => speed,
        _ => 1.0,
    };
    let speeds: BTreeMap<WorkerId, f64> = (1..=u64::from(workers)).map(|id| (id, speed(id))).collect();
    refuse_slower(job.batch.virtual_nodes, &speeds)?;
    let named = paces.len().max(workers as usize) as u64;
    Ok((1..=named).map(|id| (id, speed(id))).collect())
}

/// Times are in units of one virtual node on the fastest worker: what the exchange takes is not known yet. The mapping of
/// the solver is the one that the coordinator makes of the speeds, as long as nobody is left out.
fn refuse_slower(virtual_nodes: u32, speeds: &BTreeMap<WorkerId, f64>) -> Result<(), Failure> {
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
    let what = format!(
        "a step of all {} workers would take {:.2} times as long as without worker {}",
        speeds.len(),
        together / best.step_s,
        idle.join(", ")
    );
    let hint = "leave the slow ones out (--workers, --worker-speed), or raise batch.virtual_nodes, so that they can have \
                a smaller part";
    Err(Failure::No(InputError::new("--worker-speed", what).hint(hint).to_string()))
}
