//! What a worker does before it can train: it makes the workload, and computes with it once.

use std::sync::Arc;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;

use super::engine::Engine;
use crate::membership::Activity;
use crate::progress::Progress;
use crate::workload::{Workload, WorkloadError};

/// Why a worker is not ready to train.
#[derive(Debug, thiserror::Error)]
pub(super) enum WarmError {
    /// The workload cannot be made from this job and its data.
    #[error(transparent)]
    Build(#[from] InputError),
    /// The workload cannot compute here.
    #[error(transparent)]
    Compute(#[from] WorkloadError),
}

impl From<WarmError> for WorkloadError {
    fn from(error: WarmError) -> WorkloadError {
        match error {
            WarmError::Build(error) => WorkloadError::new(error.to_string()),
            WarmError::Compute(error) => error,
        }
    }
}

/// Makes the workload, and computes with it once.
pub(super) fn warm(
    job: &Job,
    progress: &Arc<Progress>,
    build: impl FnOnce(&Job, &Stages<'_>) -> Result<Box<dyn Workload>, InputError>,
    engine: impl FnOnce(Box<dyn Workload>) -> Engine,
) -> Result<Engine, WarmError> {
    let stages = Stages(progress);
    stages.begin(Activity::Building, BUILDING);
    let workload = build(job, &stages)?;
    stages.begin(Activity::Compiling, COMPILING);
    let mut engine = engine(workload);
    engine.watched_by(progress);
    engine.warm_up()?;
    progress.at(Activity::Idle, 0, 0);
    Ok(engine)
}

/// Time that reading data and building a model may take, unless the workload says another.
const BUILDING: Duration = Duration::from_secs(600);

/// The same for the first computation, which may translate kernels for the device.
const COMPILING: Duration = Duration::from_secs(900);

/// Where a workload says what it is doing before it can train.
#[derive(Debug)]
pub struct Stages<'a>(&'a Progress);

impl Stages<'_> {
    /// A stage begins, which may take this long. A worker that is in it for longer is taken for stuck, and replaced.
    pub fn begin(&self, stage: Activity, allowance: Duration) {
        self.0.prepares(stage, Some(allowance));
    }
}
