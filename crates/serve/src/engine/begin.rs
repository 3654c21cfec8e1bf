//! A daemon takes a ledger up: the slots and the clock are those of the ledger, and processes may be there already.

use std::thread::available_parallelism;

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::knowledge::Knowledge;
use bellwether_core::policy::Fault;

use super::{DEFAULT_POLICY, Engine, EngineError, Options};
use crate::clock::Clock;
use crate::ledger::{Entry, Outcome};
use crate::machine::Machine;
use crate::runner::JobRunner;
use crate::state::{Record, State};

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// A daemon begins: who decides, and which processes are there already?
    pub(super) fn take_up(&mut self, is_new: bool) -> Result<(), EngineError> {
        let first = self.state.policy.is_empty().then(|| DEFAULT_POLICY.to_owned());
        let remaining = self.options.remaining.or(first.as_ref().map(|_| Knowledge::Expected));
        let chosen = self.options.policy.clone().or(first);
        self.options.registry.parse(chosen.as_ref().unwrap_or(&self.state.policy))?;
        if !is_new {
            self.compact_if_due()?;
            let version = env!("CARGO_PKG_VERSION").into();
            self.write(Entry::Reopened { version, process: std::process::id() })?;
        }
        self.correct_clock()?;
        // Before the policy, by which a ledger that begins is known.
        if let Some(remaining) = remaining.filter(|remaining| *remaining != self.state.early_ends.remaining) {
            self.write(Entry::RemainingChosen { remaining })?;
        }
        if let Some(policy) = chosen.filter(|policy| *policy != self.state.policy) {
            self.write(Entry::PolicyChosen { policy, by: "command line".into() })?;
        }
        let queues = self.options.queues.clone();
        if queues.is_some() && queues.as_ref() != self.state.queues_file().map(|file| &**file) {
            self.check_queues(queues.as_ref())?;
            self.write(Entry::QueuesChosen { queues, by: "command line".into() })?;
        }
        self.end_refused()?;
        self.commit()?;
        self.adopt()?;
        self.give_orders()?;
        self.commit()?;
        self.state.touched.extend(self.state.jobs.keys());
        self.publish(self.clock.elapsed());
        Ok(())
    }

    /// Jobs that a policy refused, and whose end was not written any more.
    fn end_refused(&mut self) -> Result<(), Fault> {
        let State { jobs, view, .. } = &self.state;
        let is_nowhere = |(id, record): &(&JobId, &Record)| {
            record.end.is_none()
                && record.unseen().is_none()
                && !record.cancelled
                && !view.jobs.contains_key(id)
        };
        let refused: Vec<JobId> = jobs.iter().filter(is_nowhere).map(|(id, _)| *id).collect();
        for job in refused {
            self.end(job, Outcome::Refused, "a policy refused it".into(), self.step(job), None)?;
        }
        Ok(())
    }
}

/// A ledger begins, with one slot for each core where the slots are not given.
pub(super) fn opened(options: &Options, unix_s: f64) -> Entry {
    let cores = || available_parallelism().map_or(1, |cores| cores.get() as u32);
    Entry::Opened {
        version: env!("CARGO_PKG_VERSION").into(),
        unix_s,
        time_scale: options.time_scale.unwrap_or(1.0),
        machine: options.machine.clone().unwrap_or_else(|| Machine::slots(cores())),
    }
}

/// Slots and clock are part of the ledger.
pub(super) fn same_world(options: &Options, state: &State) -> Result<(), InputError> {
    let other = |place, what: &str| {
        let error =
            InputError::new(place, format!("the ledger of this state directory was begun with {what}"));
        Err(error.hint(format!("leave {place} out to go on as before; --state-dir starts over elsewhere")))
    };
    if options.machine.as_ref().is_some_and(|machine| !state.machine.is_as(machine)) {
        return other("--slots", "other slots");
    }
    if options.time_scale.is_some_and(|scale| scale != state.time_scale) {
        return other("--time-scale", "another clock");
    }
    Ok(())
}
