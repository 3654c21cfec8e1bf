//! Which jobs could ever run, where, and how fast alone: asked once for each kind of job.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_core::cluster::{Allocation, ClusterView, Job, Way};
use bellwether_core::prediction::{PredictError, StepModel};

/// A kind of job: its batch and whether that may change, devices asked for, fewest and most, the types that it accepts,
/// and its ways.
type Kind = (u64, bool, u32, u32, u32, Vec<u16>, Vec<Way>);

/// A job that can run.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    /// Work per second on the devices that its author asked for (or as many as there are), of the type where that is
    /// most.
    pub(super) rate: f64,
    /// The most devices of one type that it could hold.
    pub(super) widest: u32,
    /// The types of device that remain where some that it accepts cannot run it: too little memory, as a rule, which
    /// its author knows. A policy that does not look at speeds would choose them.
    pub(super) only: Option<Vec<u16>>,
}

/// Why a job can never run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NeverRuns {
    /// It needs more devices of one type than there are: with a larger cluster it would run.
    TooWide {
        /// Devices that it needs.
        needed: u32,
        /// The most that there are of one type.
        widest: u32,
    },
    /// It would make no progress on any devices.
    NoProgress,
    /// The model has no answer for any devices.
    NoAnswer(PredictError),
}

impl fmt::Display for NeverRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NeverRuns::TooWide { needed, widest } => {
                write!(f, "it needs {needed} devices of one type, and there are {widest}")
            }
            NeverRuns::NoProgress => f.write_str("it has no valid configuration: it would make no progress"),
            NeverRuns::NoAnswer(why) => write!(f, "it has no valid configuration: {why}"),
        }
    }
}

/// Answers by model and kind of job.
#[derive(Debug, Default)]
pub(super) struct Admission(BTreeMap<String, BTreeMap<Kind, Result<Admitted, NeverRuns>>>);

impl Admission {
    /// How the job runs alone, or why it can never run.
    pub(super) fn of(
        &mut self,
        job: &Job,
        cluster: &ClusterView,
        truth: &dyn StepModel,
    ) -> Result<Admitted, NeverRuns> {
        let model = &job.description.model;
        if !self.0.contains_key(model) {
            self.0.insert(model.clone(), BTreeMap::new());
        }
        let kinds = self.0.get_mut(model).expect("it was added where it was missing");
        let types = job.device_types.clone();
        let (batch, ways) = (job.description.batch, job.ways.clone());
        let kind = (batch, job.adaptive_batch, job.asked(), job.min_devices, job.max_devices, types, ways);
        kinds.entry(kind).or_insert_with(|| admitted(job, cluster, truth)).clone()
    }
}

fn admitted(job: &Job, cluster: &ClusterView, truth: &dyn StepModel) -> Result<Admitted, NeverRuns> {
    let (mut widest, mut best, mut objection) = (0, None, None);
    let mut types = Vec::new();
    for kind in (0..cluster.device_types.len() as u16).filter(|&kind| job.accepts(kind)) {
        let devices = cluster.devices(Some(kind));
        widest = widest.max(devices);
        if devices < job.min_devices {
            continue;
        }
        let wanted = job.asked().clamp(job.min_devices, job.max_devices).min(devices);
        let allocation =
            Allocation::filling(cluster.nodes_of(kind), wanted).expect("no more are wanted than there are");
        let configuration = cluster.configuration(job, &allocation, None);
        let answer = if job.adaptive_batch {
            truth.best_batch(&job.description, &configuration, 0.0).map(|progress| progress.goodput())
        } else if let Some((_, prediction)) = cluster.fastest_way(truth, job, &allocation, None) {
            Ok(prediction.examples_per_s)
        } else {
            truth.predict(&job.description, &configuration).map(|prediction| prediction.examples_per_s)
        };
        match answer {
            Ok(rate) if rate > 0.0 => {
                best = best.max(Some(ordered(rate)));
                types.push(kind);
            }
            Ok(_) => objection = Some(NeverRuns::NoProgress),
            Err(why) => objection = Some(NeverRuns::NoAnswer(why)),
        }
    }
    let too_wide = NeverRuns::TooWide { needed: job.min_devices, widest };
    let refusal = || objection.clone().unwrap_or(too_wide);
    let rate = best.map(f64::from_bits).ok_or_else(refusal)?;
    let widest =
        types.iter().map(|&kind| cluster.devices(Some(kind))).max().unwrap_or(widest).min(job.max_devices);
    let only = objection.is_some().then_some(types);
    Ok(Admitted { rate, widest, only })
}

/// Positive numbers order as their bits do.
fn ordered(rate: f64) -> u64 {
    rate.to_bits()
}
