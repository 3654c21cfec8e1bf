//! Which size of a block would keep a kernel off the multiprocessors of others: found by trying, never by rule.

use bellwether_core::InputError;
use serde::Serialize;

use super::{Device, Discipline, Options, Outcome, Workload, occupancy, run};

/// How many more threads per block are tried: a whole warp beside the one that is filled.
const THREADS_MORE: u32 = 32;

/// Blocks that may be placed in all trials together: the answer must not wait for the advice.
const BLOCKS_MAX: usize = 1_000_000;

/// A size of a block that would isolate a kernel.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// The kernel.
    pub kernel: String,
    /// Its threads per block.
    pub threads_per_block: u32,
    /// Threads per block with which it would share no multiprocessor.
    pub isolated_with_threads_per_block: u32,
    /// Mean time of a launch, as it is.
    pub mean_us: f64,
    /// The same if it were isolated, were each block to take the same time.
    pub isolated_mean_us: f64,
}

/// For each kernel that shares multiprocessors, the least addition of threads to a block that isolates it, if there is
/// one that slows neither it nor the whole.
pub(super) fn find(
    device: &Device,
    workload: &Workload,
    outcome: &Outcome,
) -> Result<Vec<Advice>, InputError> {
    let mut advice = Vec::new();
    // A time slice and a slice of the device have their own multiprocessors anyway.
    if matches!(outcome.discipline, Discipline::TimeSlice | Discipline::Mig) {
        return Ok(advice);
    }
    let shared: Vec<usize> =
        (0..workload.kernels.len()).filter(|number| !outcome.kernels[*number].isolated()).collect();
    if outcome.blocks.len().saturating_mul(shared.len() * THREADS_MORE as usize) > BLOCKS_MAX {
        return Ok(advice);
    }
    for number in shared {
        let threads = workload.kernels[number].threads_per_block;
        let mean_us = outcome.kernels[number].mean_us;
        let most = threads.saturating_add(THREADS_MORE).min(device.threads_per_block);
        for more in threads + 1..=most {
            let mut other = workload.clone();
            other.kernels[number].threads_per_block = more;
            if occupancy(device, &other.kernels[number]).is_err() {
                break;
            }
            let options = Options { explain: None, skip_alone: true };
            let tried = run(device, &other, outcome.discipline, options)?;
            let kernel = &tried.kernels[number];
            let no_slower = kernel.mean_us <= mean_us && tried.end_us <= outcome.end_us;
            if kernel.isolated() && no_slower {
                advice.push(Advice {
                    kernel: kernel.name.clone(),
                    threads_per_block: threads,
                    isolated_with_threads_per_block: more,
                    mean_us,
                    isolated_mean_us: kernel.mean_us,
                });
                break;
            }
        }
    }
    Ok(advice)
}
