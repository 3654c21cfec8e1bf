//! What a measured run is given, and what it is asked.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use bellwether_core::job::{Checkpoint, Job, Mode, Verdict, WorkerRange};
use bellwether_runtime::control::client::Control;
use bellwether_runtime::run_dir::RunDir;

/// How long a last checkpoint that cannot be written is tried: the state is of no use afterwards.
pub(super) const LAST_CHECKPOINT_WAIT: Duration = Duration::from_secs(10);

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
    job.workers = WorkerRange { min: 1, max: job.batch.virtual_nodes.min(2) };
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
