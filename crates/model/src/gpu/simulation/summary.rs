//! From what happened to what is reported.

use super::Simulation;
use crate::gpu::outcome::{KernelSummary, LaunchRun, Outcome, StreamSummary};

impl Simulation<'_> {
    pub(super) fn outcome(self, alone_us: &[f64]) -> Outcome {
        let launches: Vec<LaunchRun> = self.launches.iter().map(|launch| launch.run).collect();
        let kernels =
            alone_us.iter().enumerate().map(|(kernel, alone_us)| self.kernel(kernel, *alone_us)).collect();
        let streams = (0..self.streams.len()).map(|stream| self.stream(stream)).collect();
        Outcome {
            device: self.device.name.clone(),
            discipline: self.discipline,
            end_us: self.rounds.iter().map(|round| round.end_us).fold(0.0, f64::max),
            blocks: self.blocks,
            launches,
            rounds: self.rounds,
            kernels,
            streams,
            explained: self.explained,
        }
    }

    fn kernel(&self, kernel: usize, alone_us: f64) -> KernelSummary {
        let (mut launches, mut colocated_launches, mut sum_us) = (0_u32, 0, 0.0);
        for launch in self.launches.iter().map(|launch| &launch.run).filter(|run| run.kernel == kernel) {
            launches += 1;
            colocated_launches += u32::from(launch.colocated);
            sum_us += launch.end_us - launch.queued_us;
        }
        let mean_us = sum_us / f64::from(launches);
        let name = |kernel: usize| self.workload.kernels[kernel].name.clone();
        let other = |(a, b): &(usize, usize)| match (*a == kernel, *b == kernel) {
            (true, _) => Some(name(*b)),
            (_, true) => Some(name(*a)),
            _ => None,
        };
        KernelSummary {
            name: name(kernel),
            launches,
            alone_us,
            mean_us,
            slowdown: mean_us / alone_us,
            colocated_launches,
            colocated_with: self.together.iter().filter_map(other).collect(),
        }
    }

    fn stream(&self, stream: usize) -> StreamSummary {
        let (mut rounds, mut sum_us, mut end_us) = (0_u32, 0.0, 0.0_f64);
        for round in self.rounds.iter().filter(|round| round.stream == stream) {
            rounds += 1;
            sum_us += round.end_us - round.arrival_us;
            end_us = end_us.max(round.end_us);
        }
        let state = &self.streams[stream].stream;
        StreamSummary {
            name: state.name.clone(),
            process: state.process.clone(),
            rounds,
            mean_turnaround_us: sum_us / f64::from(rounds),
            end_us,
        }
    }
}
