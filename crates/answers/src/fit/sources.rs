//! What measurements are read from: tables, profiles and runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::fitted::{FittedKind, Measurement};
use bellwether_core::job::Job;
use bellwether_core::prediction::{
    Configuration, JobDescription, Prediction, ProfiledRate, Protocol, StepModel,
};
use bellwether_core::record::StepRecord;
use bellwether_model::calibrate::kinds::predict_kind;
use bellwether_model::collective::Algorithm;
use bellwether_model::observed::{Calm, Observed, STEPS_MIN};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::{RunDir, RunDirError, StateDir};
use bellwether_session::kind;

use super::table::read_rows;
use super::{mean, on};
use crate::Refusal;
use crate::predict::read_profile;

/// The measurements of one kind of job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Bytes that workers exchange in every step, where they are known.
    pub bytes: Option<u64>,
    /// Virtual nodes that share a step's samples, where they are known.
    pub virtual_nodes: Option<u32>,
    /// What was measured, of synchronous training or of asynchronous.
    pub measurements: Vec<Measurement>,
}

/// What a source of measurements holds, by kind of job.
pub type Sources = BTreeMap<String, Measured>;

/// Adds what a source holds: a table (`.csv`), a profile (`.json`), or a run by its folder or by its name in the state
/// directory.
///
/// # Errors
///
/// A source that cannot be read or holds something else.
pub fn add(sources: &mut Sources, source: &Path, state_dir: Option<&Path>) -> Result<(), Refusal> {
    let ends_with =
        |word: &str| source.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(word));
    if ends_with("csv") {
        add_table(sources, source)?;
    } else if ends_with("json") {
        add_profile(sources, source)?;
    } else {
        add_run(sources, &find_run(source, state_dir)?)?;
    }
    Ok(())
}

/// A run by its folder, or by its name in the state directory.
///
/// # Errors
///
/// Where there is none.
pub fn find_run(source: &Path, state_dir: Option<&Path>) -> Result<RunDir, RunDirError> {
    match RunDir::open(source) {
        Some(run) => Ok(run),
        None => StateDir::find(state_dir.map(Path::to_path_buf))?.run(&source.to_string_lossy()),
    }
}

/// What a kind of job on one type of device is called.
pub(super) fn on_device(kind: &str, device: &str) -> String {
    format!("{kind} on {device}")
}

/// Adds the rows of a table (CSV), which are of the kind `stem` where they do not say another.
///
/// # Errors
///
/// A file that cannot be read, or does not hold measurements.
pub fn add_table(sources: &mut Sources, path: &Path) -> Result<(), InputError> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| InputError::new(&place, format!("the measurements cannot be read: {error}")))?;
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    for row in read_rows(&text, &place)? {
        let kind = row.kind.clone().unwrap_or_else(|| stem.clone());
        // Each type of device has a model of its own; several together are predicted from these.
        let kind = row.device.as_ref().map_or(kind.clone(), |device| on_device(&kind, device));
        let kind = sources.entry(kind).or_default();
        kind.bytes = row.bytes.or(kind.bytes);
        kind.virtual_nodes = row.virtual_nodes.or(kind.virtual_nodes);
        kind.measurements.push(row.measurement());
    }
    Ok(())
}

/// Adds the mean step of a profile: one worker, synchronous.
///
/// # Errors
///
/// A file that cannot be read, or holds no profile.
pub fn add_profile(sources: &mut Sources, path: &Path) -> Result<(), InputError> {
    let profile = read_profile(path)?;
    let kind = sources.entry(profile.job.clone()).or_default();
    kind.bytes = Some(profile.upload_bytes());
    kind.virtual_nodes = Some(profile.virtual_nodes).filter(|nodes| *nodes > 1);
    let step_s = mean(&profile.steps.iter().map(|step| step.step_s).collect::<Vec<_>>());
    let configuration = on(1, profile.batch);
    kind.measurements.push(Measurement { configuration, step_s, exchange_s: None });
    Ok(())
}

/// Adds the calm steps of a run, a measurement for each number of workers that trained long enough.
///
/// # Errors
///
/// A run whose job cannot be read, or that never trained calmly for long enough.
pub fn add_run(sources: &mut Sources, run: &RunDir) -> Result<(), InputError> {
    let job = run.job().map_err(|error| InputError::new(&run.name, error.to_string()))?;
    let CalmSteps { by_workers, bytes } = calm_steps(run)?;
    let kind = sources.entry(job.name.clone()).or_default();
    if !bytes.is_empty() {
        kind.bytes = Some(mean(&bytes).round() as u64);
    }
    kind.virtual_nodes = Some(job.batch.virtual_nodes);
    kind.measurements.extend(by_workers.iter().map(|(workers, steps)| of_steps(&job, *workers, steps)));
    Ok(())
}

