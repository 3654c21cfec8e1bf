//! How a session starts workers and parameter servers: as processes of a program, or as threads of this one.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bellwether_runtime::coordinator::{self, Spawned};
use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::worker::IMPORTING;

use crate::error::RunError;
use crate::gpus::{Gpus, Place, Placed, VISIBLE_DEVICES};
use crate::logs::Shortener;
use crate::script::fork::ForkServer;
use crate::script::{Trained, WorkerOptions};
use crate::{WorkloadBuilder, threads};

/// How long a worker of a script waits for another coordinator, as `PROGRAM worker` does unless it is told.
const ORPHAN_TIMEOUT_S: f64 = 600.0;

/// How the workers and parameter servers of a run are started.
#[derive(Debug, Clone)]
pub enum Spawn {
    /// As processes, which outlive this one: they look for another coordinator of their run for a while.
    Processes(Program),
    /// As threads of this process, which train the session's own workload. See [`Session`](crate::Session)
    /// for what is not the same as with processes.
    Threads,
    /// Not at all: they join by hand.
    ByHand,
}

/// A program that is a worker when it is started as `PROGRAM worker …`, and a parameter server as `PROGRAM
/// server …`, as the command `bellwether` is.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    more: Arc<Arguments>,
    /// What a script declared whose workers are its own processes.
    script: Option<Trained>,
    /// Where the workers of a script compute.
    gpus: Gpus,
    /// A further variable of each worker.
    variable: Option<(&'static str, String)>,
}

/// Further arguments of each worker.
type Arguments = dyn Fn(WorkerId) -> Vec<String> + Send + Sync;

impl Program {
    /// The program in this file.
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program {
            path: path.into(),
            more: Arc::new(|_| Vec::new()),
            script: None,
            gpus: Gpus::default(),
            variable: None,
        }
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
    fn fork(
        &self,
        server: &mut Option<ForkServer>,
        run: &RunDir,
        number: WorkerId,
        address: SocketAddr,
        place: Option<&Place>,
    ) -> Option<Box<dyn Spawned>> {
        let trained = self.script.as_ref().filter(|_| (self.more)(number).is_empty())?;
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
            token_file,
            worker: number,
            listen: SocketAddr::new(address.ip(), 0).to_string(),
            orphan_timeout_s: ORPHAN_TIMEOUT_S,
        };
        let log = std::path::absolute(run.worker_log_file(number)).ok()?;
        let environment =
            options.environment().into_iter().chain(place.into_iter().flat_map(Place::environment));
        let environment = environment.chain(self.variable.clone());
        server.as_mut()?.fork(&words, environment, &log).ok()
    }

    /// The same without the further arguments of workers.
    fn plain(&self) -> Program {
        Program { more: Arc::new(|_| Vec::new()), ..self.clone() }
    }

    /// The same with further arguments of each worker of a run. While a job is measured its workers have
    /// none.
    #[must_use]
    pub fn arguments(self, more: impl Fn(WorkerId) -> Vec<String> + Send + Sync + 'static) -> Program {
        Program { more: Arc::new(more), ..self }
    }

    /// Each is in a process group of its own, so that it outlives us.
    fn start(&self, verb: &str, run: &RunDir, number: WorkerId, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg(verb)
            .args(["--join", &address.to_string()])
            // Workers on other machines must reach these as they reach the coordinator.
            .args(["--listen", &SocketAddr::new(address.ip(), 0).to_string()])
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

fn process(child: std::io::Result<Child>) -> std::io::Result<Box<dyn Spawned>> {
    child.map(|child| Box::new(child) as Box<dyn Spawned>)
}

impl Spawn {
    /// The same without the further arguments of workers.
    pub(crate) fn plain(&self) -> Spawn {
        match self {
            Spawn::Processes(program) => Spawn::Processes(program.plain()),
            other => other.clone(),
        }
    }

    /// Starts the workers of `run`.
    pub(crate) fn workers(
        &self,
        run: &RunDir,
        workload: &WorkloadBuilder,
    ) -> Result<Option<coordinator::Spawn>, RunError> {
        match self {
            Spawn::Processes(program) => {
                let (run, program) = (run.clone(), program.clone());
                let mut server = None;
                let shortener = program.script.as_ref().and_then(|_| Shortener::start(run.clone()).ok());
                Ok(Some(Box::new(move |worker, address| {
                    // It goes on as long as workers may be started.
                    let _ = &shortener;
                    let log = run.worker_log(worker)?;
                    let place = program.gpus.place();
                    if let Some(process) = program.fork(&mut server, &run, worker, address, place.as_ref()) {
                        return Ok(Box::new(Placed { process, place }));
                    }
                    let mut command = program.start("worker", &run, worker, address);
                    command.args((program.more)(worker));
                    if let Some(trained) = &program.script {
                        // What a script prints is part of its log.
                        command.arg("--").args(trained.command_line()).stdout(log.try_clone()?);
                        command.envs(trained.environment());
                    }
                    command.envs(place.iter().flat_map(Place::environment));
                    command.envs(program.variable.clone());
                    let process = process(command.stderr(log).spawn())?;
                    Ok(Box::new(Placed { process, place }))
                })))
            }
            Spawn::Threads => Ok(Some(threads::workers(run.token()?, workload.clone()))),
            Spawn::ByHand => Ok(None),
        }
    }

    /// Starts the parameter servers of `run`.
    pub(crate) fn servers(&self, run: &RunDir) -> Result<Option<coordinator::Spawn>, RunError> {
        match self {
            Spawn::Processes(program) => {
                let (run, program) = (run.clone(), program.clone());
                Ok(Some(Box::new(move |server, address| {
                    let log = run.server_log(server)?;
                    process(program.start("server", &run, server, address).stderr(log).spawn())
                })))
            }
            Spawn::Threads => Ok(Some(threads::servers(run.token()?))),
            Spawn::ByHand => Ok(None),
        }
    }
}
