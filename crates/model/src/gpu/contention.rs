//! How fast blocks run that share a multiprocessor and the device.

use super::kernel::Demand;

/// The resources of a multiprocessor that its blocks share.
const LOCAL: usize = 2;

/// What the blocks of one launch on one multiprocessor want.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    /// The launch; of two the smaller one reached the device earlier.
    pub(super) launch: u32,
    /// The multiprocessor.
    pub(super) rank: usize,
    /// Their place among those of this multiprocessor.
    pub(super) place: usize,
    /// How many blocks.
    pub(super) blocks: u32,
    /// What each of them uses at full speed.
    pub(super) demand: Demand,
    /// How fast they run: 1 is full speed. Written by [`share`].
    pub(super) rate: f64,
}

/// Sets the rate of every claim, where the device has `multiprocessors` and the share `memory` of the bandwidth of
/// memory and bus. Launches take in the order in which they reached the device; one that gets less than it wants runs
/// all its blocks slower by the same factor, and uses so much less of everything else.
///
/// `claims` are sorted by launch.
pub(super) fn share(claims: &mut [Claim], multiprocessors: usize, memory: f64) {
    let mut local = vec![[1.0_f64; LOCAL]; multiprocessors];
    let mut device = [memory; 2];
    for launch in claims.chunk_by_mut(|a, b| a.launch == b.launch) {
        let mut used = [0.0; 2];
        for claim in &mut *launch {
            let wanted = [claim.demand.issue, claim.demand.l1].map(|demand| demand * f64::from(claim.blocks));
            claim.rate = slowest(&local[claim.rank], &wanted);
            let running = claim.rate * f64::from(claim.blocks);
            used[0] += running * claim.demand.dram;
            used[1] += running * claim.demand.pcie;
        }
        let factor = slowest(&device, &used);
        for (left, used) in device.iter_mut().zip(used) {
            *left = (*left - used * factor).max(0.0);
        }
        for claim in launch {
            claim.rate *= factor;
            let running = claim.rate * f64::from(claim.blocks);
            let left = &mut local[claim.rank];
            left[0] = (left[0] - running * claim.demand.issue).max(0.0);
            left[1] = (left[1] - running * claim.demand.l1).max(0.0);
        }
    }
}

/// The share of `wanted` that `left` allows, of the scarcest resource. What rounding left over counts as nothing.
fn slowest(left: &[f64; 2], wanted: &[f64; 2]) -> f64 {
    let mut rate = 1.0_f64;
    for (left, wanted) in left.iter().zip(wanted) {
        if *wanted > *left {
            rate = rate.min(left / wanted);
        }
    }
    if rate < 1e-12 { 0.0 } else { rate }
}
