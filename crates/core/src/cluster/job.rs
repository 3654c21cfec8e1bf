//! A job as a scheduler knows it.

use serde::{Deserialize, Serialize};

use super::{Switch, Way};
use crate::job::WorkerRange;
use crate::prediction::JobDescription;

/// A job as its author declared it, without the work that it holds: that is a [belief](super::JobView::remaining).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What a model must know of it; its name, too.
    pub description: JobDescription,
    /// When it was submitted, in seconds.
    pub arrival_s: f64,
    /// The fewest devices that it can use, in whole gangs.
    #[serde(rename = "least")]
    pub min_devices: u32,
    /// The most devices that it can use.
    #[serde(rename = "most")]
    pub max_devices: u32,
    /// Types of device that it may run on, as indices into
    /// [`ClusterView::device_types`](super::ClusterView::device_types); empty for any.
    pub device_types: Vec<u16>,
    /// Its share of the cluster against those of others.
    pub weight: f64,
    /// When it should be done, in seconds of the same clock.
    pub deadline_s: Option<f64>,
    /// Whether the policy may choose the batch (and with it the learning rate).
    pub adaptive_batch: bool,
    /// The ways in which its workers may be kept together; the first is its author's. Empty: all wait for all, without
    /// servers. Where there are several, a decision says which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
    /// When it goes on in another way, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Numbers of workers that it may have whatever way is chosen, where its ways differ in their servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerRange>,
    /// Its [queue](crate::queue), where the cluster has any; the default one if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

impl Job {
    /// A job that takes the devices that it asks for, on any type, and of which nothing else is special.
    ///
    /// ```
    /// use bellwether_core::cluster::Job;
    /// use bellwether_core::prediction::JobDescription;
    /// let description = JobDescription { name: "a".into(), model: "m".into(), batch: 1, devices: 4 };
    /// let job = Job::rigid(description, 10.0);
    /// assert!(job.is_rigid() && job.asked() == 4 && job.accepts(0));
    /// ```
    pub fn rigid(description: JobDescription, arrival_s: f64) -> Job {
        Job {
            arrival_s,
            min_devices: description.devices,
            max_devices: description.devices,
            device_types: Vec::new(),
            weight: 1.0,
            deadline_s: None,
            adaptive_batch: false,
            ways: Vec::new(),
            switch: None,
            workers: None,
            queue: None,
            description,
        }
    }

    /// Devices that it gets where it gets a fixed number: those that its author asked for, within its limits.
    pub fn asked(&self) -> u32 {
        self.description.devices.clamp(self.min_devices, self.max_devices.max(self.min_devices))
    }

    /// Whether it takes the devices that it asked for, or none.
    pub fn is_rigid(&self) -> bool {
        self.min_devices == self.max_devices
    }

    /// Whether it may run on this type of device.
    pub fn accepts(&self, device_type: u16) -> bool {
        self.device_types.is_empty() || self.device_types.contains(&device_type)
    }
}
