//! What is told of one run of a workload: its outcome, and what each kernel takes of the device.

use std::collections::BTreeSet;

use bellwether_core::InputError;
use bellwether_model::gpu::{
    self, BlockRun, Decision, Device, Discipline, LaunchRun, Occupancy, Outcome, RoundRun, StreamSummary,
    Workload,
};
use serde::Serialize;

use super::advice::{self, Advice};

/// An outcome with all that is told of it.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) device: &'a Device,
    pub(super) workload: &'a Workload,
    pub(super) outcome: Outcome,
    pub(super) kernels: Vec<Kernel>,
    pub(super) advice: Vec<Advice>,
}

/// All launches of a kernel together.
#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) blocks: u32,
    pub(super) threads_per_block: u32,
    pub(super) occupancy: Occupancy,
    pub(super) launches: u32,
    /// Those on which a block of it ran.
    pub(super) multiprocessors: BTreeSet<u32>,
    /// When its first block was placed.
    pub(super) start_us: f64,
    /// When its last block was placed.
    pub(super) placed_us: f64,
    /// When its last block ended.
    pub(super) end_us: f64,
    pub(super) alone_us: f64,
    pub(super) mean_us: f64,
    pub(super) slowdown: f64,
    pub(super) isolated: bool,
    pub(super) colocated_launches: u32,
    pub(super) colocated_with: Vec<String>,
}

/// The same for programs.
#[derive(Debug, Serialize)]
pub(super) struct Json<'a> {
    device: &'a str,
    discipline: Discipline,
    end_us: f64,
    kernels: &'a [Kernel],
    streams: &'a [StreamSummary],
    advice: &'a [Advice],
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<&'a Decision>,
    launches: &'a [LaunchRun],
    rounds: &'a [RoundRun],
    blocks: &'a [BlockRun],
}

impl<'a> Report<'a> {
    pub(super) fn new(
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
            kernels.push(Kernel {
                name: kernel.name.clone(),
                blocks: kernel.blocks,
                threads_per_block: kernel.threads_per_block,
                occupancy: gpu::occupancy(device, kernel)?,
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

    pub(super) fn json(&self) -> Json<'_> {
        let outcome = &self.outcome;
        Json {
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
