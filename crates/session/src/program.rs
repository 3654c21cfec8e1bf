//! The program whose processes are workers and parameter servers, and its command lines.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bellwether_runtime::coordinator::Spawned;
use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::worker::IMPORTING;

use crate::gpus::{Gpus, Place, VISIBLE_DEVICES};
use crate::script::fork::ForkServer;
use crate::script::{Trained, WorkerOptions};

/// How long a worker of a script waits for another coordinator, as `PROGRAM worker` does unless it is told.
const ORPHAN_TIMEOUT_S: f64 = 600.0;

/// A program that is a worker when it is started as `PROGRAM worker …`, and a parameter server as `PROGRAM
/// server …`, as the command `bellwether` is.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    pub(crate) more: Arc<Arguments>,
    /// What a script declared whose workers are its own processes.
    pub(crate) script: Option<Trained>,
    /// Where the workers of a script compute.
    pub(crate) gpus: Gpus,
    /// The command that starts the program somewhere else, if one does.
    launcher: Vec<OsString>,
    /// A further variable of each worker.
    pub(crate) variable: Option<(&'static str, String)>,
}

/// Further arguments of each worker.
pub(crate) type Arguments = dyn Fn(WorkerId) -> Vec<String> + Send + Sync;

impl Program {
    /// The program in this file.
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program {
            path: path.into(),
            more: Arc::new(|_| Vec::new()),
            script: None,
            gpus: Gpus::default(),
            launcher: Vec::new(),
            variable: None,
        }
    }

    /// The same where another command starts it, such as `srun`: it is given the program with its arguments, passes
    /// signals on, and ends when the program does.
    #[must_use]
    pub fn launched_by(self, launcher: Vec<OsString>) -> Program {
        Program { launcher, gpus: Gpus::default(), ..self }
    }

    /// The same where workers are processes of a script: forked, or as `PROGRAM worker … -- PYTHON SCRIPT`. On a
    /// machine with several GPUs each has one of its own; `CUDA_VISIBLE_DEVICES` says which GPUs may be taken.
    #[must_use]
    pub fn script(self, trained: Trained) -> Program {
        let wants = trained.uses_gpus() || std::env::var_os(VISIBLE_DEVICES).is_some();
        let gpus = if wants { Gpus::of_machine() } else { Gpus::default() };
        Program { script: Some(trained), gpus, ..self }
    }

    /// The same where each worker is started with a further variable.
    #[must_use]
    pub(crate) fn variable(self, name: &'static str, value: String) -> Program {
        Program { variable: Some((name, value)), ..self }
    }

    /// Forks a worker of a script, where that is possible.
    pub(crate) fn fork(
        &self,
        server: &mut Option<ForkServer>,
        run: &RunDir,
        number: WorkerId,
        address: SocketAddr,
        place: Option<&Place>,
    ) -> Option<Box<dyn Spawned>> {
        let is_here = self.launcher.is_empty() && (self.more)(number).is_empty();
        let trained = self.script.as_ref().filter(|_| is_here)?;
        let words: Option<Vec<String>> =
            trained.command_line().into_iter().map(|word| word.into_string().ok()).collect();
        let words = words?;
        let token_file = std::path::absolute(run.token_file()).ok()?;
        if server.as_mut().is_none_or(|server| !server.is_usable()) {
            let python = Path::new(&words[0]);
            let log = run.fork_server_log().ok()?;
            // It imports once for all workers, which have that behind them: a short allowance is not meant for it.
            let own = run.job().ok().and_then(|job| job.stage_allowance());
            let allowance = own.map_or(IMPORTING, |own| own.max(IMPORTING));
            let modules = (trained.modules(), allowance);
            *server = ForkServer::start(python, modules, &trained.environment(), &token_file, log).ok();
        }
        let options = WorkerOptions {
            join: address.to_string(),
            ticket: None,
            token_file,
            worker: number,
            listen: SocketAddr::new(address.ip(), 0).to_string(),
            orphan_timeout_s: ORPHAN_TIMEOUT_S,
            notices: Vec::new(),
            notice_interval_s: 0.0,
            infer: false,
        };
        let log = std::path::absolute(run.worker_log_file(number)).ok()?;
        let environment =
            options.environment().into_iter().chain(place.into_iter().flat_map(Place::environment));
        let environment = environment.chain(self.variable.clone());
        server.as_mut()?.fork(&words, environment, &log).ok()
    }

    /// The same whose workers apply a model instead of training it.
    #[must_use]
    pub(crate) fn inferring(self) -> Program {
        let more = Arc::clone(&self.more);
        self.arguments(move |worker| {
            let mut words = more(worker);
            words.push("--infer".into());
            words
        })
    }

    /// The same without the further arguments of workers.
    pub(crate) fn plain(&self) -> Program {
        Program { more: Arc::new(|_| Vec::new()), ..self.clone() }
    }

    /// The same with further arguments of each worker of a run. Where a run measures its job before it begins, the
    /// workers of that have none.
    #[must_use]
    pub fn arguments(self, more: impl Fn(WorkerId) -> Vec<String> + Send + Sync + 'static) -> Program {
        Program { more: Arc::new(more), ..self }
    }

    /// The command line of a worker or server that is a job of a cluster, and reads the rest from its ticket.
    pub(crate) fn ticket_words(
        &self,
        verb: &str,
        run: &RunDir,
        ticket: &Path,
        number: WorkerId,
    ) -> Vec<OsString> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into()).into();
        let mut words: Vec<OsString> =
            vec![self.path.clone().into(), verb.into(), "--ticket".into(), absolute(ticket)];
        words.extend(["--token-file".into(), absolute(&run.token_file()), "--listen=auto".into()]);
        if verb == "worker" {
            // Its job may be ended by a limit or by hand: the run is to go on with another.
            words.push("--notices=sigterm".into());
            words.extend((self.more)(number).into_iter().map(OsString::from));
            if let Some(trained) = &self.script {
                words.push("--".into());
                words.extend(trained.command_line());
            }
        }
        words
    }

    /// The command line of a worker on a machine that does not see this one's files: the program is in its path, and
    /// the file in `$token` holds the token.
    pub(crate) fn remote_words(&self, join: &SocketAddr, number: WorkerId) -> Vec<OsString> {
        let join = join.to_string();
        let mut words: Vec<OsString> =
            vec!["bellwether".into(), "worker".into(), "--join".into(), join.into()];
        words.extend(["--token-file".into(), "$token".into(), "--listen=auto".into()]);
        words.extend([format!("--worker-id={number}").into(), "--notices=sigterm".into()]);
        words.extend((self.more)(number).into_iter().map(OsString::from));
        if let Some(trained) = &self.script {
            words.push("--".into());
            words.extend(trained.command_line());
        }
        words
    }

    /// Further variables of each worker.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let own = self.variable.clone().map(|(name, value)| (name.into(), value.into()));
        let script = self.script.iter().flat_map(|trained| trained.environment());
        script.map(|(name, value)| (name.into(), value.into())).chain(own).collect()
    }

    /// Each is in a process group of its own, so that it outlives us.
    pub(crate) fn start(&self, verb: &str, run: &RunDir, number: WorkerId, address: SocketAddr) -> Command {
        let mut words = self.launcher.iter().cloned().chain([self.path.clone().into()]);
        let mut command = Command::new(words.next().expect("the program is one"));
        // Workers on other machines must reach these as they reach the coordinator.
        let listen = match self.launcher.is_empty() {
            true => SocketAddr::new(address.ip(), 0).to_string(),
            false => "auto".into(),
        };
        command
            .args(words)
            .arg(verb)
            .args(["--join", &address.to_string(), "--listen", &listen])
            .arg("--token-file")
            .arg(run.token_file())
            .args([&format!("--{verb}-id"), &number.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        command
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.path).finish()
    }
}
