//! What an architecture would take on the user's device, predicted from a few that are measured.
//!
//! # Model
//!
//! ```text
//! t = b0 + Σ_o b_o n_o        step time; the same form for the memory of a worker at its peak
//! price = t · steps · workers · dollars per hour / 3600
//! ```
//!
//! | symbol | meaning                                                                                  | unit |
//! |--------|------------------------------------------------------------------------------------------|------|
//! | n_o    | edges that hold operation o and decide the output; o is one of the four that compute     | 1    |
//! | b      | coefficients, by least squares of the residuals or of the relative ones, of all or the   | s, B |
//! |        | dearest operations, whichever predicts left-out architectures best                       |      |
//!
//! # Source
//!
//! [`bellwether_model::regression`] and [`bellwether_model::predict`].
//!
//! # Assumes
//!
//! What an operation takes does not depend on where in the cell it is, so that all cells of a network count alike. A
//! step of several workers is what the profile of one says, without a network between them.
//!
//! # Checked by
//!
//! The tests of [`crate::nas`] on times that follow the form; each search reports its error on left-out
//! architectures.

use std::fmt;

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CellOperation, CheckedJob, Job, Model, architecture_text, live_edges};
use bellwether_core::nas::{DeviceOptions, Limits};
use bellwether_core::prediction::{Link, StepModel};
use bellwether_core::units::{Bytes, Dollars, Seconds};
use bellwether_model::predict::ProfileModel;
use bellwether_model::regression::{Candidate, Chosen, Method, Sample, Scale, choose};
use bellwether_runtime::workload::Workload;
use bellwether_sched::evolution::{Method as Draw, Search};
use serde::{Deserialize, Serialize};

use super::{Architecture, NasError};
use crate::profile::{How, measure};
use crate::{RunError, Spawn};

/// The operations that take time: the features.
const COMPUTING: [CellOperation; 4] =
    [CellOperation::Skip, CellOperation::Conv1x1, CellOperation::Conv3x3, CellOperation::AvgPool3x3];

/// How often an interval holds what is measured.
const LEVEL: f64 = 0.8;

/// An architecture that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// One operation for each edge.
    pub architecture: Architecture,
    /// Seconds of a training step.
    pub step_s: f64,
    /// Bytes of resident memory of a worker at its peak, where the system tells.
    pub peak_bytes: Option<f64>,
}

/// What an architecture is predicted to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Seconds of a training step.
    pub step_s: f64,
    /// Interval of that, at the level of [`Predictor::level`].
    pub step_interval_s: (f64, f64),
    /// Bytes of resident memory of a worker at its peak.
    pub memory_bytes: Option<f64>,
    /// Dollars of training it to the end of the job.
    pub dollars: Option<f64>,
}

/// Predicts architectures from those that were measured.
#[derive(Debug, Clone)]
pub struct Predictor {
    step_s: Chosen,
    memory_bytes: Option<Chosen>,
    /// Dollars of a second of a step.
    dollars_per_step_s: Option<f64>,
    /// What it was fitted to.
    pub measured: Vec<Measured>,
}

/// How often each computing operation decides the output.
pub fn features(architecture: &[CellOperation]) -> Vec<f64> {
    let live = live_edges(architecture);
    let count = |operation: &CellOperation| {
        architecture.iter().zip(&live).filter(|(own, live)| **live && *own == operation).count() as f64
    };
    COMPUTING.iter().map(count).collect()
}

/// Lines through all operations that occur in several numbers, and through fewer: where few architectures are
/// measured, the numbers of some may depend on those of others.
fn candidates(samples: &[Sample]) -> Vec<Candidate> {
    let varies =
        |column: &usize| samples.iter().any(|one| one.features[*column] != samples[0].features[*column]);
    // Convolutions of 3×3 take most.
    let mut columns: Vec<usize> = [2, 1, 3, 0].into_iter().filter(varies).collect();
    let mut candidates = Vec::new();
    while !columns.is_empty() {
        let plain = Candidate::least_squares("operations", &columns, Scale::Plain);
        let name = "operations, relative errors".into();
        candidates.extend([plain.clone(), Candidate { method: Method::RelativeLeastSquares, name, ..plain }]);
        columns.pop();
    }
    candidates
}

impl Predictor {
    /// Fits to what was measured. `steps` is the length of the job, for prices.
    ///
    /// # Errors
    ///
    /// Returns an error if too few were measured.
    pub fn fit(
        measured: Vec<Measured>,
        device: &DeviceOptions,
        workers: u32,
        steps: u64,
    ) -> Result<Predictor, InputError> {
        let sample = |measured: &Measured, target: f64| Sample {
            group: architecture_text(&measured.architecture),
            features: features(&measured.architecture),
            target,
        };
        let times: Vec<Sample> = measured.iter().map(|one| sample(one, one.step_s / device.speed)).collect();
        let memory: Option<Vec<Sample>> =
            measured.iter().map(|one| Some(sample(one, one.peak_bytes?))).collect();
        let few = |error: InputError| InputError { place: "device.measured".into(), ..error };
        Ok(Predictor {
            step_s: choose(&times, &candidates(&times)).map_err(few)?,
            memory_bytes: memory
                .map(|memory| choose(&memory, &candidates(&memory)))
                .transpose()
                .map_err(few)?,
            dollars_per_step_s: device
                .price
                .map(|price| price.get() / 3600.0 * f64::from(workers) * steps as f64),
            measured,
        })
    }

