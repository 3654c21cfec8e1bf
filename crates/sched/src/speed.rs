//! How fast a job would be on some devices of one type, remembered by kind of job.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobView, NodeId, Way};
use bellwether_core::policy::Changes;
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

/// What jobs of one model and one kind share: their batch, the devices asked for, and their ways.
type Kind = (u64, u32, Vec<Way>);

/// Answers of a model for gangs that are packed on few nodes. Jobs of equal model, batch, asked devices and ways are of
/// one kind, and are asked for once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    kinds: BTreeMap<String, BTreeMap<Kind, u32>>,
    rates: BTreeMap<(u32, u16, u32), Option<f64>>,
}

impl Speeds {
    /// Nothing known yet.
    pub fn new() -> Speeds {
        Speeds::default()
    }

    /// Forgets the answers of a model that has learnt since.
    pub fn follow(&mut self, changes: &Changes) {
        if changes.relearnt {
            *self = Speeds::new();
        }
    }

    /// A number that jobs of one kind share.
    pub fn kind(&mut self, job: &Job) -> u32 {
        let next = self.kinds.values().map(|kinds| kinds.len() as u32).sum();
        let description = &job.description;
        let by_batch = match self.kinds.get_mut(&description.model) {
            Some(known) => known,
            None => self.kinds.entry(description.model.clone()).or_default(),
        };
        *by_batch.entry((description.batch, description.devices, job.ways.clone())).or_insert(next)
    }

    /// Work per second at the job's own batch on `devices` devices of a type, packed on few nodes; `None` when it does
    /// not accept them, the cluster has too few, or the model cannot speak of them.
    pub fn rate(
        &mut self,
        model: &dyn StepModel,
        view: &ClusterView,
        job: &Job,
        device_type: u16,
        devices: u32,
    ) -> Option<f64> {
        if devices == 0 || !job.accepts(device_type) {
            return None;
        }
        let key = (self.kind(job), device_type, devices);
        if let Some(&rate) = self.rates.get(&key) {
            return rate;
        }
        let rate = packed(view, device_type, devices).and_then(|allocation| {
            view.fastest_way(model, job, &allocation, None).map(|(_, prediction)| prediction.examples_per_s)
        });
        self.rates.insert(key, rate);
        rate
    }

    /// Work per second on the devices that its author asked for, of the type where that is most.
    pub fn asked_rate(&mut self, model: &dyn StepModel, view: &ClusterView, job: &Job) -> Option<f64> {
        let types = 0..view.device_types.len() as u16;
        types.filter_map(|kind| self.rate(model, view, job, kind, job.asked())).max_by(f64::total_cmp)
    }

    /// Seconds that a job still takes: of one that runs until its end, of one that waits on the devices that its author
    /// asked for. `None` when its remaining work or its speed is not known.
    pub fn remaining_s(
        &mut self,
        model: &dyn StepModel,
        view: &ClusterView,
        seen: &JobView,
        now_s: f64,
    ) -> Option<f64> {
        match seen.end_s() {
            Some(end_s) => Some((end_s - now_s).max(0.0)),
            None => Some(seen.remaining(now_s)? / self.asked_rate(model, view, &seen.job)?),
        }
    }
}

/// `devices` devices of a type on as few nodes as can be, as if no job held any; the largest nodes first, down or not.
pub fn packed(view: &ClusterView, device_type: u16, devices: u32) -> Option<Allocation> {
    let mut rooms: Vec<(NodeId, u32)> = view.nodes_of(device_type).collect();
    rooms.sort_by_key(|&(node, devices)| (Reverse(devices), node));
    Allocation::filling(rooms.into_iter(), devices)
}
