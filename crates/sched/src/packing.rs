//! Which two jobs may share devices, and what each keeps of its speed then.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{ClusterView, Job, JobId};
use bellwether_core::policy::Changes;
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use crate::speed::{Speeds, packed};

/// Two kinds of job, the smaller number first.
type Kinds = (u32, u32);

/// Answers of a model by kinds of job, and what trying has taught beside them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Together {
    /// By kinds of job, type of device and count: the parts of their speeds alone that the first and the second keep.
    kept: BTreeMap<(u32, u32, u16, u32), Option<[f64; 2]>>,
    /// Kinds that had no room together, or lost too much.
    refused: BTreeSet<Kinds>,
    /// Jobs that were put beside others, and the kinds of both.
    guests: BTreeMap<JobId, Kinds>,
}

impl Together {
    /// Takes in what happened: a job that was put beside another and lost its devices, though they work, had no room.
    /// Says whether that has taught anything.
    pub fn follow(&mut self, view: &ClusterView, changes: &Changes) -> bool {
        let before = self.refused.len();
        if changes.relearnt {
            self.kept.clear();
        }
        for id in changes.gone(view) {
            self.guests.remove(&id);
        }
        for (id, _) in &changes.lost {
            let Some(kinds) = self.guests.remove(id) else { continue };
            if changes.nodes.is_empty() && !changes.revised.contains(id) {
                self.refused.insert(kinds);
            }
        }
        self.refused.len() > before
    }

    /// The parts of their speeds alone that two jobs keep on the same `devices` devices of a type; `None` where that
    /// cannot be, by their limits, by the model, or as trying has shown.
    pub fn kept(
        &mut self,
        speeds: &mut Speeds,
        model: &dyn StepModel,
        view: &ClusterView,
        jobs: [&Job; 2],
        place: (u16, u32),
    ) -> Option<[f64; 2]> {
        let (device_type, devices) = place;
        let suits =
            |job: &&Job| job.accepts(device_type) && (job.min_devices..=job.max_devices).contains(&devices);
        if !view.packs || !jobs.iter().all(suits) {
            return None;
        }
        if self.is_refused(speeds, jobs) {
            return None;
        }
        let kinds = jobs.map(|job| speeds.kind(job));
        let key = (kinds[0], kinds[1], device_type, devices);
        *self.kept.entry(key).or_insert_with(|| ask(model, view, jobs, place))
    }

    /// A job is put beside another.
    pub fn join(&mut self, speeds: &mut Speeds, guest: (JobId, &Job), host: &Job) {
        let kinds = ordered([speeds.kind(guest.1), speeds.kind(host)]);
        self.guests.insert(guest.0, kinds);
    }

    /// Whether trying has shown that such jobs do not go together.
    pub fn is_refused(&self, speeds: &mut Speeds, jobs: [&Job; 2]) -> bool {
        self.refused.contains(&ordered(jobs.map(|job| speeds.kind(job))))
    }

    /// Two jobs lost too much: such are not put together again.
    pub fn refuse(&mut self, speeds: &mut Speeds, jobs: [&Job; 2]) {
        self.refused.insert(ordered(jobs.map(|job| speeds.kind(job))));
    }
}

fn ask(model: &dyn StepModel, view: &ClusterView, jobs: [&Job; 2], place: (u16, u32)) -> Option<[f64; 2]> {
    let allocation = packed(view, place.0, place.1)?;
    let kept = |own: &Job, other: &Job| {
        let configuration = view.configuration(own, &allocation, None);
        model.shared(&own.description, &configuration, &other.description).ok().flatten()
    };
    Some([kept(jobs[0], jobs[1])?, kept(jobs[1], jobs[0])?])
}

fn ordered(kinds: [u32; 2]) -> Kinds {
    (kinds[0].min(kinds[1]), kinds[0].max(kinds[1]))
}