    /// What this architecture is predicted to take.
    pub fn costs(&self, architecture: &[CellOperation]) -> Costs {
        let features = features(architecture);
        // Every feature is there, and nothing is a logarithm.
        let (step_s, low, high) =
            self.step_s.interval(&features, LEVEL).unwrap_or((f64::INFINITY, 0.0, f64::INFINITY));
        let step_s = step_s.max(0.0);
        Costs {
            step_s,
            step_interval_s: (low.max(0.0), high.max(0.0)),
            memory_bytes: self.memory_bytes.as_ref().and_then(|law| law.predict(&features).ok()),
            dollars: self.dollars_per_step_s.map(|dollars| dollars * step_s),
        }
    }

    /// Mean absolute relative error of the step time, and of the memory, of architectures that were left out.
    pub fn left_out_errors(&self) -> (f64, Option<f64>) {
        let memory = self.memory_bytes.as_ref().map(|law| law.left_out_error);
        (self.step_s.left_out_error, memory)
    }

    /// How often the intervals hold what would be measured.
    pub fn level(&self) -> f64 {
        LEVEL
    }
}

impl Costs {
    /// The largest ratio of what is predicted to its limit: at most 1 within the limits. What is not known exceeds.
    pub fn excess(&self, limits: &Limits) -> f64 {
        let ratio = |value: Option<f64>, limit: Option<f64>| match (value, limit) {
            (_, None) => 0.0,
            (None, Some(_)) => f64::INFINITY,
            (Some(value), Some(limit)) if value <= limit => 1.0,
            (Some(value), Some(limit)) => value / limit,
        };
        let memory = ratio(self.memory_bytes, limits.memory.map(|limit| limit.0 as f64));
        let price = ratio(self.dollars, limits.price.map(|limit| limit.get()));
        ratio(Some(self.step_s), limits.step_time.map(|limit| limit.get())).max(memory).max(price)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} a step", Seconds::new(self.step_s.min(1e9)))?;
        if let Some(bytes) = self.memory_bytes {
            write!(f, ", {} of memory", Bytes(bytes.max(0.0) as u64))?;
        }
        match self.dollars.filter(|dollars| dollars.is_finite()) {
            Some(dollars) => write!(f, ", {}", Dollars::new(dollars)),
            None => Ok(()),
        }
    }
}

/// Architectures to measure: each operation on all edges, and then some at random; all different.
pub fn to_measure(cell: &Cell, count: usize, seed: u64) -> Vec<Architecture> {
    let edges = cell.edges();
    let mut chosen: Vec<Architecture> = Vec::new();
    let mut add = |architecture: Architecture| {
        if !chosen.contains(&architecture) {
            chosen.push(architecture);
        }
        chosen.len() < count
    };
    let uniform = |operation: &CellOperation| -> Architecture {
        edges.iter().map(|edge| if edge.contains(operation) { *operation } else { edge[0] }).collect()
    };
    let mut random = Search::new(Draw::Random, edges.iter().map(Vec::len).collect(), seed);
    let mut more = COMPUTING.iter().map(uniform).all(&mut add);
    // A small space may have fewer.
    for _ in 0..100 * count {
        if !more {
            break;
        }
        more = add(random.draw().iter().zip(&edges).map(|(choice, edge)| edge[*choice]).collect());
    }
    chosen.truncate(count);
    chosen
}

/// Measures one architecture of a supernet's job, with this number of workers, by a short run of its own.
///
/// # Errors
///
/// Returns what keeps it from being trained.
pub fn measure_one(
    job: &CheckedJob,
    architecture: &[CellOperation],
    (workers, steps): (u32, u64),
    spawn: &Spawn,
    build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
) -> Result<Measured, NasError> {
    let job = with_architecture(job, architecture)?;
    let profile = measure(&job, build, &How::new(steps, spawn.clone()), &mut |_| {})?;
    let peak_bytes = profile.peak_resident_bytes.map(|bytes| bytes as f64);
    // Threads share the memory of this process, which says nothing of a worker.
    let peak_bytes = peak_bytes.filter(|_| !matches!(spawn, Spawn::Threads));
    let model = ProfileModel::new(profile)?;
    let configuration = model.configuration(workers, Link::UNLIMITED);
    let predicted = model.predict(&model.job(), &configuration);
    let step_s =
        predicted.map_err(|error| RunError::Input(InputError::new("device", error.to_string())))?.step_s;
    Ok(Measured { architecture: architecture.to_vec(), step_s, peak_bytes })
}

/// The job with one operation on each edge: what trains an architecture from scratch.
///
/// # Errors
///
/// Returns an error if the model has no such edges.
pub fn with_architecture(job: &CheckedJob, architecture: &[CellOperation]) -> Result<CheckedJob, InputError> {
    job.clone().edit(|job| {
        if let Model::Cell(cell) = &mut job.model {
            *cell = cell.with_architecture(architecture);
        }
    })
}
