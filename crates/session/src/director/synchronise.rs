//! Who waits for whom in a run, as its job says.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::{Job, Order, Reduce};
use bellwether_core::plan::{Plan, Synchronisation, TransmissionOrder};
use bellwether_core::record::{Decision, Event, StepRecord};
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::{WorkerId, WorkloadDescription};
use bellwether_runtime::run_dir::StateDir;
use bellwether_sched::synchronise::{Setup, SyncCommand, Synchroniser};

use super::phases::Phases;
use super::windows::{Expected, Windows};
use crate::begin::planned;
use crate::error::RunError;
use crate::tune::Tuned;

/// Of two workers it cannot be said which is slow and which is quick.
const LEAST_WORKERS: usize = 3;

/// What the job's file leaves to be decided. A search may have found the share of synchronous steps for this
/// job, and have kept it in the state directory.
///
/// # Errors
///
/// Returns an error for a policy against stragglers that does not fit the phases.
pub(crate) fn setup(
    job: &Job,
    description: &WorkloadDescription,
    state_dir: Option<&StateDir>,
) -> Result<Option<Setup>, InputError> {
    let total_steps = job.total_steps(description.training_samples);
    let tuned = state_dir.and_then(|state_dir| Tuned::find(state_dir, job)).map(|tuned| tuned.fraction);
    Setup::of(&job.sync, total_steps, job.batch.virtual_nodes, tuned)
}

/// The phases of the run, its servers, and in which order parts travel.
///
/// # Errors
///
/// Returns an error for a plan for another job.
pub(crate) fn synchronisation(
    job: &Job,
    description: &WorkloadDescription,
    setup: Option<&Setup>,
    plan: Option<&Plan>,
) -> Result<Synchronisation, RunError> {
    let total_steps = job.total_steps(description.training_samples);
    let order = match job.sync.order {
        Order::Fifo => TransmissionOrder::Fifo,
        Order::Window(window_bytes) => TransmissionOrder::RoundRobin { window_bytes },
        // The forward pass needs the tensors in the order of the layout.
        Order::Priority => {
            TransmissionOrder::Priority((0..description.layout.parameters.len() as u32).collect())
        }
    };
    let mut synchronisation = Synchronisation {
        phases: setup.map_or_else(|| job.sync.policy.phases(total_steps), Setup::phases),
        servers: job.sync.servers,
        reduce_at_servers: job.sync.reduce == Reduce::Servers,
        replica: job.sync.replica,
        order,
    };
    plan.map_or(Ok(()), |plan| planned::order(plan, description, &mut synchronisation))?;
    Ok(synchronisation)
}

/// Decides when the workers wait for each other, where the job's file leaves it open.
pub(crate) fn director(setup: Setup) -> Box<dyn Director> {
    Box::new(SyncDirector {
        decider: Synchroniser::new(setup),
        opening: setup.reason().map(|reason| reason.to_string()),
        windows: Windows::new(Expected::Speeds(BTreeMap::new()), LEAST_WORKERS),
        phases: Phases::default(),
    })
}

/// Shows a run to the decider, and hands on what it commands.
struct SyncDirector {
    decider: Synchroniser,
    /// Why the run begins as it does, until it is told.
    opening: Option<String>,
    windows: Windows,
    phases: Phases,
}

impl SyncDirector {
    fn committed(&mut self, records: &[StepRecord]) {
        for record in records {
            let protocol = self.phases.at(record.step);
            self.decider.committed(record.step, protocol, record.loss.unwrap_or(f64::NAN));
        }
    }
}

impl Director for SyncDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let windows = self.windows.see(seen);
        match seen {
            RunEvent::Journal(event) if matches!(event, Event::Protocol { .. }) => self.phases.note(event),
            RunEvent::Journal(Event::Membership { .. }) => {
                let number = |worker: &WorkerId| u32::try_from(*worker).ok();
                let members: Vec<u32> = self.windows.members().iter().filter_map(number).collect();
                self.decider.members(&members);
            }
            RunEvent::Committed(records) => self.committed(records),
            _ => return Vec::new(),
        }
        windows.iter().for_each(|window| self.decider.observe(window));
        let opening = self.opening.take().map(|reason| note(reason, now));
        let commands = self.decider.decide();
        opening.into_iter().chain(commands.iter().flat_map(|command| carry_out(command, now))).collect()
    }
}

fn carry_out(command: &bellwether_sched::synchronise::Command, now: &RunStatus<'_>) -> [DirectorCommand; 2] {
    let act = match command.command {
        SyncCommand::Protocol(protocol) => DirectorCommand::Protocol { at_step: command.at_step, protocol },
        SyncCommand::Evict(worker) => DirectorCommand::Pause(WorkerId::from(worker)),
        SyncCommand::Restore => DirectorCommand::Unpause,
    };
    [note(command.reason.to_string(), now), act]
}

fn note(reason: String, now: &RunStatus<'_>) -> DirectorCommand {
    DirectorCommand::Note(Event::Decided(Decision {
        by: "sync".into(),
        step: now.step,
        workers: 0,
        target: 0,
        reason,
    }))
}
