//! Inference beside training on the device and with the mechanisms of Gilman and Walls (arXiv 2110.00459).

use bellwether_core::parse::document;
use bellwether_model::gpu::{Discipline, Options, StreamSummary, Workload, built_in, find, run};

/// What training launches, kernel after kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrainingKernel {
    /// How many times its blocks fill the device; each takes 800 us.
    pub(crate) waves: f64,
    /// Whether its blocks together want all of the memory's bandwidth; inference then does so too.
    pub(crate) memory: bool,
}

/// In the order time slices, MPS, priority.
#[derive(Debug)]
pub(crate) struct Times {
    /// Mean turnaround of a request.
    pub(crate) turnaround_ms: [f64; 3],
    /// Time until training is done.
    pub(crate) training_ms: [f64; 3],
}

/// Requests that follow each other, each a chain of 60 short kernels, and training by a chain of 100 long ones. With
/// `run_ahead` training launches up to 20 kernels ahead, as a scale model of the thousand that a device allows.
fn workload(training: TrainingKernel, run_ahead: bool) -> Workload {
    // 82 multiprocessors hold six blocks of 256 threads each.
    let blocks = (492.0 * training.waves) as u32;
    let (step, layer) = if training.memory { (1.0 / 492.0, 1.0 / 60.0) } else { (0.0, 0.0) };
    let text = format!(
        "launch_queue = 20
        [[kernel]]
        name = 'layer'
        blocks = 60
        threads_per_block = 128
        time_us = 15.0
        variation = 0.2
        demand = {{ dram = {layer:.6} }}
        [[kernel]]
        name = 'step'
        blocks = {blocks}
        threads_per_block = 256
        time_us = 800.0
        variation = 0.2
        demand = {{ dram = {step:.6} }}
        [[stream]]
        name = 'training'
        process = 'training'
        repeat = 100
        run_ahead = {run_ahead}
        launch = [{{ kernel = 'step', gap_us = 5.0 }}]
        [[stream]]
        name = 'inference'
        process = 'inference'
        priority = -1
        repeat = 5
        launch = [{{ kernel = 'layer', gap_us = 5.0, times = 60 }}]"
    );
    document(&text, "workload.toml").expect("a workload")
}

pub(crate) fn compare(training: TrainingKernel, run_ahead: bool) -> Times {
    let devices = built_in();
    let device = find(&devices, "rtx-3090").expect("it is built in");
    let workload = workload(training, run_ahead);
    let options = Options { explain: None, skip_alone: true };
    let outcomes = [Discipline::TimeSlice, Discipline::Mps, Discipline::Priority]
        .map(|discipline| run(device, &workload, discipline, options).expect("a workload that fits"));
    let of = |stream: usize, value: fn(&StreamSummary) -> f64| {
        [0, 1, 2].map(|outcome: usize| value(&outcomes[outcome].streams[stream]) / 1e3)
    };
    Times {
        turnaround_ms: of(1, |stream| stream.mean_turnaround_us),
        training_ms: of(0, |stream| stream.end_us),
    }
}
