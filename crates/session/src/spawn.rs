//! How a session starts workers and parameter servers: as processes of a program, or as threads of this one.

use std::process::Child;

use bellwether_core::InputError;
use bellwether_runtime::coordinator::{self, Director, Spawned};
use bellwether_runtime::run_dir::RunDir;

use crate::error::RunError;
use crate::gpus::{Place, Placed};
use crate::logs::Shortener;
use crate::machines::Machines;
use crate::program::Program;
use crate::slurm::Slurm;
use crate::{WorkloadBuilder, threads};

/// How the workers and parameter servers of a run are started.
#[derive(Debug, Clone)]
pub enum Spawn {
    /// As processes, which outlive this one: they look for another coordinator of their run for a while.
    Processes(Program),
    /// As threads of this process, which train the session's own workload. See [`Session`](crate::Session)
    /// for what is not the same as with processes.
    Threads,
    /// As jobs of Slurm's, each a process of the program.
    Slurm(Program, Slurm),
    /// On machines that a provider gives as a plan says, each a process of the program.
    Machines(Program, Machines),
    /// Not at all: they join by hand.
    ByHand,
}

fn process(child: std::io::Result<Child>) -> std::io::Result<Box<dyn Spawned>> {
    child.map(|child| Box::new(child) as Box<dyn Spawned>)
}

impl Spawn {
    /// The same where each worker is started with a further variable; `None` of workers that are not processes.
    pub(crate) fn variable(&self, name: &'static str, value: String) -> Option<Spawn> {
        match self {
            Spawn::Processes(program) => Some(Spawn::Processes(program.clone().variable(name, value))),
            Spawn::Slurm(program, slurm) => {
                Some(Spawn::Slurm(program.clone().variable(name, value), slurm.clone()))
            }
            Spawn::Machines(program, machines) => {
                Some(Spawn::Machines(program.clone().variable(name, value), machines.clone()))
            }
            Spawn::Threads | Spawn::ByHand => None,
        }
    }

    /// Whether workers are on other machines, which come when they come.
    pub(crate) fn is_on_cluster(&self) -> bool {
        matches!(self, Spawn::Slurm(..) | Spawn::Machines(..))
    }

    /// What turns the cluster's news about the workers of `run` into changes of them, where they are on one.
    pub(crate) fn director(&self, run: &RunDir) -> Result<Option<Box<dyn Director>>, RunError> {
        match self {
            Spawn::Slurm(program, slurm) => slurm.director(run, program).map(Some),
            Spawn::Machines(program, machines) => machines.director(run, program).map(Some),
            Spawn::Processes(_) | Spawn::Threads | Spawn::ByHand => Ok(None),
        }
    }

    /// The same without the further arguments of workers.
    pub(crate) fn plain(&self) -> Spawn {
        match self {
            Spawn::Processes(program) => Spawn::Processes(program.plain()),
            Spawn::Slurm(program, slurm) => Spawn::Slurm(program.plain(), slurm.clone()),
            Spawn::Machines(program, machines) => Spawn::Machines(program.plain(), machines.clone()),
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
            Spawn::Slurm(program, slurm) => slurm.workers(run, program).map(Some),
            Spawn::Machines(program, machines) => machines.workers(run, program).map(Some),
            Spawn::Threads => Ok(Some(threads::workers(run.token()?, workload.clone()))),
            Spawn::ByHand => Ok(None),
        }
    }

    /// Starts the workers of an inference in the folder `run`, as processes of `program`.
    ///
    /// # Errors
    ///
    /// Returns an error if workers cannot be started here.
    pub fn of_inference(run: &RunDir, program: &Program) -> Result<coordinator::Spawn, RunError> {
        let program = program.clone().inferring();
        // Only threads build a workload here.
        let workload = WorkloadBuilder::new(|_| Err(InputError::new("workload", "it is built in workers")));
        let workers = Spawn::Processes(program).workers(run, &workload)?;
        workers.ok_or_else(|| InputError::new("workers", "cannot be started here").into())
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
            Spawn::Slurm(program, slurm) => slurm.servers(run, program).map(Some),
            Spawn::Threads => Ok(Some(threads::servers(run.token()?))),
            // Plans with servers are refused before.
            Spawn::Machines(..) | Spawn::ByHand => Ok(None),
        }
    }
}