/// What the calm steps of a run say of `job` on each number of its workers, on devices as fast as the run's.
///
/// # Errors
///
/// A run of another kind of job, or one that never trained calmly for long enough.
pub fn rates_of_run(run: &RunDir, job: &Job) -> Result<Vec<ProfiledRate>, InputError> {
    let trained = run.job().map_err(|error| InputError::new(&run.name, error.to_string()))?;
    let kind = kind::of(job);
    if kind::of(&trained) != kind {
        return Err(kind::of_another_job(&run.name, &trained.name));
    }
    let CalmSteps { by_workers, bytes } = calm_steps(run)?;
    let bytes = if bytes.is_empty() { 0 } else { mean(&bytes).round() as u64 };
    let mut observed = Observed::default();
    observed.describe(&kind, job.batch.size, job.batch.virtual_nodes, bytes, None);
    by_workers.iter().for_each(|(workers, steps)| observed.observe(&kind, *workers, 1.0, steps));
    let description =
        JobDescription { name: job.name.clone(), model: kind, batch: job.batch.size, devices: 1 };
    rates(job, &|workers| {
        let predicted = observed.predict(&description, &on(workers, job.batch.size));
        predicted.map_err(|error| InputError::new(&run.name, error.to_string()))
    })
}

/// What a fitted kind says of `job` on each number of its workers.
///
/// # Errors
///
/// A kind of another batch, and what the model refuses.
pub fn rates_of_kind(kind: &FittedKind, job: &Job) -> Result<Vec<ProfiledRate>, InputError> {
    let each = u64::from(kind.servers > 0) * u64::from(job.batch.virtual_nodes);
    let batch = kind.batch * each.max(1);
    if batch != job.batch.size {
        let what =
            format!("it was measured with {batch} samples in a step, and this job has {}", job.batch.size);
        return Err(InputError::new(&kind.name, what).hint("fit measurements of this job"));
    }
    rates(job, &|workers| predict_kind(kind, &on(workers, batch)))
}

fn rates(
    job: &Job,
    predict: &dyn Fn(u32) -> Result<Prediction, InputError>,
) -> Result<Vec<ProfiledRate>, InputError> {
    let rate = |workers| {
        let Prediction { examples_per_s, low, high, bottleneck, .. } = predict(workers)?;
        Ok(ProfiledRate { workers, speed: 1.0, examples_per_s, low, high, bottleneck })
    };
    (1..=job.batch.virtual_nodes).map(rate).collect()
}

/// The calm steps of a run by numbers of workers, and what their exchanges say of the bytes of the vector.
struct CalmSteps {
    by_workers: BTreeMap<u32, Vec<StepRecord>>,
    bytes: Vec<f64>,
}

fn calm_steps(run: &RunDir) -> Result<CalmSteps, InputError> {
    let mut calm = Calm::default();
    let mut by_workers: BTreeMap<u32, Vec<StepRecord>> = BTreeMap::new();
    let mut bytes = Vec::new();
    for step in metrics::read(&run.path) {
        bytes.extend(exchanged(&step));
        if calm.tells(step.workers, step.shadows) && step.steps() == 1 && step.duration_s > 0.0 {
            by_workers.entry(step.workers).or_default().push(step);
        }
    }
    by_workers.retain(|workers, steps| *workers > 0 && steps.len() >= STEPS_MIN);
    if by_workers.is_empty() {
        let what = "no number of workers trained for long enough without a change";
        return Err(InputError::new(&run.name, what).hint("train it for some hundred steps"));
    }
    Ok(CalmSteps { by_workers, bytes })
}

/// Bytes of the vector that a synchronous step exchanged, by what its workers sent.
fn exchanged(step: &StepRecord) -> Option<f64> {
    let sent: u64 = step.traffic.iter().map(|peer| peer.sent_bytes).sum();
    let passed = Algorithm::Direct.link_bytes_per_byte(step.workers);
    // One worker tells of its own part.
    (sent > 0 && step.workers > 1 && step.unit_count == 0).then(|| sent as f64 / passed)
}

fn of_steps(job: &Job, workers: u32, steps: &[StepRecord]) -> Measurement {
    let mean_of = |of: &dyn Fn(&StepRecord) -> f64| mean(&steps.iter().map(of).collect::<Vec<_>>());
    let duration_s = mean_of(&|step| step.duration_s);
    let units = mean_of(&|step| f64::from(step.unit_count));
    if units > 0.0 {
        // A worker's own step is a unit.
        let samples = (job.batch.size as f64 / units * f64::from(workers)).round() as u64;
        let configuration = Configuration {
            protocol: Protocol::Asp,
            servers: job.sync.servers.max(1),
            ..on(workers, samples.max(u64::from(workers)))
        };
        return Measurement {
            configuration,
            step_s: duration_s * f64::from(workers) / units,
            exchange_s: None,
        };
    }
    let exchange_s = Some(mean_of(&|step| step.exchange_s)).filter(|seconds| *seconds > 0.0 && workers > 1);
    Measurement { configuration: on(workers, job.batch.size), step_s: duration_s, exchange_s }
}
