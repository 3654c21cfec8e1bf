//! Who holds which slot, and who held it.

use std::collections::{BTreeMap, VecDeque};

use bellwether_core::cluster::{Allocation, JobId};

use crate::machine::{Machine, Slot};

/// Past holdings that are remembered.
const PAST_KEPT: usize = 2000;

/// A job held a slot from then until then, on the daemon's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The job.
    pub job: JobId,
    /// The slot.
    pub slot: Slot,
    /// Since when, in seconds.
    pub start_s: f64,
    /// Until when, in seconds; absent while it is held.
    pub end_s: Option<f64>,
}

/// The slots that processes hold.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    held: BTreeMap<Slot, (JobId, f64)>,
    past: VecDeque<Held>,
    /// Slot-seconds of holdings that are over.
    past_slot_s: f64,
    /// Grows with every change.
    pub version: u64,
}

impl Slots {
    /// Slots of a job, in ascending order.
    pub fn of(&self, job: JobId) -> Vec<Slot> {
        self.held.iter().filter(|(_, (holder, _))| *holder == job).map(|(slot, _)| *slot).collect()
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
    /// When another job holds one of them.
    pub(super) fn hold(&mut self, job: JobId, slots: &[Slot], now_s: f64) -> Result<(), String> {
        for slot in slots {
            if let Some(other) = self.holder(*slot).filter(|other| *other != job) {
                return Err(format!(
                    "slot {} of node {} is held by jobs {} and {}",
                    slot.index, slot.node.0, other.0, job.0
                ));
            }
        }
        self.version += 1;
        for slot in self.of(job) {
            if slots.contains(&slot) {
                continue;
            }
            if let Some((_, start_s)) = self.held.remove(&slot) {
                self.past_slot_s += now_s - start_s;
                self.past.push_back(Held { job, slot, start_s, end_s: Some(now_s) });
            }
        }
        for slot in slots {
            self.held.entry(*slot).or_insert((job, now_s));
        }
        while self.past.len() > PAST_KEPT {
            self.past.pop_front();
        }
        Ok(())
    }

    /// Slots for `allocation`: those that the job holds there already before free ones; `None` when too few are free.
    pub fn find(&self, machine: &Machine, job: JobId, allocation: &Allocation) -> Option<Vec<Slot>> {
        let mut found = Vec::new();
        for share in allocation.shares() {
            let node = machine.nodes.get(share.node.0 as usize)?;
            let slots = || (0..node.devices).map(|index| Slot { node: share.node, index });
            let own = slots().filter(|slot| self.holder(*slot) == Some(job));
            let free = slots().filter(|slot| self.holder(*slot).is_none());
            let before = found.len();
            found.extend(own.chain(free).take(share.devices as usize));
            if found.len() - before < share.devices as usize {
                return None;
            }
        }
        found.sort_unstable();
        Some(found)
    }
}
