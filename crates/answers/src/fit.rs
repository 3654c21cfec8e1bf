//! From measurements to fitted models: the arrow *calibrate*, by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::fitted::{FITTED_VERSION, FittedFile, FittedKind, FittedModel, Measurement};
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::prediction::{
    Configuration, DeviceGroup, JobDescription, Link, Prediction, ProfiledRate, Protocol, StepModel,
};
use bellwether_core::record::StepRecord;
use bellwether_model::calibrate::{self, Noise, all_reduce, asynchronous, kinds::as_measured};
use bellwether_model::collective::Algorithm;
use bellwether_model::observed::{Calm, Observed, STEPS_MIN};
use bellwether_model::predict::{ANSWERS_MAX, Answer, mark};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_session::kind;

use crate::Refusal;
use crate::predict::{Request, read_profile};

mod table;

pub use table::{Row, read_rows};

/// Measurements from which on each is predicted by the others.
const HELD_OUT_MIN: usize = 4;

/// The measurements of one kind of job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Bytes that workers exchange in every step, where they are known.
    pub bytes: Option<u64>,
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
    } else if let Some(run) = RunDir::open(source) {
        add_run(sources, &run)?;
    } else {
        let run = StateDir::find(state_dir.map(Path::to_path_buf))?.run(&source.to_string_lossy())?;
        add_run(sources, &run)?;
    }
    Ok(())
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
        let kind = sources.entry(row.kind.clone().unwrap_or_else(|| stem.clone())).or_default();
        kind.bytes = row.bytes.or(kind.bytes);
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
    rates(job, &|workers| calibrate::predict(&kind.model, &as_measured(kind, &on(workers, batch))))
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

/// Equal workers, each on a node of its own, that all wait for all.
fn on(workers: u32, batch: u64) -> Configuration {
    let device = |node| DeviceGroup { node, device: "measured".into(), count: 1 };
    Configuration::synchronous((0..workers).map(device).collect(), batch, Link::UNLIMITED)
}

/// Fits a model to each kind; `bytes` is what workers exchange in a step, where the sources do not say it.
///
/// # Errors
///
/// Kinds that mix both ways of training, and what the fits refuse: too few measurements, or none with several workers.
pub fn fit(sources: &Sources, bytes: Option<u64>) -> Result<FittedFile, InputError> {
    let kinds = sources.iter().map(|(name, measured)| {
        let placed = |error: InputError| InputError { place: format!("kind `{name}`"), ..error };
        fit_kind(name, measured, bytes).map_err(placed)
    });
    let kinds = kinds.collect::<Result<Vec<FittedKind>, InputError>>()?;
    if kinds.is_empty() {
        return Err(
            InputError::new("fit", "there is no measurement").hint("name a table, a run or a profile")
        );
    }
    Ok(FittedFile { version: FITTED_VERSION, kinds })
}

fn fit_kind(name: &str, measured: &Measured, bytes: Option<u64>) -> Result<FittedKind, InputError> {
    let Measured { measurements, bytes: known } = measured;
    let is_plain = |one: &Measurement| one.configuration.protocol == Protocol::Bsp;
    let synchronous = measurements.iter().all(is_plain);
    if !synchronous && measurements.iter().any(is_plain) {
        let what = "it was measured both where workers wait for each other and where they do not";
        return Err(InputError::new(name, what).hint("fit the two apart: give them different kinds"));
    }
    let bytes = known.or(bytes).unwrap_or(0);
    let with = |measurements: &[Measurement]| match synchronous {
        true => fit_synchronous(measurements, bytes),
        false => asynchronous::fit(measurements, &asynchronous::Prior::default()),
    };
    let model = with(measurements)?;
    let first = &measurements[0].configuration;
    let each = if synchronous { 1 } else { u64::from(first.workers().max(1)) };
    Ok(FittedKind {
        name: name.into(),
        batch: (first.batch / each).max(1),
        servers: first.servers,
        measurements: measurements.len() as u32,
        held_out_error: held_out_error(measurements, &with),
        model,
    })
}

/// The way to sum that the measurements fit best. Where they are too few to tell bytes from messages, an exchange takes
/// a time for each hop only.
fn fit_synchronous(measurements: &[Measurement], bytes: u64) -> Result<FittedModel, InputError> {
    let best = |bytes: u64| {
        let fit = |algorithm| all_reduce::fit(measurements, bytes, algorithm, &Noise::default());
        let mut best = fit(Algorithm::ALL[0]);
        for other in Algorithm::ALL[1..].iter().filter_map(|algorithm| fit(*algorithm).ok()) {
            let residual = other.mean_absolute_residual();
            if best.as_ref().map_or(true, |best| residual < 0.999 * best.mean_absolute_residual()) {
                best = Ok(other);
            }
        }
        best
    };
    best(bytes).or_else(|why| if bytes > 0 { best(0) } else { Err(why) })
}

