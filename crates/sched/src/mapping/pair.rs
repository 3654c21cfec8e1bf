//! The mapping of a global batch to devices of one or two types whose virtual nodes may differ in batch.
//!
//! ```text
//! minimise  max_k n_k t_k(b_k) + t_sync(sum_k c_k)    subject to  sum_k c_k n_k b_k = B,  c_k <= C_k
//! ```
//!
//! | symbol  | meaning                                                       | unit    |
//! |---------|---------------------------------------------------------------|---------|
//! | B       | global batch                                                  | samples |
//! | C_k     | devices of type k                                             | 1       |
//! | c_k     | devices of it that are used; at most two types have any       | 1       |
//! | n_k     | virtual nodes of each such device, one after the other        | 1       |
//! | b_k     | batch of a virtual node, one of those that were measured      | samples |
//! | t_k(b)  | measured time of a virtual node                               | s       |
//!
//! For jobs whose batch may move: where the batch of a virtual node belongs to the job's identity,
//! [`solve`](super::solve) is the one to ask. A gradient counts with the weight `n_k b_k / B` of its device. Source:
//! the search of Or et al., VirtualFlow, MLSys 2022; here it is exhaustive over loads of a device, each at its best
//! batch.

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

const PLACE: &str = "mapping by type";
/// Largest global batch, in samples: a table of this length is made for each type.
const LARGEST_BATCH: u32 = 1 << 20;

/// Equal devices, and what was measured of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceType {
    /// How many there are.
    pub devices: u32,
    /// Batches of a virtual node that fit its memory, in samples, and the seconds that each takes.
    pub node_s: Vec<(u32, f64)>,
}

/// What the used devices of one type do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The place of the type in the list that was given.
    pub device_type: usize,
    /// Devices that are used.
    pub devices: u32,
    /// Virtual nodes of each.
    pub virtual_nodes: u32,
    /// Samples of each virtual node.
    pub batch: u32,
}

/// How a batch is split, and the step that it gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// One part, or two.
    pub parts: Vec<Part>,
    /// Seconds of a step.
    pub step_s: f64,
}

/// The best way of a device to work through some samples.
#[derive(Debug, Clone, Copy)]
struct Load {
    time_s: f64,
    virtual_nodes: u32,
    batch: u32,
}

/// The fastest split; of equally fast ones one of fewest virtual nodes on a device.
///
/// # Errors
///
/// Returns an error on any of these: no type, a batch of 0 or beyond 2^20 samples, times or batches that are not
/// positive, or no split that sums to the batch.
pub fn solve(types: &[DeviceType], batch: u32, sync_s: &dyn Fn(u32) -> f64) -> Result<Split, InputError> {
    check(types, batch)?;
    let loads: Vec<Vec<Option<Load>>> = types.iter().map(|of_type| loads(of_type, batch)).collect();
    let mut best: Option<(f64, u32, Split)> = None;
    let mut offer = |parts: &[(usize, u32, Load)]| {
        let devices = parts.iter().map(|(_, devices, _)| devices).sum();
        let longest_s = parts.iter().map(|(.., load)| load.time_s).fold(0.0, f64::max);
        let step_s = longest_s + sync_s(devices);
        let virtual_nodes = parts.iter().map(|(.., load)| load.virtual_nodes).max().unwrap_or(0);
        if best.as_ref().is_none_or(|(least_s, fewest, _)| (step_s, virtual_nodes) < (*least_s, *fewest)) {
            let part = |&(device_type, devices, Load { virtual_nodes, batch, .. }): &(usize, u32, Load)| {
                Part { device_type, devices, virtual_nodes, batch }
            };
            best = Some((step_s, virtual_nodes, Split { parts: parts.iter().map(part).collect(), step_s }));
        }
    };
    for first in 0..types.len() {
        for devices in 1..=types[first].devices.min(batch) {
            for samples in 1..=batch / devices {
                let Some(load) = loads[first][samples as usize] else { continue };
                let rest = batch - devices * samples;
                if rest == 0 {
                    offer(&[(first, devices, load)]);
                }
                for second in first + 1..types.len() {
                    for others in
                        (1..=types[second].devices.min(rest)).filter(|others| rest.is_multiple_of(*others))
                    {
                        if let Some(other) = loads[second][(rest / others) as usize] {
                            offer(&[(first, devices, load), (second, others, other)]);
                        }
                    }
                }
            }
        }
    }
    let best = best.filter(|(step_s, ..)| step_s.is_finite());
    best.map(|(.., split)| split).ok_or_else(|| {
        let what = format!("no measured batches of virtual nodes sum to {batch} samples in finite time");
        InputError::new(PLACE, what).hint("measure a smaller batch")
    })
}

fn check(types: &[DeviceType], batch: u32) -> Result<(), InputError> {
    if types.is_empty() {
        return Err(InputError::new(PLACE, "there is no type of device").hint("give at least one"));
    }
    if batch == 0 || batch > LARGEST_BATCH {
        let what = format!("a batch of {batch} samples");
        return Err(InputError::new(PLACE, what).hint(format!("give 1 to {LARGEST_BATCH}")));
    }
    for (index, of_type) in types.iter().enumerate() {
        let bad = |(batch, time_s): &&(u32, f64)| *batch == 0 || !(time_s.is_finite() && *time_s > 0.0);
        if let Some((batch, time_s)) = of_type.node_s.iter().find(bad) {
            let what = format!("device type {index} takes {time_s} s for {batch} samples");
            return Err(InputError::new(PLACE, what).hint("give positive numbers"));
        }
    }
    Ok(())
}

/// By samples of one device, the best batch of its virtual nodes.
fn loads(of_type: &DeviceType, most: u32) -> Vec<Option<Load>> {
    let mut loads: Vec<Option<Load>> = vec![None; most as usize + 1];
    for &(batch, node_s) in &of_type.node_s {
        for virtual_nodes in 1..=most / batch {
            let load = Load { time_s: f64::from(virtual_nodes) * node_s, virtual_nodes, batch };
            let slot = &mut loads[(virtual_nodes * batch) as usize];
            let order = |load: &Load| (load.time_s, load.virtual_nodes);
            if slot.is_none_or(|known| order(&load) < order(&known)) {
                *slot = Some(load);
            }
        }
    }
    loads
}
