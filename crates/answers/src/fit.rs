//! From measurements to fitted models: the arrow *calibrate*, by hand.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use bellwether_core::fitted::{FITTED_VERSION, FittedFile, FittedKind, FittedModel, Measurement};
use bellwether_core::job::WorkerRange;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, Protocol};
use bellwether_core::{InputError, ParseError};
use bellwether_model::calibrate::kinds::{padded_batch, predict_kind};
use bellwether_model::calibrate::{self, Noise, all_reduce, asynchronous};
use bellwether_model::collective::Algorithm;
use bellwether_model::elastic;
use bellwether_model::predict::{ANSWERS_MAX, Answer, DeviceSpec, mark};
use bellwether_model::scaling::Scaling;

use crate::predict::Request;

mod devices;
mod sources;
mod table;

pub use sources::{
    Measured, Sources, add, add_profile, add_run, add_table, find_run, rates_of_kind, rates_of_run,
};
pub use table::{Row, read_rows};

/// Measurements from which on each is predicted by the others.
const HELD_OUT_MIN: usize = 4;

/// Equal workers, each on a node of its own, that all wait for all.
fn on(workers: u32, batch: u64) -> Configuration {
    on_nodes((0..workers).map(|_| 1), batch)
}

/// Equal workers that all wait for all, as many on each node as it says.
fn on_nodes(counts: impl Iterator<Item = u32>, batch: u64) -> Configuration {
    let group = |(node, count)| DeviceGroup { node, device: "measured".into(), count };
    Configuration::synchronous((0..).zip(counts).map(group).collect(), batch, Link::UNLIMITED)
}

/// What is fitted to synchronous measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Law {
    /// Where a source says on how many nodes workers were, whichever of the others predicts left-out measurements best;
    /// else all-reduce.
    #[default]
    Auto,
    /// Computing per sample, an exchange per byte and hop: [`all_reduce`].
    AllReduce,
    /// The mean of several laws of replicas and nodes: [`bellwether_model::scaling`].
    Scaling,
    /// The goodput model's step time: [`bellwether_model::elastic`].
    Goodput,
}

impl FromStr for Law {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Law, ParseError> {
        match text {
            "auto" => Ok(Law::Auto),
            "all-reduce" => Ok(Law::AllReduce),
            "scaling" => Ok(Law::Scaling),
            "goodput" => Ok(Law::Goodput),
            _ => Err(ParseError::one_of("law", text, ["auto", "all-reduce", "scaling", "goodput"])),
        }
    }
}

/// Fits a model to each kind; `bytes` is what workers exchange in a step, where the sources do not say it.
///
/// # Errors
///
/// Kinds that mix both ways of training, and what the fits refuse: too few measurements, or none with several workers.
pub fn fit(sources: &Sources, bytes: Option<u64>, law: Law) -> Result<FittedFile, InputError> {
    let kinds = sources.iter().map(|(name, measured)| {
        let placed = |error: InputError| InputError { place: format!("kind `{name}`"), ..error };
        fit_kind(name, measured, bytes, law).map_err(placed)
    });
    let kinds = kinds.collect::<Result<Vec<FittedKind>, InputError>>()?;
    if kinds.is_empty() {
        return Err(
            InputError::new("fit", "there is no measurement").hint("name a table, a run or a profile")
        );
    }
    Ok(FittedFile { version: FITTED_VERSION, kinds })
}

fn fit_kind(name: &str, measured: &Measured, bytes: Option<u64>, law: Law) -> Result<FittedKind, InputError> {
    let Measured { measurements, bytes: known, virtual_nodes } = measured;
    let is_plain = |one: &Measurement| one.configuration.protocol == Protocol::Bsp;
    let synchronous = measurements.iter().all(is_plain);
    if !synchronous && measurements.iter().any(is_plain) {
        let what = "it was measured both where workers wait for each other and where they do not";
        return Err(InputError::new(name, what).hint("fit the two apart: give them different kinds"));
    }
    if law != Law::Auto && !synchronous {
        let what = "of workers that do not wait for each other only the queueing model is known";
        return Err(InputError::new(name, what).hint("leave --law out"));
    }
    let bytes = known.or(bytes).unwrap_or(0);
    let per_node = measurements.iter().map(|one| {
        let Configuration { devices, .. } = &one.configuration;
        devices.iter().map(|group| group.count).max().unwrap_or(1)
    });
    let per_node = per_node.max().unwrap_or(1).max(1);
    let measurements = &padded(measurements, virtual_nodes.filter(|_| synchronous))?;
    let law = match law {
        // Of measurements that say nothing of nodes, all-reduce is the law.
        Law::Auto if synchronous && per_node > 1 => best_law(measurements, bytes),
        law => law,
    };
    let with = |measurements: &[Measurement]| match synchronous {
        true => fit_synchronous(measurements, bytes, law),
        false => asynchronous::fit(measurements, &asynchronous::Prior::default()),
    };
    let model = with(measurements)?;
    let first = &measured.measurements[0].configuration;
    let each = if synchronous { 1 } else { u64::from(first.workers().max(1)) };
    Ok(FittedKind {
        name: name.into(),
        batch: (first.batch / each).max(1),
        servers: first.servers,
        per_node,
        virtual_nodes: virtual_nodes.filter(|_| synchronous),
        measurements: measurements.len() as u32,
        held_out_error: held_out_error(measurements, &with),
        model,
    })
}

