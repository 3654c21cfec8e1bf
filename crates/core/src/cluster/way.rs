//! How the workers of a job are kept together, and what that makes of the devices that it holds.

use serde::{Deserialize, Serialize};

use super::{Allocation, Batch, ClusterView, Job, JobView, Share};
use crate::prediction::{Configuration, DeviceGroup, Link, Prediction, Protocol, StepModel};

/// A way in which the workers of a job are kept together. A job's devices are those of its workers and of its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Way {
    /// Who waits for whom.
    pub protocol: Protocol,
    /// Parameter servers, one device each; 0 for none.
    pub servers: u32,
    /// Virtual nodes whose gradients make one update through servers.
    pub nodes_per_update: u32,
}

impl Default for Way {
    /// All wait for all, without servers.
    fn default() -> Way {
        Way { protocol: Protocol::Bsp, servers: 0, nodes_per_update: 1 }
    }
}

/// A change of protocol at a point of a job's work (Sync-Switch).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Part of the declared work after which it happens, between 0 and 1.
    pub at: f64,
    /// The ways from there on, the first its author's.
    pub ways: Vec<Way>,
}

impl Job {
    /// The way that its author chose.
    pub fn way(&self) -> Way {
        self.ways.first().copied().unwrap_or_default()
    }

    /// Whether a way leaves it as many of `devices` for workers as it may have.
    fn allows(&self, way: Way, devices: u32) -> bool {
        let workers = devices.saturating_sub(way.servers);
        workers > 0 && self.workers.is_none_or(|range| (range.min..=range.max).contains(&workers))
    }

    /// The ways that a decision may choose from.
    pub fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        let plain = self.ways.is_empty().then(Way::default);
        self.ways.iter().copied().chain(plain)
    }
}

impl JobView {
    /// The way in which its workers are kept together.
    pub fn way(&self) -> Way {
        self.way.unwrap_or_else(|| self.job.way())
    }

    /// Its workers: devices that it holds, without those of its servers.
    pub fn workers(&self) -> u32 {
        self.allocation.devices().saturating_sub(self.way().servers)
    }
}

impl ClusterView {
    /// The words of models for a job that runs on `allocation` in the [way](Job::way) that its author chose.
    ///
    /// # Panics
    ///
    /// When a share names a node or type that is not there.
    pub fn configuration(&self, job: &Job, allocation: &Allocation, batch: Option<Batch>) -> Configuration {
        self.configuration_in(job.way(), job, allocation, batch)
    }

    /// The same in another way. The servers have the last devices of the allocation, and workers the others.
    ///
    /// # Panics
    ///
    /// When a share names a node or type that is not there.
    pub fn configuration_in(
        &self,
        way: Way,
        job: &Job,
        allocation: &Allocation,
        batch: Option<Batch>,
    ) -> Configuration {
        let mut workers = allocation.devices().saturating_sub(way.servers);
        let group = |share: &Share| {
            let count = share.devices.min(workers);
            workers -= count;
            let device =
                self.device_types[usize::from(self.nodes[share.node.0 as usize].device_type)].clone();
            DeviceGroup { node: share.node.0, device, count }
        };
        let devices: Vec<DeviceGroup> =
            allocation.shares().iter().map(group).filter(|group| group.count > 0).collect();
        let batch = batch.unwrap_or(Batch { samples: job.description.batch, accumulation: 1 });
        let link = self.link.unwrap_or(Link::UNLIMITED);
        let mut configuration = Configuration::synchronous(devices, batch.samples, link);
        configuration.accumulation = batch.accumulation.max(way.nodes_per_update);
        configuration.local_link = self.local_link;
        (configuration.protocol, configuration.servers) = (way.protocol, way.servers);
        configuration
    }

    /// The way of those that the job allows in which `model` believes it to be fastest on `allocation`, the first of
    /// equal ones, and how fast; `None` where the model can speak of none.
    ///
    /// # Panics
    ///
    /// When a share names a node or type that is not there.
    pub fn fastest_way(
        &self,
        model: &dyn StepModel,
        job: &Job,
        allocation: &Allocation,
        batch: Option<Batch>,
    ) -> Option<(Way, Prediction)> {
        let mut best: Option<(Way, Prediction)> = None;
        for way in job.ways().filter(|way| job.allows(*way, allocation.devices())) {
            let configuration = self.configuration_in(way, job, allocation, batch);
            let Ok(prediction) = model.predict(&job.description, &configuration) else { continue };
            if best.as_ref().is_none_or(|(_, known)| prediction.examples_per_s > known.examples_per_s) {
                best = Some((way, prediction));
            }
        }
        best
    }
}
