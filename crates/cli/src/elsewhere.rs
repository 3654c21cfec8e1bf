//! Where the workers of a run are: on this machine, in an allocation of Slurm's, or jobs of Slurm's of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_session::slurm::{Allocation, Slurm, Submit};
use bellwether_session::{Program, Spawn};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::RunDir;

#[derive(Debug, Clone, Args)]
pub(crate) struct ElsewhereArguments {
    /// Where workers run: processes of this machine; tasks of the Slurm allocation that this command is in; or jobs
    /// that are submitted to Slurm, one for each [default: as before where a run is resumed; the allocation where
    /// there is one with several tasks; else here]
    #[arg(long, value_enum)]
    on: Option<On>,
    /// An option of sbatch for each job, passed on untouched: --sbatch=--partition=gpu --sbatch=--time=4:00:00
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// The beginning of each job's script: #SBATCH lines, passed on untouched, and commands such as `module load`
    #[arg(long, value_name = "FILE")]
    sbatch_script: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    Here,
    Allocation,
    Slurm,
}

/// Where the workers will be, and what follows from that.
pub(crate) struct Elsewhere {
    pub(crate) spawn: Spawn,
    /// Where the coordinator listens, unless its user says otherwise.
    pub(crate) listen: Option<SocketAddr>,
    /// Numbers of workers for which there is room, where that is known.
    pub(crate) room: Option<u32>,
}

impl ElsewhereArguments {
    /// Whether anything is said of where workers run.
    pub(crate) fn is_said(&self) -> bool {
        self.on.is_some() || !self.sbatch.is_empty() || self.sbatch_script.is_some()
    }

    /// How the workers of `program` are started: those of a run that is there as it was before, unless it was told
    /// otherwise. Where the coordinator `moves`, an address is found at which workers elsewhere reach it.
    ///
    /// # Errors
    ///
    /// Options that do not fit together, and what Slurm has against them.
    pub(crate) fn place(
        &self,
        program: Program,
        run: Option<&RunDir>,
        moves: bool,
        printer: &Printer,
    ) -> Result<Elsewhere, Failure> {
        let before = run.map(Slurm::of).transpose()?.flatten();
        let allocation = Allocation::here();
        let has_options = !self.sbatch.is_empty() || self.sbatch_script.is_some();
        let on = self.on.unwrap_or(match (&before, &allocation) {
            _ if has_options => On::Slurm,
            (Some(_), _) => On::Slurm,
            (None, Some(allocation)) if allocation.tasks > 1 => On::Allocation,
            _ => On::Here,
        });
        if has_options && on != On::Slurm {
            let error = InputError::new("--sbatch", "no jobs are submitted that could have options");
            return Err(error.hint("say --on slurm too, or leave it out").into());
        }
        match on {
            On::Here => Ok(Elsewhere { spawn: Spawn::Processes(program), listen: None, room: None }),
            On::Allocation => {
                let allocation = allocation.ok_or_else(|| {
                    InputError::new("--on allocation", "this command is not in an allocation of Slurm's")
                        .hint("start it within `salloc` or from a script for `sbatch`")
                })?;
                printer.note(format_args!(
                    "Slurm's job {} has {} tasks: each may be a worker (--on here starts them on this machine instead)",
                    allocation.job, allocation.tasks
                ));
                let listen = match allocation.nodes {
                    1 => None,
                    _ if !moves => None,
                    _ => Some(Slurm::new(Submit::default()).own_address()?),
                };
                let spawn = Spawn::Processes(program.launched_by(allocation.launcher()));
                Ok(Elsewhere { spawn, listen, room: Some(allocation.tasks) })
            }
            On::Slurm => {
                let slurm = match before.filter(|_| !has_options) {
                    // It worked before, and a controller that is away now is waited for.
                    Some(before) => before,
                    None => {
                        let slurm = Slurm::new(self.submit()?);
                        slurm.check()?;
                        slurm
                    }
                };
                let listen = if moves { Some(slurm.own_address()?) } else { None };
                Ok(Elsewhere { spawn: Spawn::Slurm(program, slurm), listen, room: None })
            }
        }
    }

    fn submit(&self) -> Result<Submit, Failure> {
        let script = script_in(self.sbatch_script.as_deref())?;
        Ok(Submit { options: self.sbatch.clone(), script })
    }
}

/// The beginning of jobs' scripts in this file; empty without one.
pub(crate) fn script_in(path: Option<&Path>) -> Result<String, Failure> {
    let Some(path) = path else { return Ok(String::new()) };
    std::fs::read_to_string(path).map_err(|e| Failure::at(path.display().to_string(), e))
}

/// The part of a range for which there is room.
pub(crate) fn within(workers: WorkerRange, room: Option<u32>) -> Result<WorkerRange, InputError> {
    let Some(room) = room else { return Ok(workers) };
    if workers.min > room {
        let what = format!("{} workers at least, and the allocation has {room} tasks", workers.min);
        return Err(InputError::new("--workers", what).hint("allocate more tasks, or choose fewer workers"));
    }
    Ok(WorkerRange { min: workers.min, max: workers.max.min(room) })
}
