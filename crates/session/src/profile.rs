//! Measures a job for a moment and makes its profile: the first stage of the road.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::Profile;
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::workload::Workload;

use crate::error::RunError;
use crate::pressure::Pressure;
use crate::{Observe, Spawn, WorkloadBuilder, kind};

mod asynchronous;
mod batches;
mod build;
mod by_parts;
mod setup;
pub(crate) mod synchronous;
mod trace;

pub use batches::BATCHES_MAX;
pub use build::median;
pub use trace::trace;

/// How a job is measured.
#[derive(Debug, Clone)]
pub struct How {
    /// Steps to measure with each number of workers, after those to warm up.
    pub steps: u64,
    /// Address at which a peer on another machine reaches this one; loopback unless it is named.
    pub listen: Option<SocketAddr>,
    /// The second worker is started by hand; of asynchronous training both the worker and the server are.
    pub peer_by_hand: bool,
    /// How the others are started.
    pub spawn: Spawn,
    /// File with the weights that training begins from, as of
    /// [`Session::initial_weights`](crate::Session::initial_weights).
    pub initial_weights: Option<PathBuf>,
    /// Batches to measure beside the job's own, on one worker, in samples of a step; usually none.
    pub batches: Vec<u64>,
    /// Folder in which the measured run lies meanwhile, which workers on other machines must see too; among the
    /// system's temporary ones if absent.
    pub folder: Option<PathBuf>,
    /// The run whose job is measured, by workers where its own would be.
    pub of_run: Option<RunDir>,
}

impl How {
    /// Steps measured like this, by workers that are started like that, with nothing else out of the ordinary.
    pub fn new(steps: u64, spawn: Spawn) -> How {
        How {
            steps,
            listen: None,
            peer_by_hand: false,
            spawn,
            initial_weights: None,
            batches: Vec::new(),
            folder: None,
            of_run: None,
        }
    }
}

/// Measures what the job does first, in a folder that vanishes afterwards: that is what its profile says.
/// `build` makes what is trained.
///
/// # Errors
///
/// Returns what keeps it from being trained.
pub fn measure(
    job: &CheckedJob,
    build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    how: &How,
    observe: &mut Observe<'_>,
) -> Result<Profile, RunError> {
    let workload = WorkloadBuilder::new(build).with_initial_weights(how.initial_weights.clone());
    let description = WorkloadDescription::of(workload.build(job)?.as_ref());
    let trained = (&description, &workload);
    let asynchronous = match job.sync.policy.phases(job.total_steps(description.training_samples)).first() {
        Some((_, protocol)) => matches!(protocol, Protocol::Asp | Protocol::Ssp(_)),
        None => false,
    };
    if !how.batches.is_empty() {
        if asynchronous {
            let what = "what a batch takes is measured where all workers wait for all, and this job begins otherwise";
            return Err(InputError::new("--batches", what)
                .hint("say --set sync.policy=bsp, or leave it out")
                .into());
        }
        batches::check(job, &how.batches)?;
    }
    let pressure = Pressure::begin();
    let mut profile = match asynchronous {
        true => asynchronous::measure(job, trained, how, observe)?,
        false => synchronous::measure(job, trained, how, observe)?,
    };
    if !how.batches.is_empty() {
        profile.batches = batches::measure(job, (&workload, description.training_samples), how, observe)?;
    }
    // Two workers are measured at most.
    let processor_wait = pressure.and_then(|pressure| pressure.share(2));
    Ok(Profile { computation: Some(kind::computation(job)), processor_wait, ..profile })
}
