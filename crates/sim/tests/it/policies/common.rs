//! What the tests of policies share: small clusters, small traces, and a run.

use std::sync::Arc;

use bellwether_core::cluster::{ClusterView, Job, Node};
use bellwether_core::policy::{Fault, Policy};
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, PredictError, Prediction, StepModel, Validity,
};
use bellwether_sched::drive::drive;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{JobRecord, Recording, Scenario, World};

/// Every device does as much as every other, and nothing is lost between them.
pub(crate) struct Linear;

impl StepModel for Linear {
    fn is_relative(&self) -> bool {
        true
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let linear = ByCount(|devices, asked| Some(f64::from(devices) / f64::from(asked)));
        linear.predict(job, configuration)
    }
}

/// Whatever the number of devices says: work per second as a function of it and of the devices asked for.
pub(crate) struct ByCount<F>(pub(crate) F);

impl<F: Fn(u32, u32) -> Option<f64>> StepModel for ByCount<F> {
    /// Work is what the entry says, whatever it calls it.
    fn is_relative(&self) -> bool {
        true
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let rate = (self.0)(configuration.workers(), job.devices)
            .ok_or_else(|| PredictError::DoesNotFit("it cannot run on this many".into()))?;
        Ok(Prediction {
            examples_per_s: rate,
            low: rate,
            high: rate,
            step_s: 1.0 / rate,
            bottleneck: Bottleneck::Compute,
            validity: Validity::Interpolated,
        })
    }
}

/// k devices are k^`exponent` times as fast as one; work is seconds on the devices asked for.
pub(crate) fn power(exponent: f64) -> ByCount<impl Fn(u32, u32) -> Option<f64>> {
    ByCount(move |devices, asked| Some((f64::from(devices) / f64::from(asked)).powf(exponent)))
}

/// `nodes` nodes with `devices` devices of one type each.
pub(crate) fn cluster(nodes: u32, devices: u32) -> ClusterView {
    let node = Node { device_type: 0, devices, free: devices, up: true };
    ClusterView {
        device_types: vec!["gpu".into()],
        nodes: vec![node; nodes as usize],
        ..ClusterView::default()
    }
}

/// A job that takes `devices` devices for `seconds` seconds.
pub(crate) fn rigid(row: usize, arrival_s: f64, devices: u32, seconds: f64) -> Entry {
    let description = JobDescription { name: row.to_string(), model: String::new(), batch: 1, devices };
    let job = Job::rigid(description, arrival_s);
    Entry { job: Arc::new(job), work: seconds, is_duration: true, row }
}

/// A job that runs on 1 to `asked` devices, and for `seconds` seconds on all of them.
pub(crate) fn elastic(row: usize, arrival_s: f64, asked: u32, seconds: f64) -> Entry {
    let mut entry = rigid(row, arrival_s, asked, seconds);
    Arc::make_mut(&mut entry.job).min_devices = 1;
    entry
}

/// From arrival to end, by job, in seconds.
///
/// # Panics
///
/// When a job did not end.
pub(crate) fn completions_s(recording: &Recording) -> Vec<f64> {
    let one =
        |job: &JobRecord| job.end_s.expect("it ended") - job.job.as_ref().expect("it was there").arrival_s;
    recording.jobs.iter().map(one).collect()
}

/// Runs a trace to its end.
pub(crate) fn run(
    policy: &mut dyn Policy,
    entries: &[Entry],
    scenario: &Scenario,
    model: &dyn StepModel,
) -> Result<Recording, Fault> {
    let mut world = World::new(entries, model, scenario);
    drive(policy, &mut world, model)?;
    Ok(world.into_recording())
}
