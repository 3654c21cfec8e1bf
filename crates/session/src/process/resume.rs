//! The command line of a process that leads a run which exists.

use std::ffi::OsString;
use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use bellwether_core::job::WorkerRange;
use bellwether_core::units::Seconds;
use bellwether_runtime::run_dir::RunDir;

use super::kill;
use crate::machines::ProviderKind;

/// How a process leads a run which exists: the options of `PROGRAM run --resume=NAME`.
///
/// This is the only place that writes such a command line; the verb `run` of the command reads it, and a test there
/// checks that it reads every option.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    /// The run.
    pub run: RunDir,
    /// Numbers of workers, instead of the job's.
    pub workers: Option<WorkerRange>,
    /// The part of their speed at which all workers compute; all of it if absent.
    pub speed: Option<f64>,
    /// Where the process listens, instead of where the workers look for it.
    pub listen: Option<SocketAddr>,
    /// Whether all workers join by hand.
    pub no_spawn: bool,
    /// How long committed steps that only lost workers hold wait for these, instead of the usual time.
    pub grace: Option<Seconds>,
    /// Whether a daemon starts it, whose job the run is.
    pub served: bool,
    /// Who gives the machines of the plan in the run's folder; `None` for workers of this machine.
    pub provision: Option<ProviderKind>,
}

impl Resume {
    /// As the run was.
    pub fn of(run: &RunDir) -> Resume {
        let (workers, speed, listen, grace, provision) = (None, None, None, None, None);
        Resume { run: run.clone(), workers, speed, listen, no_spawn: false, grace, served: false, provision }
    }

    /// The arguments of the program.
    ///
    /// # Errors
    ///
    /// Returns an error if the working directory is needed and is gone.
    pub fn arguments(&self) -> Result<Vec<OsString>> {
        // Without `..`: an option that is added is written here, too.
        let Resume { run, workers, speed, listen, no_spawn, grace, served, provision } = self;
        let path = std::path::absolute(&run.path)?;
        let mut resume = OsString::from("--resume=");
        resume.push(path.file_name().unwrap_or_default());
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut arguments = vec!["run".into(), resume, "--state-dir".into(), folder.into()];
        arguments.push("--format=json".into());
        arguments.extend(workers.map(|workers| format!("--workers={workers}").into()));
        arguments.extend(speed.map(|speed| format!("--speed={speed}").into()));
        arguments.extend(listen.map(|address| format!("--listen={address}").into()));
        arguments.extend(no_spawn.then(|| "--no-spawn".into()));
        arguments.extend(grace.map(|grace| format!("--grace={grace}").into()));
        arguments.extend(served.then(|| "--served".into()));
        if let Some(kind) = provision {
            let mut plan = OsString::from("--plan=");
            plan.push(std::path::absolute(run.plan_file())?);
            arguments.extend([plan, format!("--provision={}", kind.name()).into()]);
        }
        Ok(arguments)
    }

    /// Listens elsewhere if another program has taken the address of the coordinator that died. The run's workers on
    /// this machine, which would never find another coordinator, are killed then.
    #[must_use]
    pub fn avoiding_taken_address(self) -> Resume {
        let Some(endpoint) = self.run.endpoint() else { return self };
        let address = endpoint.control;
        if TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
            kill::workers(&self.run);
            return Resume { listen: Some(SocketAddr::new(address.ip(), 0)), ..self };
        }
        self
    }
}
