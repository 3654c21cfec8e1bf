//! A kernel, and what each of its blocks uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::Device;

/// A kernel: a grid of equal blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The name by which streams launch it.
    pub name: String,
    /// Blocks of the grid; the shape of the grid does not matter.
    pub blocks: u32,
    /// Threads of a block; its shape does not matter.
    pub threads_per_block: u32,
    /// Registers of a thread; 0 leaves registers out of account.
    #[serde(default)]
    pub registers_per_thread: u32,
    /// Bytes of shared memory that a block asks for, static and dynamic.
    #[serde(default)]
    pub shared_bytes: u32,
    /// Time of a block that has its multiprocessor for itself, in microseconds. Exactly one of `time_us`,
    /// `block_times_us` and `cycles` is given.
    #[serde(default)]
    pub time_us: Option<f64>,
    /// The same block by block.
    #[serde(default)]
    pub block_times_us: Option<Vec<f64>>,
    /// The same in cycles of the device's clock.
    #[serde(default)]
    pub cycles: Option<f64>,
    /// Standard deviation of a block's time as a share of its mean: lognormal. 0: all as stated.
    #[serde(default)]
    pub variation: f64,
    /// What a block uses of what it shares with others.
    #[serde(default)]
    pub demand: Demand,
}

/// What one block uses, while nothing slows it, of each shared resource: shares from 0 to 1 of all there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// Of the issue slots of its multiprocessor.
    pub issue: f64,
    /// Of the L1 cache (its bandwidth) of its multiprocessor.
    pub l1: f64,
    /// Of the bandwidth of the device's memory.
    pub dram: f64,
    /// Of the bandwidth of the device's bus to the host.
    pub pcie: f64,
}

impl Kernel {
    /// Time of block `block` without variation, in microseconds.
    pub(super) fn block_time_us(&self, block: u32, device: &Device) -> f64 {
        let each = |cycles: f64| cycles / f64::from(device.clock_mhz);
        match &self.block_times_us {
            Some(times) => times[block as usize],
            None => self.time_us.or(self.cycles.map(each)).expect("a checked kernel has a duration"),
        }
    }
}
