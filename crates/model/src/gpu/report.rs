//! What is told of one run of a workload: its outcome, and what each kernel takes of the device.

use std::collections::BTreeSet;

use bellwether_core::InputError;
use serde::Serialize;

use super::advice::{self, Advice};
use super::{
    BlockRun, Decision, Device, Discipline, LaunchRun, Occupancy, Outcome, RoundRun, StreamSummary, Workload,
    occupancy,
};

/// An outcome with all that is told of it.
#[derive(Debug)]
pub struct Report<'a> {
    /// The device.
    pub device: &'a Device,
    /// What ran on it.
    pub workload: &'a Workload,
    /// What happened.
    pub outcome: Outcome,
    /// Its kernels, in the order of the workload.
    pub kernels: Vec<KernelReport>,
    /// Sizes of blocks that would isolate kernels.
    pub advice: Vec<Advice>,
}

/// All launches of a kernel together.
#[derive(Debug, Serialize)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Blocks of a launch.
    pub blocks: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Blocks that fit on a multiprocessor, and what limits them.
    pub occupancy: Occupancy,
    /// How often it was launched.
    pub launches: u32,
    /// Those on which a block of it ran.
    pub multiprocessors: BTreeSet<u32>,
    /// When its first block was placed.
    pub start_us: f64,
    /// When its last block was placed.
    pub placed_us: f64,
    /// When its last block ended.
    pub end_us: f64,
    /// Mean time of a launch alone on the device.
    pub alone_us: f64,
    /// The same here.
    pub mean_us: f64,
    /// The second over the first.
    pub slowdown: f64,
    /// Whether it never shared a multiprocessor.
    pub isolated: bool,
    /// Launches that shared one.
    pub colocated_launches: u32,
    /// Names of the kernels with which it did.
    pub colocated_with: Vec<String>,
}

/// The same for programs.
#[derive(Debug, Serialize)]
pub struct ReportJson<'a> {
    device: &'a str,
    discipline: Discipline,
    end_us: f64,
    kernels: &'a [KernelReport],
    streams: &'a [StreamSummary],
    advice: &'a [Advice],
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<&'a Decision>,
    launches: &'a [LaunchRun],
    rounds: &'a [RoundRun],
    blocks: &'a [BlockRun],
}

impl<'a> Report<'a> {
    /// Adds up an outcome, and looks for advice.
    ///
    /// # Errors
    ///
    /// Returns an error for a kernel that the device cannot run.
    pub fn new(
        device: &'a Device,
        workload: &'a Workload,
        outcome: Outcome,
    ) -> Result<Report<'a>, InputError> {
        let mut multiprocessors = vec![BTreeSet::new(); workload.kernels.len()];
        for block in &outcome.blocks {
            let kernel = outcome.launches[block.launch as usize].kernel;
            multiprocessors[kernel].insert(block.multiprocessor);
        }
        let mut kernels = Vec::new();
        for (number, (kernel, multiprocessors)) in workload.kernels.iter().zip(multiprocessors).enumerate() {
            let launches = || outcome.launches.iter().filter(|launch| launch.kernel == number);
            let summary = &outcome.kernels[number];
            kernels.push(KernelReport {
                name: kernel.name.clone(),
                blocks: kernel.blocks,
                threads_per_block: kernel.threads_per_block,
                occupancy: occupancy(device, kernel)?,
                launches: summary.launches,
                multiprocessors,
                start_us: launches().map(|launch| launch.start_us).fold(f64::NAN, f64::min),
                placed_us: launches().map(|launch| launch.placed_us).fold(f64::NAN, f64::max),
                end_us: launches().map(|launch| launch.end_us).fold(f64::NAN, f64::max),
                alone_us: summary.alone_us,
                mean_us: summary.mean_us,
                slowdown: summary.slowdown,
                isolated: summary.isolated(),
                colocated_launches: summary.colocated_launches,
                colocated_with: summary.colocated_with.clone(),
            });
        }
        let advice = advice::find(device, workload, &outcome)?;
        Ok(Report { device, workload, outcome, kernels, advice })
    }

    /// The same for programs: it is serialised.
    pub fn json(&self) -> ReportJson<'_> {
        let outcome = &self.outcome;
        ReportJson {
            device: &outcome.device,
            discipline: outcome.discipline,
            end_us: outcome.end_us,
            kernels: &self.kernels,
            streams: &outcome.streams,
            advice: &self.advice,
            explained: outcome.explained.as_ref(),
            launches: &outcome.launches,
            rounds: &outcome.rounds,
            blocks: &outcome.blocks,
        }
    }
}
