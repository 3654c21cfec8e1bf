//! Who holds which slot, and who held it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_core::cluster::{Allocation, JobId, NodeId};

use super::LineError;
use crate::ledger::{Held, KeptSlots};
use crate::machine::{Machine, MachineNode, Slot};

/// Past holdings that are remembered.
const PAST_KEPT: usize = 2000;

/// The slots that processes hold.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    held: BTreeMap<Slot, (JobId, f64)>,
    /// The same by job.
    by_job: BTreeMap<JobId, BTreeSet<Slot>>,
    past: VecDeque<Held>,
    /// Slot-seconds of holdings that are over.
    past_slot_s: f64,
    /// Grows with every change.
    pub version: u64,
}

impl From<&KeptSlots> for Slots {
    fn from(kept: &KeptSlots) -> Slots {
        let holding = |held: &Held| (held.slot, (held.job, held.start_s));
        let mut by_job: BTreeMap<JobId, BTreeSet<Slot>> = BTreeMap::new();
        for held in &kept.held {
            by_job.entry(held.job).or_default().insert(held.slot);
        }
        Slots {
            held: kept.held.iter().map(holding).collect(),
            by_job,
            past: kept.past.iter().copied().collect(),
            past_slot_s: kept.past_slot_s,
            version: 0,
        }
    }
}

impl Slots {
    /// All that is known of them.
    pub(super) fn kept(&self) -> KeptSlots {
        let (past, held) = self.all().partition(|held| held.end_s.is_some());
        KeptSlots { held, past, past_slot_s: self.past_slot_s }
    }

    /// Slots of a job, in ascending order.
    pub fn of(&self, job: JobId) -> Vec<Slot> {
        self.by_job.get(&job).into_iter().flatten().copied().collect()
    }

    /// Jobs that hold slots.
    pub fn holders(&self) -> impl Iterator<Item = JobId> {
        self.by_job.keys().copied()
    }

    /// Who holds a slot.
    pub fn holder(&self, slot: Slot) -> Option<JobId> {
        self.held.get(&slot).map(|(job, _)| *job)
    }

    /// How many are held.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Slot-seconds held until `now_s`.
    pub fn slot_s(&self, now_s: f64) -> f64 {
        self.past_slot_s + self.held.values().map(|(_, since_s)| now_s - since_s).sum::<f64>()
    }

    /// Past holdings, oldest first, then those of now.
    pub fn all(&self) -> impl Iterator<Item = Held> {
        let now = self.held.iter().map(|(slot, (job, start_s))| Held {
            job: *job,
            slot: *slot,
            start_s: *start_s,
            end_s: None,
        });
        self.past.iter().copied().chain(now)
    }

    /// From `now_s` on `job` holds exactly these.
    ///
    /// # Errors
    ///
    /// Returns an error if another job holds one of them.
    pub(super) fn hold(&mut self, job: JobId, slots: &[Slot], now_s: f64) -> Result<(), LineError> {
        for slot in slots {
            if let Some(other) = self.holder(*slot).filter(|other| *other != job) {
                return Err(LineError::SlotTwice { slot: *slot, holders: [other, job] });
            }
        }
        self.keep(job, slots, now_s);
        for slot in slots {
            self.held.entry(*slot).or_insert((job, now_s));
            self.by_job.entry(job).or_default().insert(*slot);
        }
        Ok(())
    }

    /// From `now_s` on the job holds none.
    pub(super) fn free(&mut self, job: JobId, now_s: f64) {
        self.keep(job, &[], now_s);
    }

    /// Of the slots that the job holds, it keeps these.
    fn keep(&mut self, job: JobId, slots: &[Slot], now_s: f64) {
        self.version += 1;
        for slot in self.of(job) {
            if slots.contains(&slot) {
                continue;
            }
            if let Some(own) = self.by_job.get_mut(&job) {
                own.remove(&slot);
                if own.is_empty() {
                    self.by_job.remove(&job);
                }
            }
            if let Some((_, start_s)) = self.held.remove(&slot) {
                self.past_slot_s += now_s - start_s;
                self.past.push_back(Held { job, slot, start_s, end_s: Some(now_s) });
            }
        }
        while self.past.len() > PAST_KEPT {
            self.past.pop_front();
        }
    }

    /// Slots for `allocation`: those that the job holds there already before free ones; `None` when too few are free.
    ///
    /// Where a node has too few, others of its type lend theirs: two jobs that change places would otherwise each wait
    /// for the other for ever, and others for both.
    pub fn find(
        &self,
        machine: &Machine,
        is_up: impl Fn(NodeId) -> bool,
        job: JobId,
        allocation: &Allocation,
    ) -> Option<Vec<Slot>> {
        let mut found = BTreeSet::new();
        let mut lent = Vec::new();
        for share in allocation.shares() {
            let node = machine.nodes.get(share.node.0 as usize)?;
            let short = self.add(&mut found, job, share.devices, [(share.node, node.devices)].into_iter());
            lent.push((node.device_type, short));
        }
        for (kind, short) in lent.into_iter().filter(|(_, short)| *short > 0) {
            let is_fit = |(place, node): &(NodeId, &MachineNode)| node.device_type == kind && is_up(*place);
            let nodes = (0..).map(NodeId).zip(&machine.nodes).filter(is_fit);
            if self.add(&mut found, job, short, nodes.map(|(place, node)| (place, node.devices))) > 0 {
                return None;
            }
        }
        Some(found.into_iter().collect())
    }

    /// Adds slots of these nodes, the job's own before free ones; says how many are missing.
    fn add(
        &self,
        found: &mut BTreeSet<Slot>,
        job: JobId,
        devices: u32,
        nodes: impl Iterator<Item = (NodeId, u32)> + Clone,
    ) -> u32 {
        let mut missing = devices;
        for holder in [Some(job), None] {
            let slots =
                nodes.clone().flat_map(|(node, devices)| (0..devices).map(move |index| Slot { node, index }));
            for slot in slots {
                if missing > 0 && self.holder(slot) == holder && found.insert(slot) {
                    missing -= 1;
                }
            }
        }
        missing
    }
}
