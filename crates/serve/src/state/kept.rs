//! The state as the lines of a compacted ledger, and back.

use std::io;
use std::iter::once;

use bellwether_core::cluster::Allocation;

use super::{DECISIONS_KEPT, LineError, Queues, Slots, State};
use crate::ledger::{Entry, KeptJob, KeptState, Line, read_from};
use crate::snapshot::DecisionState;

/// What is wrong with a ledger that ends while its state [is being restored](State::is_restoring).
pub(crate) const RESTORING: &str = "it was compacted, and the end of what was kept then is missing; \
    ledger.jsonl.before beside it holds what was known before";

impl State {
    /// A ledger from which this same state follows, with a line for each job and each decision that is remembered. It
    /// was read back: what a number of JSON cannot say, or memory had wrong, is never put in the place of a ledger.
    ///
    /// # Errors
    ///
    /// Returns an error if another state follows from those lines.
    pub fn compacted(&self) -> io::Result<Vec<u8>> {
        let bytes = self.written()?;
        let mut again = None;
        read_from(bytes.as_slice(), |line| State::fold(&mut again, &line))?;
        let is_same = again.is_some_and(|again| again.written().is_ok_and(|again| again == bytes));
        let differs = || io::Error::other("another state follows from the compacted ledger");
        is_same.then_some(bytes).ok_or_else(differs)
    }

    fn written(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for entry in self.entries() {
            serde_json::to_writer(&mut bytes, &Line { time_s: self.now_s, entry })?;
            bytes.push(b'\n');
        }
        Ok(bytes)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        let opened = Entry::Compacted {
            version: env!("CARGO_PKG_VERSION").into(),
            unix_s: self.unix_s,
            time_scale: self.time_scale,
            machine: self.machine.clone(),
        };
        let jobs = self.jobs.iter().map(|(id, record)| {
            let seen = self.view.jobs.get(id).cloned();
            let kept = Box::new(KeptJob { record: record.clone(), seen });
            match record.submitted.provision {
                Some(_) => Entry::KeptElsewhere(kept),
                None => Entry::KeptJob(kept),
            }
        });
        let decisions =
            self.decisions.iter().map(|decision| Entry::KeptDecision { decision: decision.clone() });
        let rest = Entry::KeptState(Box::new(KeptState {
            policy: self.policy.clone(),
            policies: self.policies,
            changes: self.changes.clone(),
            slots: self.slots.kept(),
            unsettled: self.unsettled.clone(),
            observed: self.belief.observed(),
            decided: self.decided,
            down: self.down.clone().into_iter().collect(),
            taken: self.taken.clone().into_iter().collect(),
            queues: self.queues.as_ref().map(Queues::kept),
            early_ends: self.early_ends.clone(),
        }));
        once(opened).chain(jobs).chain(decisions).chain(once(rest))
    }

    /// Whether such a line may come here. One that comes too early tells that the last of those that were kept is
    /// missing, and with it who holds which slot.
    pub(super) fn check_place(&mut self, entry: &Entry) -> Result<(), LineError> {
        let is_kept = matches!(
            entry,
            Entry::KeptJob(_) | Entry::KeptElsewhere(_) | Entry::KeptDecision { .. } | Entry::KeptState(_)
        );
        let was_restoring = self.is_restoring;
        self.is_restoring &= is_kept;
        match (is_kept, was_restoring) {
            (true, false) => Err(LineError::Misplaced("something that a compaction kept, after other lines")),
            // What was repaired is settled from the start.
            (false, true) if !matches!(entry, Entry::Repaired { .. }) => {
                Err(LineError::Misplaced("the state that a compaction kept is missing before it"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn keep_job(&mut self, kept: &KeptJob) -> Result<(), LineError> {
        let KeptJob { record, seen } = kept;
        let (id, name) = (record.submitted.id, &record.submitted.name);
        if self.names.contains_key(name) || id < self.next_job() {
            return Err(LineError::JobTwice { name: name.clone() });
        }
        if let Some(seen) = seen {
            if !self.has_free(&seen.allocation) {
                return Err(LineError::Devices { name: name.clone() });
            }
            self.view.take(&seen.allocation);
            self.view.jobs.insert(id, seen.clone());
        }
        self.touch(id);
        self.introduce(record.clone());
        Ok(())
    }

    fn has_free(&self, allocation: &Allocation) -> bool {
        let mut free: Vec<u32> = self.view.nodes.iter().map(|node| node.free).collect();
        allocation.shares().iter().all(|share| {
            let left = free.get_mut(share.node.0 as usize);
            left.is_some_and(|left| left.checked_sub(share.devices).map(|less| *left = less).is_some())
        })
    }

    pub(super) fn keep_decision(&mut self, decision: &DecisionState) {
        self.decided = decision.number;
        self.decisions.push_back(decision.clone());
        if self.decisions.len() > DECISIONS_KEPT {
            self.decisions.pop_front();
        }
        self.decisions_changed = true;
    }

    /// What is of a job whose line was lost goes with it.
    pub(super) fn keep_state(&mut self, kept: &KeptState) {
        let KeptState {
            policy,
            policies,
            mut changes,
            mut slots,
            mut unsettled,
            observed,
            decided,
            mut down,
            mut taken,
            queues,
            early_ends,
        } = kept.clone();
        taken.retain(|(node, _)| (node.0 as usize) < self.view.nodes.len());
        for (node, taken) in &taken {
            let seen = &mut self.view.nodes[node.0 as usize];
            seen.devices = seen.devices.saturating_sub(*taken);
            seen.free = seen.free.saturating_sub(*taken);
        }
        self.taken = taken.into_iter().collect();
        down.retain(|(node, _)| (node.0 as usize) < self.view.nodes.len());
        for (node, _) in &down {
            self.view.nodes[node.0 as usize].up = false;
        }
        self.down = down.into_iter().collect();
        slots.held.retain(|held| self.jobs.contains_key(&held.job));
        unsettled.retain(|job| self.jobs.contains_key(job));
        for named in [&mut changes.arrived, &mut changes.revised] {
            named.retain(|job| self.view.jobs.contains_key(job));
        }
        (self.policy, self.policies, self.decided) = (policy, policies, decided);
        (self.changes, self.unsettled) = (changes, unsettled);
        self.slots = Slots::from(&slots);
        self.early_ends = early_ends.restored();
        self.belief.learn(|known| *known = observed);
        self.queues = queues.and_then(|kept| Queues::restored(&kept, &self.view));
        self.is_restoring = false;
    }
}