/// Mean absolute error of each measurement as the others predict it.
fn held_out_error(
    measurements: &[Measurement],
    with: &dyn Fn(&[Measurement]) -> Result<FittedModel, InputError>,
) -> Option<f64> {
    if measurements.len() < HELD_OUT_MIN {
        return None;
    }
    let errors = (0..measurements.len()).map(|left_out| {
        let mut others = measurements.to_vec();
        let one = others.remove(left_out);
        let predicted = calibrate::predict(&with(&others).ok()?, &one.configuration).ok()?;
        Some((predicted.step_s / one.step_s - 1.0).abs())
    });
    errors.collect::<Option<Vec<f64>>>().map(|errors| mean(&errors))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The fitted models in a file; `None` where it cannot be read or holds something else, as a profile.
///
/// # Errors
///
/// Fitted models of another version, or none.
pub fn read(path: &Path) -> Result<Option<FittedFile>, InputError> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let read = || FittedFile::read(&text, &path.display().to_string());
    FittedFile::is_one(&text).then(read).transpose()
}

/// What is asked of a fitted kind.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The models.
    pub file: FittedFile,
    /// Where they were read, for messages.
    pub place: &'a Path,
    /// The kind, where the file holds several.
    pub kind: Option<&'a str>,
    /// Numbers of workers; `None`: up to four times as many as were measured.
    pub workers: Option<WorkerRange>,
    /// Parameter servers; `None`: as measured.
    pub servers: Option<u32>,
    /// Samples per step of all workers; `None`: as measured.
    pub batch: Option<u64>,
}

impl<'a> Question<'a> {
    /// What a request asks of fitted models.
    ///
    /// # Errors
    ///
    /// What only a profile can answer.
    pub fn of(
        file: FittedFile,
        place: &'a Path,
        kind: Option<&'a str>,
        request: &Request,
    ) -> Result<Question<'a>, InputError> {
        let of_profiles = [
            ("--protocol", request.protocol != Protocol::Bsp),
            ("--steps", request.steps.is_some()),
            ("--reduce", request.reduce.is_some()),
            ("--nodes-per-update", request.nodes_per_update != 1),
            ("--bandwidth", request.bandwidth.is_some()),
            ("--latency", request.latency.is_some()),
            ("--device", !request.devices.is_empty()),
        ];
        if let Some((flag, _)) = of_profiles.iter().find(|(_, given)| *given) {
            let what = "fitted models speak of what was measured, and of other numbers of workers";
            return Err(InputError::new(*flag, what).hint("leave it out, or predict from a profile"));
        }
        let Request { workers, servers, batch, .. } = *request;
        Ok(Question { file, place, kind, workers, servers, batch })
    }

    /// The kind that is asked about.
    ///
    /// # Errors
    ///
    /// A file that holds no such kind, or several of which none is named.
    pub fn kind(&self) -> Result<&FittedKind, InputError> {
        let (place, file) = (self.place.display().to_string(), &self.file);
        let names: Vec<String> = file.kinds.iter().map(|kind| kind.name.clone()).collect();
        let wanted = match self.kind {
            Some(wanted) => wanted.to_string(),
            None if names.len() == 1 => names[0].clone(),
            None => {
                let what = format!("it holds {} kinds of job: {}", names.len(), names.join(", "));
                return Err(InputError::new(place, what).hint("say which with --kind NAME"));
            }
        };
        file.kinds.iter().find(|kind| kind.name == wanted).ok_or_else(|| {
            let what = format!("it holds no kind `{wanted}`");
            InputError::new(place, what).hint(format!("there is {}", names.join(", ")))
        })
    }

    /// The answer for each number of workers, with the knee marked.
    ///
    /// # Errors
    ///
    /// Those of [`kind`](Question::kind) and of the model; too many numbers of workers.
    pub fn answers(&self, kind: &FittedKind) -> Result<Vec<Answer>, InputError> {
        let measured = kind.model.workers;
        let range = self
            .workers
            .unwrap_or(WorkerRange { min: 1, max: measured.1.saturating_mul(4).min(ANSWERS_MAX) });
        if range.max - range.min >= ANSWERS_MAX {
            let what = format!("{range} asks for more than {ANSWERS_MAX} predictions");
            return Err(InputError::new("--workers", what).hint("ask for fewer numbers of workers at once"));
        }
        if self.batch.is_some() && kind.servers > 0 {
            let what = "the model of asynchronous training is of the batch that was measured";
            return Err(InputError::new("--batch", what).hint("measure that batch too, and fit it by itself"));
        }
        if self.servers.is_some_and(|servers| (servers == 0) != (kind.servers == 0)) {
            let what = format!("`{}` was measured with {} servers", kind.name, kind.servers);
            return Err(InputError::new("--servers", what).hint("leave it out, or measure with servers"));
        }
        let mut answers = Vec::new();
        for workers in range.min..=range.max {
            answers.push(self.answer(kind, workers)?);
        }
        let alone = self.answer(kind, 1)?.examples_per_s;
        mark(&mut answers, alone);
        Ok(answers)
    }

    fn answer(&self, kind: &FittedKind, workers: u32) -> Result<Answer, InputError> {
        let asked =
            Configuration { servers: self.servers.unwrap_or(0), ..on(workers, self.batch.unwrap_or(1)) };
        let prediction = calibrate::predict(&kind.model, &as_measured(kind, &asked))?;
        Ok(Answer::of(workers, prediction, "fitted"))
    }
}
