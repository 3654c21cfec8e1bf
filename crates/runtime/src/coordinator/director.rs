//! Directors steer a run while it goes on: an autoscaler, a provider that takes servers away.
//!
//! The coordinator shows what happens and carries out what is asked; it knows no reason of its own. Nothing here may
//! wait: the run stands still meanwhile.

use std::collections::BTreeMap;

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event as Journaled;

use super::{BatchPlan, Run, Spawned};
use crate::membership::coordinator::Event;
use crate::membership::{EvaluationRecord, Membership, StepRecord, WorkerId};

/// Steers a run.
pub trait Director {
    /// Takes in what happened, and answers what is to be done about it, in this order.
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<Command>;
}

/// What happened.
#[derive(Debug, Clone, Copy)]
pub enum RunEvent<'a> {
    /// A line was written to the journal.
    Journal(&'a Journaled),
    /// Steps became part of the result, in order; of each the account of its slowest worker.
    Committed(&'a [StepRecord]),
    /// A worker told of its own steps, before they were committed.
    Reported(WorkerId, &'a [StepRecord]),
    /// Time passed, at most a hundredth of a second.
    Tick,
}

/// How things are.
#[derive(Debug)]
pub struct RunStatus<'a> {
    /// Seconds since this coordinator began; they never go back.
    pub elapsed_s: f64,
    /// Committed steps.
    pub step: u64,
    /// Steps of the whole run; 0 until the size of the task is known.
    pub total_steps: u64,
    /// Workers wanted.
    pub wanted: u32,
    /// The step after which the workers wait for a verdict, while they do.
    pub awaited_verdict: Option<u64>,
    /// The last evaluation that this coordinator heard of.
    pub evaluation: Option<EvaluationRecord>,
    /// The membership in force.
    pub membership: &'a Membership,
    /// The workers that this coordinator started and whose processes (or threads) have not ended.
    pub processes: &'a [WorkerId],
}

/// What a director asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Let this many workers train from now on.
    Scale {
        /// Workers wanted, at least 1 and at most as many as there are virtual nodes.
        workers: u32,
        /// Who asks, for the journal.
        by: String,
    },
    /// Let an update cover another number of steps: refused where the job's batch may not move, or is fixed in advance.
    Accumulate(BatchPlan),
    /// Let this be who waits for whom from this boundary on, or from the next possible one if it has passed. What was
    /// planned for this boundary and later ones is void.
    Protocol {
        /// Steps that are done before it holds.
        at_step: u64,
        /// The protocol.
        protocol: Protocol,
    },
    /// Let this worker pause while all wait for all.
    Pause(WorkerId),
    /// Let every paused worker train again.
    Unpause,
    /// Start a worker that takes the place of this one, which goes on until then.
    Replace(WorkerId),
    /// Let this worker leave at the next boundary without another in its place.
    LeaveOut(WorkerId),
    /// Let the workers share the virtual nodes by these speeds, which are relative to each other; the others are taken
    /// for 1. Others than positive numbers are passed over.
    Share(BTreeMap<WorkerId, f64>),
    /// Let this worker leave at the next boundary, because its machine goes soon: another one takes its place.
    Relieve(WorkerId),
    /// Tell a worker of ours that its server will be taken away (SIGTERM, of a process).
    Warn(WorkerId),
    /// Take the server of a worker of ours away (SIGKILL, of a process).
    Revoke(WorkerId),
    /// Write a line to the journal.
    Note(Journaled),
    /// Let the run go on after a step at which its workers wait, or end there.
    Verdict {
        /// The step.
        step: u64,
        /// Why the run ends there; `None` where it goes on.
        ends: Option<String>,
    },
    /// Stop the run with a checkpoint.
    Stop {
        /// Who asks, for the journal.
        by: String,
    },
}

impl Run {
    /// Shows the director what happened, and does what it asks.
    pub(super) fn direct(&mut self, seen: RunEvent<'_>) {
        let Some(mut director) = self.options.director.take() else { return };
        let processes: Vec<WorkerId> = self.children.keys().copied().collect();
        let now = RunStatus {
            processes: &processes,
            elapsed_s: self.began.elapsed().as_secs_f64(),
            step: self.machine.progress().committed(),
            total_steps: self.total_steps(),
            wanted: self.machine.wanted(),
            awaited_verdict: self.machine.awaited_verdict(),
            evaluation: self.machine.evaluation(),
            membership: self.machine.membership(),
        };
        let commands = director.direct(seen, &now);
        self.options.director = Some(director);
        self.commands.extend(commands);
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Scale { workers, by } => self.scale(workers, by),
            Command::Accumulate(plan) => self.accumulate(plan),
            Command::Protocol { at_step, protocol } => self.handle(Event::Protocol(at_step, protocol)),
            Command::Pause(worker) => self.handle(Event::Pause(worker)),
            Command::Unpause => self.handle(Event::Unpause),
            Command::Replace(worker) => self.handle(Event::Replace(worker)),
            Command::LeaveOut(worker) => self.handle(Event::LeaveOut(worker)),
            Command::Share(mut speeds) => {
                speeds.retain(|_, speed| speed.is_normal() && *speed > 0.0);
                self.handle(Event::Speeds(speeds));
            }
            Command::Relieve(worker) => self.handle(Event::Relieve(worker)),
            Command::Warn(worker) => {
                self.handle(Event::Revoked(worker));
                self.tell(worker, |process| process.warn());
            }
            Command::Revoke(worker) => {
                self.handle(Event::Revoked(worker));
                self.tell(worker, |process| process.kill());
            }
            Command::Note(event) => self.write(&event),
            Command::Verdict { step, ends } => {
                if let Some(message) = self.verdict(step, ends) {
                    self.write(&Journaled::Warning { message });
                }
            }
            Command::Stop { by } => self.stop(&by),
        }
    }

    /// A process that has ended need not be told.
    fn tell(&mut self, worker: WorkerId, what: impl FnOnce(&mut dyn Spawned)) {
        let leaving = self.leaving.iter_mut().find(|leaving| leaving.worker == worker);
        let leaving = leaving.map(|leaving| &mut leaving.child);
        if let Some(process) = self.children.get_mut(&worker).or(leaving) {
            what(process.as_mut());
        }
    }
}
