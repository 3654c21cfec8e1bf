//! What became of a workload: every block, launch and round, and what sharing cost each kernel.

use serde::Serialize;

use super::discipline::Discipline;
use super::occupancy::{Amounts, Resource};

/// A block that ran.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BlockRun {
    /// Its launch, as an index into [`Outcome::launches`].
    pub launch: u32,
    /// Its number in the grid.
    pub block: u32,
    /// Its multiprocessor.
    pub multiprocessor: u32,
    /// When it was placed, in microseconds.
    pub start_us: f64,
    /// When it ended, in microseconds.
    pub end_us: f64,
}

/// A launch that ran.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LaunchRun {
    /// Its kernel, as an index into [`Outcome::kernels`].
    pub kernel: usize,
    /// Its stream, as an index into [`Outcome::streams`].
    pub stream: usize,
    /// The round of the stream, from 0.
    pub round: u32,
    /// When it reached the device's queue, in microseconds.
    pub queued_us: f64,
    /// When its first block was placed, in microseconds.
    pub start_us: f64,
    /// When its last block was placed, in microseconds.
    pub placed_us: f64,
    /// When its last block ended, in microseconds.
    pub end_us: f64,
    /// Whether one of its blocks was on a multiprocessor together with a block of another launch.
    pub colocated: bool,
}

/// One round of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundRun {
    /// Its stream, as an index into [`Outcome::streams`].
    pub stream: usize,
    /// Which round, from 0.
    pub round: u32,
    /// When it arrived, in microseconds.
    pub arrival_us: f64,
    /// When its last launch ended, in microseconds.
    pub end_us: f64,
}

/// All launches of a kernel together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelSummary {
    /// Its name.
    pub name: String,
    /// How often it was launched.
    pub launches: u32,
    /// Time that a launch takes alone on the whole device, in microseconds.
    pub alone_us: f64,
    /// Mean time of a launch from the queue to its end, in microseconds.
    pub mean_us: f64,
    /// How many times as long as alone.
    pub slowdown: f64,
    /// How many of its launches shared a multiprocessor with another launch.
    pub colocated_launches: u32,
    /// With kernels of which names.
    pub colocated_with: Vec<String>,
}

impl KernelSummary {
    /// Whether no block of it ever shared a multiprocessor with another launch.
    pub fn isolated(&self) -> bool {
        self.colocated_launches == 0
    }
}

/// All rounds of a stream together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: String,
    /// How many rounds it had.
    pub rounds: u32,
    /// Mean time from the arrival of a round to its end, in microseconds.
    pub mean_turnaround_us: f64,
    /// When its last round ended, in microseconds.
    pub end_us: f64,
}

/// Why a block went where it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// Which block of all, in the order of placement, from 1.
    pub number: u64,
    /// When, in microseconds.
    pub time_us: f64,
    /// The launch, as an index into [`Outcome::launches`].
    pub launch: u32,
    /// The block's number in the grid.
    pub block: u32,
    /// What a block of it takes.
    pub need: Amounts,
    /// The multiprocessor that was chosen.
    pub multiprocessor: u32,
    /// How many blocks the choice placed.
    pub blocks: u32,
    /// All multiprocessors, in the order in which ties are broken, as the choice saw them.
    pub rooms: Vec<RoomRow>,
}

/// A multiprocessor at a decision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoomRow {
    /// Its number.
    pub multiprocessor: u32,
    /// What was free.
    pub free: Amounts,
    /// How many more blocks would fit by each resource alone.
    pub rooms: Amounts,
    /// How many would fit.
    pub room: u32,
    /// The first resource that would run out.
    pub limit: Resource,
}

/// What became of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the device.
    pub device: String,
    /// The discipline.
    pub discipline: Discipline,
    /// When the last block ended, in microseconds.
    pub end_us: f64,
    /// Every block, in the order of placement.
    pub blocks: Vec<BlockRun>,
    /// Every launch, in the order in which they reached the device.
    pub launches: Vec<LaunchRun>,
    /// Every round of every stream, in the order in which they ended.
    pub rounds: Vec<RoundRun>,
    /// By kernel, in the order of the workload.
    pub kernels: Vec<KernelSummary>,
    /// By stream, in the order of the workload.
    pub streams: Vec<StreamSummary>,
    /// The decision that was asked for.
    pub explained: Option<Decision>,
}

impl Outcome {
    /// Multiprocessor of each block of a launch, by the number of the block.
    pub fn placement(&self, launch: usize) -> Vec<u32> {
        let mut blocks: Vec<(u32, u32)> = self
            .blocks
            .iter()
            .filter(|block| block.launch as usize == launch)
            .map(|block| (block.block, block.multiprocessor))
            .collect();
        blocks.sort_unstable();
        blocks.into_iter().map(|(_, multiprocessor)| multiprocessor).collect()
    }
}
