//! Supernets as jobs of a daemon, which go on when this process is gone; the same command then finds them again.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::CheckedJob;
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::RunDir;
use bellwether_serve::ledger::Task;
use bellwether_serve::request::Submission;
use bellwether_serve::snapshot::{JobState, Phase};
use bellwether_serve::sweep::{Jobs as _, Trouble};
use bellwether_session::kind;
use bellwether_session::nas::{NasError, Trained, Trainer};

use crate::daemon::{self, Daemon};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::session;

/// Between two looks at a job.
const PERIOD: Duration = Duration::from_millis(200);

/// Jobs of a daemon.
pub(super) struct Jobs(Mutex<Daemon>);

impl Jobs {
    /// Of the daemon of a state directory.
    pub(super) fn of(folder: &Path, printer: &Printer) -> Result<Jobs, Failure> {
        daemon::find(folder, printer).map(|daemon| Jobs(Mutex::new(daemon)))
    }

    /// Asks the daemon; several supernets wait side by side, and one asks at a time.
    fn ask<T>(&self, what: impl FnOnce(&mut Daemon) -> Result<T, Trouble>) -> Result<T, InputError> {
        what(&mut self.lock()).map_err(|trouble| match trouble {
            Trouble::Refused(error) | Trouble::Gone(error) => error,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Daemon> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a supernet is. Each loads the data for it, so one does at a time.
    fn described(&self, job: &CheckedJob) -> Result<WorkloadDescription, InputError> {
        let _one = self.lock();
        Ok(WorkloadDescription::of(session::build(job)?.as_ref()))
    }

    /// The job once it has ended.
    fn ended(&self, name: &str) -> Result<JobState, InputError> {
        loop {
            let seen = self.ask(|daemon| daemon.look(name))?.remove(name);
            let job =
                seen.ok_or_else(|| InputError::new(name, "the daemon does not know the job any more"))?;
            if job.state.has_ended() {
                return Ok(job);
            }
            std::thread::sleep(PERIOD);
        }
    }
}

impl Trainer for Jobs {
    fn train(&self, name: &str, job: &CheckedJob) -> Result<Trained, NasError> {
        let described = self.described(job)?;
        let key = format!("nas-{name}-{}", kind::source_digest(job.identity().as_bytes()));
        let submission = Submission::named(job.clone(), Task::of(&described), name, key)?;
        self.ask(|daemon| daemon.submit(submission))?;
        let ended = self.ended(name)?;
        let run = RunDir::at(&ended.run_dir);
        match ended.state {
            Phase::Finished => Trained::of(&run, &described.layout),
            Phase::Cancelled => Err(NasError::failed(&run, "its job was cancelled".into())),
            _ => Err(NasError::failed(&run, ended.why)),
        }
    }
}
