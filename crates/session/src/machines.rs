//! Machines of a run that a provider gives: obtained as a plan says, watched, replaced, and given back.
//!
//! A provider is one of those that exist ([`ProviderKind`]), behind [`core::machines`](bellwether_core::machines).
//! What is wanted and held is a plain value ([`sched::fleet`](bellwether_sched::fleet)); the clerk, a thread, carries
//! out what it says. Before anything is asked for, it stands in the lease, a file of the state directory: whatever
//! dies, [`release`] finds what is left and gives it back.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::lease::{LEASE_VERSION, Lease};
use bellwether_core::machines::Tag;
use bellwether_core::plan::Plan;
use bellwether_core::record::Provisioned;
use bellwether_runtime::coordinator::{self, Director};
use bellwether_runtime::journal::now_s;
use bellwether_runtime::run_dir::{LeaseFile, RunDir, StateDir};
use bellwether_sched::fleet::{Fleet, supplies};
use bellwether_sched::promise::Promise;
use bellwether_sched::promise::keeper::Keeper;

use crate::director::machines::MachineDirector;
use crate::error::{RunError, at};
use crate::program::Program;
use clerk::Clerk;
use holder::Holder;
pub use kubernetes::pods;
pub use leases::{Found, Leased, Released, holding, leases, release, release_run};
pub use provider::ProviderKind;
use script::Scripts;
use shared::Shared;
pub use skypilot::clusters;

mod clerk;
mod here;
pub(crate) mod holder;
mod keeper;
mod kubernetes;
mod leases;
mod provider;
mod script;
pub(crate) mod shared;
mod skypilot;
mod slurm;
mod ways;

/// The holder of the run that was started last.
type Known = Option<(RunDir, Weak<Holder>)>;

/// Starts workers on machines that a provider gives as a plan says.
#[derive(Clone)]
pub struct Machines {
    kind: ProviderKind,
    plan: Arc<Plan>,
    state_dir: StateDir,
    holder: Arc<Mutex<Known>>,
    account: Arc<Mutex<Option<Provisioned>>>,
}

impl Machines {
    /// Machines of this provider, as a plan says; leases lie in the state directory.
    ///
    /// # Errors
    ///
    /// Same errors as [`carried_out`].
    pub fn new(kind: ProviderKind, plan: &Plan, state_dir: StateDir) -> Result<Machines, InputError> {
        Ok(Machines {
            kind,
            plan: Arc::new(carried_out(kind, plan)?),
            state_dir,
            holder: Arc::default(),
            account: Arc::default(),
        })
    }

    /// The machines of a run that was started with some, and is to be resumed; `None` for another run.
    ///
    /// # Errors
    ///
    /// As the file system says, or for a lease that cannot be read.
    pub fn of(run: &RunDir, state_dir: &StateDir) -> Result<Option<Machines>, InputError> {
        let Some(lease) = lease_of(run, state_dir)? else { return Ok(None) };
        let kind = ProviderKind::named(&lease.provider).map_err(|error| error.at(&lease.lease))?;
        Machines::new(kind, &lease.plan, state_dir.clone()).map(Some)
    }

    /// Who gives the machines.
    pub fn provider(&self) -> ProviderKind {
        self.kind
    }

    /// The plan that is carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the machines of the last run cost, once it has ended.
    pub(crate) fn account(&self) -> Option<Provisioned> {
        self.account.lock().expect("no holder of this lock panics").take()
    }

    pub(crate) fn workers(&self, run: &RunDir, program: &Program) -> Result<coordinator::Spawn, RunError> {
        let holder = self.holder(run, program)?;
        Ok(Box::new(move |number, address| Ok(Box::new(holder.ask(number, address)))))
    }

    pub(crate) fn director(&self, run: &RunDir, program: &Program) -> Result<Box<dyn Director>, RunError> {
        let batch = run.job()?.batch.size;
        Ok(Box::new(MachineDirector::new(self.holder(run, program)?, batch)))
    }

    /// The holder of a run's machines.
    fn holder(&self, run: &RunDir, program: &Program) -> Result<Arc<Holder>, RunError> {
        let mut known = self.holder.lock().expect("no holder of this lock panics");
        let same = known.as_ref().filter(|(of, _)| of == run);
        if let Some(holder) = same.and_then(|(_, holder)| holder.upgrade()) {
            return Ok(holder);
        }
        let holder = Arc::new(self.open(run, program)?);
        *known = Some((run.clone(), Arc::downgrade(&holder)));
        Ok(holder)
    }

