//! Which job a name means: one that a daemon serves, or a run that was started by hand.

use bellwether_client::{Client, ClientError};
use bellwether_core::InputError;
use bellwether_serve::snapshot::JobState;

use super::args::DaemonArguments;
use super::connect;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};

/// A job that a user named.
pub(super) enum Target {
    /// A daemon serves it, and says this of it.
    Served(Box<JobState>),
    /// It was started by hand; or its daemon does not answer, and only its files can be read.
    ByHand(RunDir),
}

/// Where jobs are looked for.
pub(super) struct Places<'a> {
    arguments: &'a DaemonArguments,
    /// The daemon, if there are signs of one.
    pub(super) daemon: Option<Client>,
}

impl<'a> Places<'a> {
    /// For jobs of these names.
    pub(super) fn of(
        arguments: &'a DaemonArguments,
        asked: &[String],
        printer: &Printer,
    ) -> Result<Places<'a>, Failure> {
        let mut places = Places { arguments, daemon: connect::look(arguments, printer)? };
        let is_served = |name: &String| places.run(name).is_ok_and(|run| run.is_served());
        if places.daemon.is_some() && asked.iter().any(is_served) {
            // The daemon of such a job may be on its way back.
            places.daemon = Some(connect::find(arguments, printer)?);
        }
        Ok(places)
    }

    /// The job that a user means: by its own name, or as the newest run of a job with this name.
    pub(super) fn find(&self, asked: &str, printer: &Printer) -> Result<Target, Failure> {
        let Some(daemon) = &self.daemon else { return Ok(Target::ByHand(self.run(asked)?)) };
        match daemon.job(asked) {
            Ok(job) => Ok(Target::Served(Box::new(job))),
            Err(error) => self.without(error, asked, printer, |name| daemon.job(name)),
        }
    }

    /// The run that a user means, by hand or a daemon's.
    pub(super) fn run(&self, asked: &str) -> Result<RunDir, Failure> {
        Ok(StateDir::find(self.arguments.state.state_dir.clone())?.run(asked)?)
    }

    /// The job that is meant by a name that the daemon does not know, or would know if it answered. `ask` asks it of
    /// another name.
    pub(super) fn without(
        &self,
        error: ClientError,
        asked: &str,
        printer: &Printer,
        ask: impl FnOnce(&str) -> Result<JobState, ClientError>,
    ) -> Result<Target, Failure> {
        if self.daemon.as_ref().is_some_and(connect::is_remote) {
            return Err(error.into());
        }
        match error {
            ClientError::Refused { status: 404, .. } => {
                let Ok(run) = self.run(asked) else { return Err(error.into()) };
                // The newest run of this name may be one of the daemon's.
                let known = (run.name != asked).then(|| ask(&run.name));
                match known {
                    Some(Ok(job)) => Ok(Target::Served(Box::new(job))),
                    Some(Err(error)) if !matches!(error, ClientError::Refused { status: 404, .. }) => {
                        Err(error.into())
                    }
                    _ => Ok(Target::ByHand(run)),
                }
            }
            ClientError::Silent { .. } => {
                // A job without a folder here may still be the daemon's.
                let Ok(run) = self.run(asked) else { return Err(error.into()) };
                printer.note(format_args!("note: {error}; looking at the files alone"));
                Ok(Target::ByHand(run))
            }
            error => Err(error.into()),
        }
    }
}

/// Refuses to change a job behind the back of its daemon.
pub(super) fn ours(run: RunDir) -> Result<RunDir, Failure> {
    if !run.is_served() {
        return Ok(run);
    }
    let error = InputError::new(&run.name, "this is a daemon's job, and the daemon does not answer");
    Err(error
        .hint("`bellwether serve` takes its jobs over again; --state-dir or --server says where to look")
        .into())
}
