//! Predicts from a profile how fast a job would be elsewhere: `cargo run --release -p bellwether --example predict`.
//!
//! A profile says what one worker does in a step and how long it takes; `bellwether profile JOB.toml -o FILE` and
//! `bellwether::profile::measure` make one of a job, `bellwether import` one of a PyTorch trace.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bellwether::predict::{Link, Prediction, ProfileModel, StepModel};
use bellwether::profile::Profile;

/// ResNet-32 on a K80: 0.22 s per step of 128 samples.
const PROFILE: &str = include_str!("../../../examples/plan/resnet32-k80.json");

/// Throughput by the number of workers, over a link that was not measured.
pub(crate) fn predict() -> Result<Vec<(u32, Prediction)>, Box<dyn std::error::Error>> {
    let profile = Profile::read(PROFILE, "resnet32-k80.json")?;
    // A type of device on which the job was never profiled: all that is known of it is its relative speed.
    let model = ProfileModel::new(profile)?.with_device("v100", 3.17)?;
    let link = Link { bandwidth_bytes_per_s: 1e9 / 8.0, latency_s: 100e-6 };
    let mut predictions = Vec::new();
    for workers in [1, 2, 4, 8] {
        // Each worker on a host of its own, the profile's batch shared among them, all waiting for all.
        let mut configuration = model.configuration(workers, link);
        for group in &mut configuration.devices {
            group.device = "v100".into();
        }
        predictions.push((workers, model.predict(&model.job(), &configuration)?));
    }
    Ok(predictions)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (workers, prediction) in predict()? {
        // The interval holds the truth in 95 % of cases where the model was measured; `validity` says where it was
        // not.
        let Prediction { examples_per_s, low, high, bottleneck, .. } = prediction;
        println!(
            "{workers} workers: {examples_per_s:.0} samples/s ({low:.0} to {high:.0}), bound by {bottleneck:?}"
        );
    }
    Ok(())
}