    fn open(&self, run: &RunDir, program: &Program) -> Result<Holder, RunError> {
        let (lease, file) = self.lease(run)?;
        let provider = self.kind.open(&lease.plan, &lease.place);
        let keeper = Keeper::new(&lease.plan, lease.began_s).map_err(RunError::Option)?;
        let promise = keeper.promise();
        let mut fleet = Fleet::new(supplies(promise.basis()), promise.chosen().clone(), provider.settle_s());
        let untold = fleet.restore(&lease.machines, now_s());
        let scripts =
            Scripts { run: run.clone(), program: program.clone(), shares_files: self.kind.shares_files() };
        let account = Arc::clone(&self.account);
        let progress = clerk::Progress::new(lease.open().next().is_some());
        let holder = Holder::open(Shared::new(fleet), |shared| Clerk {
            shared,
            provider,
            scripts,
            keeper,
            lease,
            file,
            untold,
            account,
            progress,
        });
        holder.map_err(|e| at("--provision", e).into())
    }

    /// The lease of a run: that of an earlier coordinator, or a new one.
    fn lease(&self, run: &RunDir) -> Result<(Lease, LeaseFile), RunError> {
        if let Some(mut lease) = lease_of(run, &self.state_dir).map_err(RunError::Input)? {
            let Some(file) = self.hold(&lease)? else {
                let what = format!("another process holds the lease {}", lease.lease);
                let hint = "`bellwether machines` shows it; wait until the other process has ended";
                return Err(RunError::Input(InputError::new("--provision", what).hint(hint)));
            };
            // Who held it before may have given something back meanwhile.
            lease = self.state_dir.read_lease(&lease.lease).map_err(RunError::Input)?;
            if lease.provider != self.kind.name() && lease.open().next().is_some() {
                let what = format!("the run holds machines of {}", lease.provider);
                let hint = "give them back first: `bellwether machines release --orphaned`";
                return Err(RunError::Input(InputError::new("--provision", what).hint(hint)));
            }
            if lease.provider != self.kind.name() || lease.open().next().is_none() {
                lease.place = self.kind.place();
            }
            // A deadline that was given again counts from when the first machine was asked for, as the old one did.
            (lease.provider, lease.plan) = (self.kind.name().into(), Box::new((*self.plan).clone()));
            return Ok((lease, file));
        }
        let (word, file) = self.state_dir.begin_lease()?;
        let lease = Lease {
            version: LEASE_VERSION,
            lease: word,
            provider: self.kind.name().into(),
            place: self.kind.place(),
            run: run.path.display().to_string(),
            began_s: now_s(),
            plan: Box::new((*self.plan).clone()),
            machines: Vec::new(),
        };
        file.write(&lease)?;
        Ok((lease, file))
    }

    /// Holds a lease, as soon as a process that gives back what is left of it has done so.
    fn hold(&self, lease: &Lease) -> Result<Option<LeaseFile>, RunError> {
        let settle_s = self.kind.open(&lease.plan, &lease.place).settle_s();
        let until = Instant::now() + leases::PATIENCE + Duration::from_secs_f64(settle_s);
        loop {
            let held = self.state_dir.hold_lease(&lease.lease)?;
            if held.is_some() || Instant::now() >= until {
                return Ok(held);
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Machines").field(&self.kind).finish()
    }
}

/// When a run's folder got its job, in seconds since the Unix epoch.
fn made_s(run: &RunDir) -> f64 {
    let made = std::fs::metadata(run.job_file()).and_then(|file| file.modified());
    let since = made.ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(f64::INFINITY, |since| since.as_secs_f64())
}

/// The lease of a run, of several the one that began last. A new run may have the name of one that was removed, whose
/// lease stays as a record; and a coordinator may die between its lease and its first line.
fn lease_of(run: &RunDir, state_dir: &StateDir) -> Result<Option<Lease>, InputError> {
    let is_of_this_run = |lease: &Lease| {
        let may_hold = run.journal_file().exists() && lease.open().next().is_some();
        may_hold || lease.began_s >= made_s(run)
    };
    let of_run = leases::readable(state_dir)?.filter(|lease| Path::new(&lease.run) == run.path);
    let newest = of_run.max_by(|one, other| one.began_s.total_cmp(&other.began_s));
    Ok(newest.filter(is_of_this_run))
}

/// What of a plan a provider carries out: without what it might have chosen.
///
/// # Errors
///
/// Returns an error for a plan that chose nothing, of an earlier program, whose machines cannot be asked for, or
/// whose workers need parameter servers.
pub fn carried_out(kind: ProviderKind, plan: &Plan) -> Result<Plan, InputError> {
    Promise::of(plan)?;
    kind.check(plan)?;
    if plan.chosen().and_then(|chosen| chosen.way.as_ref()).is_some_and(|way| way.servers > 0) {
        let what = "no parameter servers are started on machines that a provider gives";
        return Err(InputError::new("--provision", what).hint(
            "plan without --servers, or start the machines by hand and join with `bellwether worker`",
        ));
    }
    let chosen = plan.chosen().cloned();
    let (candidates, on_demand) = (chosen.into_iter().collect(), Vec::new());
    Ok(Plan { candidates, on_demand, choice: Some(0), relaxations: Vec::new(), ..plan.clone() })
}

/// The tag of a machine of a lease.
fn tag(lease: &Lease, number: u64) -> Tag {
    Tag { lease: lease.lease.clone(), number }
}