/// The measurements with as many samples as if every worker had the virtual nodes of the one that has most.
fn padded(measurements: &[Measurement], virtual_nodes: Option<u32>) -> Result<Vec<Measurement>, InputError> {
    let one = |measurement: &Measurement| {
        let Measurement { configuration, .. } = measurement;
        let batch = padded_batch(configuration.batch, virtual_nodes, configuration.workers())?;
        let configuration = Configuration { batch, ..configuration.clone() };
        Ok(Measurement { configuration, ..measurement.clone() })
    };
    measurements.iter().map(one).collect()
}

/// The law that predicts left-out measurements best, of those that can be fitted to them without one.
fn best_law(measurements: &[Measurement], bytes: u64) -> Law {
    let error = |law: Law| {
        let with = |measurements: &[Measurement]| fit_synchronous(measurements, bytes, law);
        held_out_error(measurements, &with).map(|error| (law, error))
    };
    let errors = [Law::Scaling, Law::AllReduce, Law::Goodput].into_iter().filter_map(error);
    errors.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(Law::Scaling, |(law, _)| law)
}

fn fit_synchronous(measurements: &[Measurement], bytes: u64, law: Law) -> Result<FittedModel, InputError> {
    let rows = || calibrate::rows(measurements);
    match law {
        Law::Scaling => Scaling::fit(&rows()).map(|scaling| scaling.to_fitted()),
        Law::Goodput => elastic::fit(&rows()).map(|fit| fit.to_fitted(&rows())),
        Law::AllReduce | Law::Auto => fit_all_reduce(measurements, bytes),
    }
}

/// The way to sum that the measurements fit best. Where they are too few to tell bytes from messages, an exchange takes
/// a time for each hop only.
fn fit_all_reduce(measurements: &[Measurement], bytes: u64) -> Result<FittedModel, InputError> {
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
    /// The workers' devices, each with how many there are; empty: those that were measured.
    pub devices: Vec<DeviceSpec>,
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
        ];
        if let Some((flag, _)) = of_profiles.iter().find(|(_, given)| *given) {
            let what = "fitted models speak of what was measured, and of other numbers of workers";
            return Err(InputError::new(*flag, what).hint("leave it out, or predict from a profile"));
        }
        let Request { workers, servers, batch, .. } = *request;
        let devices = request.devices.clone();
        if workers.is_some() && !devices.is_empty() {
            let what = "the devices say how many workers there are";
            return Err(InputError::new("--workers", what).hint("leave it out"));
        }
        Ok(Question { file, place, kind, workers, servers, batch, devices })
    }

    /// The kind that is asked about.
    ///
    /// # Errors
    ///
    /// A file that holds no such kind, or several of which none is named.
    pub fn kind(&self) -> Result<&FittedKind, InputError> {
        if let Some(first) = self.devices.first() {
            return self.kind_on(first);
        }
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
        let most = kind.virtual_nodes.unwrap_or(u32::MAX);
        let range = self
            .workers
            .unwrap_or(WorkerRange { min: 1, max: measured.1.saturating_mul(4).min(ANSWERS_MAX).min(most) });
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
        if !self.devices.is_empty() {
            return self.together();
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
        let per_node = kind.per_node.max(1);
        let counts = (0..workers.div_ceil(per_node)).map(|node| per_node.min(workers - node * per_node));
        let asked =
            Configuration { servers: self.servers.unwrap_or(0), ..on_nodes(counts, self.batch.unwrap_or(1)) };
        let prediction = predict_kind(kind, &asked)?;
        Ok(Answer::of(workers, prediction, "fitted"))
    }
}
