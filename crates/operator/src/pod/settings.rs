//! What a pod's program is told by its environment.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_runtime::run_dir::RunDir;

use crate::exchange::Client;

/// Where the state is, unless the environment says otherwise.
const STATE: &str = "/var/lib/bellwether";

/// What a pod's program is told.
///
/// | variable | says | default |
/// |---|---|---|
/// | `BELLWETHER_OPERATOR_URL` | where the operator is: `http://HOST:PORT`, without a path | |
/// | `BELLWETHER_JOB_UID` | the uid of the job | |
/// | `BELLWETHER_RUN` | the name of its run | |
/// | `BELLWETHER_POD` | the name of this pod | |
/// | `BELLWETHER_POD_IP` | its address | |
/// | `BELLWETHER_SECRETS` | the folder with `token` and `job.json` | |
/// | `BELLWETHER_STATE` | the folder for what a program keeps | `/var/lib/bellwether` |
/// | `BELLWETHER_PORT` | where a coordinator listens, or the first process of a script | 7070 |
/// | `BELLWETHER_WORKERS` | numbers of workers, `MIN..MAX` | as the job says |
/// | `BELLWETHER_GRACE_S` | seconds between SIGTERM and SIGKILL | 30 |
/// | `BELLWETHER_REATTACH_S` | how long a coordinator that was begun again waits for each worker that it knows | 15 |
/// | `BELLWETHER_ORPHAN_S` | how long a worker waits for another coordinator | as the command has it |
/// | `BELLWETHER_SLOTS` | processes in this pod, one for each of its GPUs | 1 |
/// | `BELLWETHER_GENERATION` | of which set of pods this is one | any |
/// | `BELLWETHER_RANK` | its place in that set | by its address |
/// | `BELLWETHER_TERMINATION_LOG` | where the last word goes | `/dev/termination-log` |
/// | `BELLWETHER_COMMAND` | the command `bellwether` | the one beside this program, or on the path |
#[derive(Debug, Clone)]
pub struct Settings {
    pub(super) url: String,
    pub(super) uid: String,
    run: Option<String>,
    pub(super) pod: String,
    address: Option<IpAddr>,
    secrets: PathBuf,
    pub(super) state: PathBuf,
    pub(super) port: Option<u16>,
    pub(super) workers: Option<WorkerRange>,
    pub(super) grace: Duration,
    pub(super) reattach: Duration,
    pub(super) orphan: Option<Duration>,
    pub(super) slots: u32,
    pub(super) generation: Option<u64>,
    pub(super) rank: Option<u32>,
    pub(super) termination_log: PathBuf,
    pub(super) command: OsString,
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// A variable that is missing, or says what cannot be.
    pub fn from_environment() -> Result<Settings> {
        Settings::read(|name| std::env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
        // An empty one is one that was not set: that is how manifests leave it out.
        let found = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| {
            let value = found(name).map(OsString::into_string).transpose();
            value.map_err(|_| anyhow::anyhow!("{name} is not text"))
        };
        let needed = |name: &str| text(name)?.with_context(|| format!("{name} is not set"));
        let seconds = |name: &str| -> Result<Option<Duration>> {
            let value = parsed::<f64>(name, text(name)?)?;
            value
                .map(|s| Duration::try_from_secs_f64(s).with_context(|| format!("{name}: {s} s")))
                .transpose()
        };
        let path = |name: &str, usual: &str| found(name).map_or_else(|| usual.into(), PathBuf::from);
        let slots = parsed("BELLWETHER_SLOTS", text("BELLWETHER_SLOTS")?)?.unwrap_or(1);
        if !(1..=64).contains(&slots) {
            bail!("BELLWETHER_SLOTS: {slots} processes in a pod");
        }
        Ok(Settings {
            url: needed("BELLWETHER_OPERATOR_URL")?,
            uid: needed("BELLWETHER_JOB_UID")?,
            run: text("BELLWETHER_RUN")?,
            pod: needed("BELLWETHER_POD")?,
            address: parsed("BELLWETHER_POD_IP", text("BELLWETHER_POD_IP")?)?,
            secrets: found("BELLWETHER_SECRETS").context("BELLWETHER_SECRETS is not set")?.into(),
            state: path("BELLWETHER_STATE", STATE),
            port: parsed("BELLWETHER_PORT", text("BELLWETHER_PORT")?)?,
            workers: parsed("BELLWETHER_WORKERS", text("BELLWETHER_WORKERS")?)?,
            grace: seconds("BELLWETHER_GRACE_S")?.unwrap_or(Duration::from_secs(30)),
            reattach: seconds("BELLWETHER_REATTACH_S")?.unwrap_or(Duration::from_secs(15)),
            orphan: seconds("BELLWETHER_ORPHAN_S")?,
            slots,
            generation: parsed("BELLWETHER_GENERATION", text("BELLWETHER_GENERATION")?)?,
            rank: parsed("BELLWETHER_RANK", text("BELLWETHER_RANK")?)?,
            termination_log: path("BELLWETHER_TERMINATION_LOG", "/dev/termination-log"),
            command: found("BELLWETHER_COMMAND").unwrap_or_else(super::install::command),
        })
    }

    /// The name of the run.
    pub(super) fn run(&self) -> Result<&str> {
        self.run.as_deref().context("BELLWETHER_RUN is not set")
    }

    /// The address of this pod.
    pub(super) fn address(&self) -> Result<IpAddr> {
        self.address.context("BELLWETHER_POD_IP is not set")
    }

    /// Where the job and its token lie, under the names that they have in a run's folder.
    pub(super) fn secrets(&self) -> RunDir {
        RunDir::at(&self.secrets)
    }

    /// The job.
    pub(super) fn job(&self) -> Result<CheckedJob> {
        Ok(self.secrets().job()?.check()?)
    }

    /// Whom to ask.
    pub(super) fn client(&self) -> Result<Arc<Client>> {
        Ok(Arc::new(Client::new(&self.url, &self.uid, &self.pod, &self.secrets().token()?)?))
    }
}

fn parsed<T: FromStr>(name: &str, text: Option<String>) -> Result<Option<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.map(|text| text.trim().parse().with_context(|| format!("{name} is `{text}`"))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &[(&str, &str)]) -> Result<Settings> {
        let usual = [
            ("BELLWETHER_OPERATOR_URL", "http://operator:8080"),
            ("BELLWETHER_JOB_UID", "a-1"),
            ("BELLWETHER_POD", "pod"),
            ("BELLWETHER_SECRETS", "/secrets"),
        ];
        let all: Vec<_> = more.iter().chain(&usual).copied().collect();
        Settings::read(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let settings = read(&[("BELLWETHER_WORKERS", "1..4"), ("BELLWETHER_GRACE_S", "2.5")]).unwrap();
        assert_eq!(settings.workers, Some((1..=4).into()));
        assert_eq!((settings.grace, settings.slots), (Duration::from_millis(2500), 1));
        assert_eq!(settings.port, None);
        assert!(settings.command.to_string_lossy().ends_with("bellwether"));
        assert!(settings.run().is_err() && settings.address().is_err());
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (name, value) in [
            ("BELLWETHER_WORKERS", "4..1"),
            ("BELLWETHER_POD_IP", "here"),
            ("BELLWETHER_PORT", "70000"),
            ("BELLWETHER_GRACE_S", "-1"),
            ("BELLWETHER_GRACE_S", "inf"),
            ("BELLWETHER_SLOTS", "0"),
            ("BELLWETHER_JOB_UID", ""),
        ] {
            let error = format!("{:#}", read(&[(name, value)]).unwrap_err());
            assert!(error.contains(name), "{error}");
        }
    }
}
