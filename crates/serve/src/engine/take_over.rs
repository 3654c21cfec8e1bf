//! Jobs that train already though the ledger is new: another one was lost, and what runs is known from elsewhere.

use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, NodeId, Share};
use bellwether_core::policy::{Action, Decision, Reason, Rule};

use super::{Engine, EngineError};
use crate::clock::Clock;
use crate::ledger::Entry;
use crate::request::{Refusal, Submission};
use crate::runner::{JobRunner, NodeSeen};

/// A job that trains, and where.
#[derive(Debug, Clone)]
pub struct Running {
    /// The job as it would be submitted.
    pub submission: Submission,
    /// Its slots on each node, by the node's name.
    pub places: BTreeMap<String, u32>,
}

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Takes jobs over that train on these nodes, as if it had decided so itself; then a fresh policy decides. Answers
    /// with the jobs that could not be accepted.
    ///
    /// # Errors
    ///
    /// Returns an error if the ledger cannot be written.
    pub fn take_over(
        &mut self,
        nodes: &[NodeSeen],
        running: Vec<Running>,
    ) -> Result<Vec<Refusal>, EngineError> {
        self.nodes(nodes)?;
        let mut refused = Vec::new();
        let mut held = Vec::new();
        for Running { submission, places } in running {
            match self.admit(submission) {
                Ok(submitted) => {
                    let job = submitted.id;
                    self.write(Entry::Submitted(Box::new(submitted)))?;
                    held.push((job, self.allocation_on(&places)));
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        held.retain(|(_, allocation)| !allocation.is_empty());
        if held.is_empty() {
            self.commit()?;
            return Ok(refused);
        }
        let allocate = |(job, allocation): &(_, Allocation)| Action::Allocate {
            job: *job,
            allocation: allocation.clone(),
            batch: None,
            expected: None,
            beside: None,
            way: None,
        };
        let actions: Vec<Action> = held.iter().map(allocate).collect();
        let started = u32::try_from(actions.len()).unwrap_or(u32::MAX);
        let reason = Reason { rule: Rule::Custom, started, stopped: 0, resized: 0, waiting: 0, reclaimed: 0 };
        self.write(Entry::Moment { progress: Vec::new() })?;
        let decision = Decision { actions, reason, next_wakeup_s: None };
        self.write(Entry::Decided { decision, deciding_s: 0.0 })?;
        for (job, allocation) in held {
            if let Some(slots) = self.slots_for(job, &allocation) {
                self.write(Entry::Held { job, slots })?;
            }
        }
        let version = env!("CARGO_PKG_VERSION").into();
        self.write(Entry::Reopened { version, process: std::process::id() })?;
        self.commit()?;
        self.give_orders()?;
        self.commit()?;
        Ok(refused)
    }

    /// Slots on these nodes, as far as they have them.
    fn allocation_on(&self, places: &BTreeMap<String, u32>) -> Allocation {
        let nodes = &self.state.machine.nodes;
        let share = |(name, devices): (&String, &u32)| {
            let place = nodes.iter().position(|node| node.name == *name)?;
            let node = NodeId(u32::try_from(place).ok()?);
            let devices = (*devices).min(nodes[place].devices);
            Some(Share { node, devices })
        };
        Allocation::new(places.iter().filter_map(share).collect())
    }
}
