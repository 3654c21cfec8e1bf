//! What a worker does before it can train: it makes the workload, and computes with it once.

use std::sync::Arc;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::record::Boot;

use super::engine::Engine;
use super::session::Mailbox;
use crate::membership::{Activity, FromWorker};
use crate::progress::Progress;
use crate::workload::{Workload, WorkloadError};

/// A workload cannot be made from this job and its data.
impl From<InputError> for WorkloadError {
    fn from(error: InputError) -> WorkloadError {
        WorkloadError::new(error.to_string())
    }
}

/// Makes the workload, and computes with it once.
pub(super) fn warm<E: Into<WorkloadError>>(
    job: &Job,
    stages: &Stages<'_>,
    build: impl FnOnce(&Job, &Stages<'_>) -> Result<Box<dyn Workload>, E>,
    engine: impl FnOnce(Box<dyn Workload>) -> Engine,
) -> Result<Engine, WorkloadError> {
    let own = job.stage_allowance();
    stages.begin(Activity::Building, own.unwrap_or(BUILDING));
    let workload = build(job, stages).map_err(Into::into)?;
    stages.begin(Activity::Compiling, own.unwrap_or(COMPILING));
    let mut engine = engine(workload);
    engine.watched_by(stages.progress);
    engine.warm_up()?;
    stages.progress.at(Activity::Idle, 0, 0);
    Ok(engine)
}

/// Time that importing frameworks may take, and whatever else a script does before it says what it trains, unless the
/// job says another.
pub const IMPORTING: Duration = Duration::from_secs(600);

/// The same for reading data and building a model.
pub const BUILDING: Duration = Duration::from_secs(600);

/// The same for the first computation, which may translate kernels for the device.
const COMPILING: Duration = Duration::from_secs(900);

/// Where a workload says what it is doing before it can train.
#[derive(Debug)]
pub struct Stages<'a> {
    progress: &'a Arc<Progress>,
    mailbox: &'a Mailbox,
}

impl<'a> Stages<'a> {
    pub(super) fn new(progress: &'a Arc<Progress>, mailbox: &'a Mailbox) -> Stages<'a> {
        Stages { progress, mailbox }
    }

    /// A stage begins, which may take this long. A worker that is in it for longer is taken for stuck, and replaced.
    pub fn begin(&self, stage: Activity, allowance: Duration) {
        self.progress.prepares(stage, Some(allowance));
    }

    /// Why the run no longer waits for this worker, once it does not: whether that was a refusal, and the reason.
    pub fn farewell(&self) -> Option<(bool, String)> {
        self.mailbox.farewell()
    }

    /// What the stages took that are over.
    pub(super) fn took(&self) -> FromWorker {
        let seconds = |stage| self.progress.spent_s(stage);
        FromWorker::Booted(Boot {
            start_s: 0.0,
            importing_s: seconds(Activity::Importing),
            building_s: seconds(Activity::Building),
            compiling_s: seconds(Activity::Compiling),
        })
    }
}
