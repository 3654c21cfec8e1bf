//! Two jobs on the same devices: who joins, who stays when the other one goes, and who finds no memory.

use bellwether_core::cluster::{JobId, JobView};
use bellwether_core::prediction::{Configuration, PredictError};

use super::{Before, World};

impl World<'_> {
    /// Remembers what a job holds, and what the one beside it holds, before a decision changes that.
    pub(super) fn touch(&mut self, id: JobId, is_named: bool) {
        let Some(seen) = self.view.jobs.get(&id) else { return };
        let before = || Before {
            allocation: seen.allocation.clone(),
            batch: seen.batch,
            beside: seen.beside,
            is_named: false,
        };
        let before = self.touched.entry(id).or_insert_with(before);
        before.is_named |= is_named;
        if let Some(other) = seen.beside.filter(|other| !self.touched.contains_key(other)) {
            self.touch(other, false);
        }
    }

    /// A job that holds nothing is put beside another; both may do so.
    pub(super) fn join(&mut self, id: JobId, other: JobId) {
        self.touch(other, false);
        for (own, beside) in [(id, other), (other, id)] {
            if let Some(seen) = self.view.jobs.get_mut(&own) {
                seen.beside = Some(beside);
            }
            if let Some(truth) = self.truths.get_mut(own) {
                truth.is_guest = own == id;
            }
        }
    }

    /// Whether each of two jobs says that it shares its devices with the other, and both hold the same.
    pub(super) fn is_pair(&self, id: JobId, other: JobId) -> bool {
        let [Some(one), Some(two)] = [id, other].map(|id| self.view.jobs.get(&id)) else { return false };
        let is_mutual = one.beside == Some(other) && two.beside == Some(id) && id != other;
        self.view.packs && is_mutual && one.is_running() && one.allocation == two.allocation
    }

    /// The part of its speed alone that a job keeps beside another: the whole speed, or nothing for the one that came
    /// later, where there is no memory for both.
    pub(super) fn kept(
        &self,
        id: JobId,
        configuration: &Configuration,
        other: JobId,
    ) -> Result<f64, PredictError> {
        let [own, beside] = [id, other].map(|id| &self.view.jobs[&id].job.description);
        let is_guest = self.truths.get(id).is_some_and(|truth| truth.is_guest);
        let without_room = if is_guest { 0.0 } else { 1.0 };
        Ok(self.truth.shared(own, configuration, beside)?.unwrap_or(without_room))
    }

    /// The job beside it is about to go: it has the devices for itself.
    pub(super) fn leave_alone(&mut self, id: JobId) {
        let Some(seen) = self.view.jobs.get_mut(&id) else { return };
        let (held, begins_s) = (seen.allocation.clone(), seen.progress_s);
        self.recording.span(id, &held, seen, self.now_s);
        seen.turn(&held, self.now_s, 0.0);
        go_on(seen, begins_s, None);
        seen.beside = None;
        // It ran alone or could have, so its speed is known.
        let _ = self.advance(id);
    }

    /// A job found no memory beside another: it waits again.
    pub(super) fn expel(&mut self, id: JobId) {
        let Some(seen) = self.view.jobs.get_mut(&id) else { return };
        let Some(other) = seen.beside else { return };
        let held = seen.allocation.clone();
        seen.settle(&held, self.now_s);
        self.recording.span(id, &held, seen, self.now_s);
        self.recording.preempted(id);
        (seen.allocated_s, seen.progress_s) = (self.now_s, self.now_s);
        self.leave_alone(other);
        let freed = self.view.vacate(id);
        self.links.touch(id);
        self.running -= 1;
        let _ = self.advance(id);
        self.changes.lost.push((id, freed));
    }
}

/// A job goes on with as many devices of the same nodes, beside another or no longer: where it moved to other devices
/// of these nodes that is a restart, and else it begins when it would have begun.
pub(super) fn go_on(seen: &mut JobView, begins_s: f64, moved: Option<f64>) {
    match moved {
        Some(restart_s) => {
            seen.restarts += 1;
            seen.progress_s += restart_s;
        }
        None => seen.progress_s = seen.progress_s.max(begins_s),
    }
}
