//! Jobs of a daemon of this machine, for verbs that train many: trials of a sweep, supernets of a search.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bellwether_client::{Act as ClientAct, Client, ClientError, Endpoint};
use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_serve::api::body::{Limits, Submit, Workers};
use bellwether_serve::request::Submission;
use bellwether_serve::snapshot::JobState;
use bellwether_serve::sweep::{Act, Jobs, Trouble};

use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::StateDir;

/// How long a daemon may be away while it is restarted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon of this machine.
pub(crate) struct Daemon(Client);

/// The daemon of a state directory.
pub(crate) fn find(folder: &Path, printer: &Printer) -> Result<Daemon, Failure> {
    let state_dir = StateDir::find(Some(folder.to_path_buf()))?;
    let printer = *printer;
    let client = Client::new(Endpoint::StateDir(state_dir.path().into()));
    Ok(Daemon(client.on_wait(move |why| printer.note(why)).patient(PATIENCE)))
}

impl Daemon {
    /// Slots for workers.
    pub(crate) fn slots(&self) -> Result<u32, Failure> {
        Ok(self.0.cluster()?.slots)
    }
}

fn trouble(error: ClientError) -> Trouble {
    match error {
        ClientError::Refused { error, .. } => Trouble::Refused(error),
        other => {
            let error: InputError = other.located();
            Trouble::Gone(error.hint("start the daemon again; the same command goes on"))
        }
    }
}

impl Jobs for Daemon {
    fn submit(&mut self, submission: Submission) -> Result<(), Trouble> {
        let Submission { job, name, workers, weight, key, .. } = submission;
        let submit = Submit {
            job: Some(job.into_job()),
            name,
            workers: workers.map(Workers),
            priority: Some(weight),
            key,
            ..Submit::default()
        };
        self.0.submit(&submit).map(drop).map_err(trouble)
    }

    fn limit(&mut self, job: &str, workers: WorkerRange) -> Result<(), Trouble> {
        let limits = Limits { workers: Some(Workers(workers)), weight: None };
        self.0.limit(job, &limits).map(drop).map_err(trouble)
    }

    fn act(&mut self, job: &str, act: Act) -> Result<(), Trouble> {
        let act = match act {
            Act::Suspend => ClientAct::Suspend,
            Act::Resume => ClientAct::Resume,
            Act::Cancel => ClientAct::Cancel,
        };
        self.0.act(act, job).map(drop).map_err(trouble)
    }

    fn look(&mut self, prefix: &str) -> Result<BTreeMap<String, JobState>, Trouble> {
        let jobs = self.0.jobs().map_err(trouble)?;
        Ok(jobs
            .into_iter()
            .filter(|job| job.name.starts_with(prefix))
            .map(|job| (job.name.clone(), job))
            .collect())
    }
}
