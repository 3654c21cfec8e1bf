//! Recorded runs, and how well some of them tell of the others.

use bellwether_core::prediction::{Configuration, DeviceGroup, JobDescription, Link, Prediction};
use bellwether_core::record::StepRecord;
use bellwether_model::observed::{Calm, Observed};

/// Steps of one number of workers.
pub(crate) struct Recorded {
    pub(crate) kind: &'static str,
    pub(crate) speed: f64,
    pub(crate) workers: u32,
    pub(crate) steps: Vec<StepRecord>,
}

macro_rules! recorded {
    ($kind:literal, $speed:literal, $name:literal) => {
        recorded($kind, $speed, include_str!(concat!("../../../../../data/observed-steps/", $name, ".jsonl")))
    };
}

/// All of `data/observed-steps`.
pub(crate) fn all() -> Vec<Recorded> {
    vec![
        recorded!("synthetic", 1.0, "synthetic-1"),
        recorded!("synthetic", 1.0, "synthetic-2"),
        recorded!("synthetic", 1.0, "synthetic-3"),
        recorded!("synthetic", 1.0, "synthetic-4"),
        recorded!("synthetic", 1.0, "synthetic-6"),
        recorded!("synthetic", 1.0, "synthetic-8"),
        recorded!("synthetic", 0.5, "half-1"),
        recorded!("synthetic", 0.5, "half-2"),
        recorded!("synthetic", 0.5, "half-4"),
        recorded!("digits", 1.0, "digits-1"),
        recorded!("digits", 1.0, "digits-2"),
        recorded!("digits", 1.0, "digits-4"),
        recorded!("convnet", 1.0, "convnet-1"),
        recorded!("convnet", 1.0, "convnet-2"),
    ]
}

fn recorded(kind: &'static str, speed: f64, text: &str) -> Recorded {
    let mut calm = Calm::default();
    let steps = text.lines().map(|line| serde_json::from_str(line).expect("a line of ours"));
    let steps: Vec<StepRecord> =
        steps.filter(|step: &StepRecord| calm.tells(step.workers, step.shadows)).collect();
    Recorded { kind, speed, workers: steps[0].workers, steps }
}

/// Bytes of gradients and samples of a step.
fn shape(kind: &str) -> (u64, u64) {
    match kind {
        "synthetic" => (1 << 20, 16),
        "digits" => (4 * 50_826, 64),
        _ => (4 * 27_686, 64),
    }
}

/// A belief learnt from these numbers of workers of a kind at a speed.
pub(crate) fn learnt(all: &[Recorded], kind: &str, speed: f64, workers: &[u32]) -> Observed {
    let speeds = [("fast".to_string(), 1.0), ("half".to_string(), 0.5)];
    let mut belief = Observed::new(speeds.into());
    let (bytes, batch) = shape(kind);
    belief.describe(kind, batch, 8, bytes, None);
    let chosen = |run: &&Recorded| run.kind == kind && run.speed == speed && workers.contains(&run.workers);
    for run in all.iter().filter(chosen) {
        belief.observe(kind, run.workers, speed, &run.steps);
    }
    belief
}

/// What a belief says of a recorded run, and the relative error of its throughput.
pub(crate) fn told(belief: &Observed, run: &Recorded) -> (Prediction, f64) {
    use bellwether_core::prediction::StepModel;
    let (_, batch) = shape(run.kind);
    let job = JobDescription { name: "job".into(), model: run.kind.into(), batch, devices: 1 };
    let device = if run.speed == 1.0 { "fast" } else { "half" };
    let devices = vec![DeviceGroup { node: 0, device: device.into(), count: run.workers }];
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
    let prediction =
        belief.predict(&job, &Configuration::synchronous(devices, batch, link)).expect("it speaks");
    let error = prediction.examples_per_s * measured_s(run) / batch as f64 - 1.0;
    (prediction, error)
}

/// Mean step of a recorded run.
pub(crate) fn measured_s(run: &Recorded) -> f64 {
    run.steps.iter().map(|step| step.duration_s).sum::<f64>() / run.steps.len() as f64
}
