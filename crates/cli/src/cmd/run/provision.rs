//! `run --plan PLAN.json --provision PROVIDER`: the machines of a plan, obtained and given back.

use std::net::SocketAddr;

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_session::machines::{Machines, ProviderKind};
use bellwether_session::slurm::{Slurm, Submit};
use bellwether_session::{Program, Spawn};

use super::args::RunArguments;
use crate::elsewhere::Elsewhere;
use crate::failure::Failure;
use crate::runs::{RunDir, StateDir};

/// Where the machines come from; `None` where none are to be obtained.
///
/// # Errors
///
/// Options that do not fit together, a plan that cannot be carried out.
pub(super) fn machines(
    arguments: &RunArguments,
    plan: Option<&Plan>,
    resumed: Option<&RunDir>,
    state_dir: &StateDir,
) -> Result<Option<Machines>, Failure> {
    if resumed.is_some() && plan.is_some() && arguments.provision.is_none() {
        let what = "a run that is resumed trains as it was begun";
        return Err(InputError::new("--plan", what)
            .hint("with --provision the plan says which machines it goes on with; else leave --plan out")
            .into());
    }
    // A daemon says of its jobs whether they have machines of their own.
    let resumed = resumed.filter(|_| !arguments.served || arguments.provision.is_some());
    let before = resumed.map(|run| Machines::of(run, state_dir)).transpose()?.flatten();
    let elsewhere = arguments.elsewhere.is_said() || arguments.no_spawn;
    let machines = match (arguments.provision, plan, before) {
        (Some(_), _, _) if elsewhere => {
            let what = "the provider's machines are where the workers are";
            return Err(InputError::new("--provision", what)
                .hint("leave --on and --no-spawn out; options of sbatch go into the catalogue: obtain.slurm")
                .into());
        }
        (None, _, Some(_)) if elsewhere => None,
        (None, _, before) => before,
        (Some(kind), Some(plan), _) => Some(Machines::new(kind, plan, state_dir.clone())?),
        (Some(kind), None, Some(before)) => Some(Machines::new(kind, before.plan(), state_dir.clone())?),
        (Some(_), None, None) => {
            let what = "nothing says which machines";
            let hint = "`bellwether plan PROFILE.json --catalog PRICES.toml --format json > plan.json` chooses \
                        them; then say --plan plan.json too";
            return Err(InputError::new("--provision", what).hint(hint).into());
        }
    };
    Ok(machines)
}

/// How workers are started on these machines, and where the coordinator listens.
pub(super) fn place(
    machines: &Machines,
    (listen, resumed): (Option<SocketAddr>, Option<&RunDir>),
    program: Program,
) -> Result<Elsewhere, Failure> {
    // A run that is resumed listens where it did.
    let is_known = listen.is_some() || resumed.is_some_and(|run| run.endpoint().is_some());
    let listen = match machines.provider() {
        _ if is_known => None,
        ProviderKind::Slurm => Some(Slurm::new(Submit::default()).own_address()?),
        kind if kind.needs_address() => {
            let what = "its machines cannot find the coordinator on loopback";
            return Err(InputError::new("--provision", what)
                .hint("name an address of this machine that they reach, with a port: --listen HOST:PORT")
                .into());
        }
        _ => None,
    };
    let spawn = Spawn::Machines(program, machines.clone());
    Ok(Elsewhere { spawn, listen, room: None })
}

/// The numbers of workers that are allowed: the run begins with the first machine, and other plans may want more.
pub(super) fn range(machines: &Machines, job: &Job) -> WorkerRange {
    let most = machines.plan().constraints.max_workers.max(start(machines));
    WorkerRange { min: 1, max: most.min(job.batch.virtual_nodes) }
}

/// The number of workers that the plan chose.
pub(super) fn start(machines: &Machines) -> u32 {
    machines.plan().chosen().map_or(1, |chosen| chosen.workers)
}
