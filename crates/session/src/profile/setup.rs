//! What a measured run is given, and what it is asked.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use bellwether_core::job::{CheckedJob, Checkpoint, Job, Mode, Stop, Sync, SyncPolicy, Verdict, WorkerRange};
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::coordinator::{Observation, Options};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::{RunDir, StateDir};

use super::How;
use crate::error::RunError;
use crate::options::{LOOPBACK, options, reachable};
use crate::scratch::Scratch;
use crate::{Note, Observe, Progress, Spawn, WorkloadBuilder};

/// How long a last checkpoint that cannot be written is tried: the state is of no use afterwards.
const LAST_CHECKPOINT_WAIT: Duration = Duration::from_secs(10);

/// A run that is only measured, in a folder that vanishes with this.
pub(super) struct MeasuredRun {
    pub(super) run: RunDir,
    _folder: Scratch,
}

impl MeasuredRun {
    /// Makes the folder of a run of `job`.
    pub(super) fn create(job: &CheckedJob, how: &How) -> Result<MeasuredRun, RunError> {
        let folder = match &how.folder {
            Some(folder) => Scratch::within(folder, "profile")?,
            None => Scratch::new("profile")?,
        };
        let run = StateDir::find(Some(folder.0.clone()))?.create(job, false)?;
        if let (Some(original), Spawn::Slurm(_, slurm)) = (&how.of_run, &how.spawn) {
            if let Some(placement) = original.placement()? {
                run.keep_placement(&placement)?;
            }
            let key = original.cluster_jobs()?.map_or(String::new(), |jobs| jobs.key + "-");
            slurm.keep(&run, &key)?;
        }
        Ok(MeasuredRun { run, _folder: folder })
    }

    /// The options of its coordinator, but for what starts its processes.
    pub(super) fn options(
        &self,
        job: CheckedJob,
        (description, workload): (&WorkloadDescription, &WorkloadBuilder),
        how: &How,
    ) -> Result<Options, RunError> {
        let listen = how.listen.unwrap_or(LOOPBACK);
        reachable(listen)?;
        let weights = workload.initial_weights();
        Ok(Options {
            last_checkpoint_wait: LAST_CHECKPOINT_WAIT,
            initial_weights: weights.map(|file| self.run.keep_initial_weights(&file)).transpose()?,
            director: how.spawn.director(&self.run)?,
            ..options(&self.run, job, description, listen)?
        })
    }
}

/// Tells what a cluster does, such as letting workers wait.
pub(super) fn tell(seen: &Observation<'_>, observe: &mut Observe<'_>) {
    if let Observation::Journal(Event::Cluster { message }) = seen {
        observe(Progress::Note(Note::Cluster(message.clone())));
    }
}

/// What the helping thread asks of the run.
pub(super) enum Ask {
    Scale(u32),
    Stop,
}

/// The job, so long that it does not end by itself, and without what only costs time here.
pub(super) fn endless(job: &mut Job) {
    (job.steps, job.epochs) = (Some(u64::from(u32::MAX)), None);
    job.mode = Mode::Exact;
    job.evaluation.every_steps = 0;
    job.checkpoint = Checkpoint::default();
    job.verdict = Verdict::default();
    job.stop = Stop::default();
    job.workers = WorkerRange { min: 1, max: job.batch.virtual_nodes.min(2) };
    job.sync = without_local_steps(std::mem::take(&mut job.sync));
}

/// No step is a local one, and a worker has all that it needs for them.
fn without_local_steps(mut sync: Sync) -> Sync {
    if sync.has_outer_steps() {
        let local = Protocol::Local(sync.steps_per_round());
        sync.policy = SyncPolicy::Phases(vec![(0.0, Protocol::Bsp), (1.0, local)]);
    }
    sync
}

/// The coordinator's own thread cannot ask it anything.
pub(super) fn help(run: RunDir, asked: Receiver<Ask>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for ask in asked {
            let Some(endpoint) = run.endpoint() else { continue };
            let Ok(token) = run.token() else { continue };
            let address = endpoint.control.to_string();
            let Ok(mut control) = Control::connect(&address, &token) else {
                continue;
            };
            // A run that is over already needs neither.
            let _ = match ask {
                Ask::Scale(workers) => control.scale(workers),
                Ask::Stop => control.stop(),
            };
        }
    })
}
