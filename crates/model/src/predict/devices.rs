//! The workers' types of device: faster or slower than the profiled one by a factor, or measured by themselves.

use std::ptr;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, PredictError};
use bellwether_core::profile::Profile;

use super::ProfileModel;
use super::slowest::expected_maximum_s;
use crate::compute::Durations;

/// What is known of a type of device.
#[derive(Debug, Clone)]
pub(super) enum Device {
    /// How many times as fast as the profiled one it computes.
    Relative(f64),
    /// What the same job takes there.
    Measured(Arc<ProfileModel>),
}

/// Workers on equally fast devices.
pub(super) struct Class<'a> {
    pub(super) workers: u32,
    /// What was measured on such a device, or on the one to which its speed is relative.
    pub(super) model: &'a ProfileModel,
    pub(super) speed: f64,
}

impl ProfileModel {
    /// The same with a device type of another speed: 2 computes twice as fast as the profiled one.
    ///
    /// # Errors
    ///
    /// Returns an error for a speed that is not positive and finite.
    pub fn with_device(mut self, device: &str, speed: f64) -> Result<ProfileModel, InputError> {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(InputError::new(device, format!("a speed of {speed} computes nothing"))
                .hint("1 is the profiled device, 2 is twice as fast"));
        }
        self.devices.insert(device.to_string(), Device::Relative(speed));
        Ok(self)
    }

    /// The same with a device type on which the job was measured, too: what is said of workers there rests on this
    /// profile alone.
    ///
    /// # Errors
    ///
    /// Returns an error for a profile of another job, and those of [`ProfileModel::new`].
    pub fn with_profile(mut self, device: &str, profile: Profile) -> Result<ProfileModel, InputError> {
        self.profile.check_same_job(&profile)?;
        let measured = ProfileModel::new(profile)?;
        self.devices.insert(device.to_string(), Device::Measured(Arc::new(measured)));
        Ok(self)
    }

    /// What was measured on this type of device; the profile itself where nothing was.
    pub fn on(&self, device: &str) -> &ProfileModel {
        match self.devices.get(device) {
            Some(Device::Measured(model)) => model,
            _ => self,
        }
    }

    /// Whether it has a profile of its own.
    pub fn is_measured(&self, device: &str) -> bool {
        matches!(self.devices.get(device), Some(Device::Measured(_)))
    }

    /// The link between workers on these types of device, as it was measured: the slowest where several were. It is the
    /// profile's where no type is named.
    pub fn measured_link<'a>(&self, devices: impl Iterator<Item = &'a str>) -> Option<Link> {
        let own = |model: &ProfileModel| model.profile.network.map(Link::from);
        let mut devices = devices.peekable();
        match devices.peek() {
            None => own(self),
            Some(_) => devices.filter_map(|device| own(self.on(device))).reduce(slower),
        }
    }

    /// What was measured on the workers' devices, each once.
    pub(super) fn models(&self, configuration: &Configuration) -> Vec<&ProfileModel> {
        let mut models: Vec<&ProfileModel> = Vec::new();
        for group in configuration.devices.iter().filter(|group| group.count > 0) {
            let model = self.on(&group.device);
            if !models.iter().any(|known| ptr::eq(*known, model)) {
                models.push(model);
            }
        }
        models
    }

    /// The largest of what is said of the workers' devices.
    pub(super) fn most(&self, configuration: &Configuration, of: impl Fn(&ProfileModel) -> f64) -> f64 {
        self.models(configuration).into_iter().map(of).fold(0.0, f64::max)
    }

    /// Where all workers have one type of device that has a profile of its own: what was measured there, and the
    /// configuration in its words.
    pub(super) fn measured_there(
        &self,
        configuration: &Configuration,
    ) -> Option<(&ProfileModel, Configuration)> {
        let [model] = self.models(configuration)[..] else { return None };
        if ptr::eq(model, self) {
            return None;
        }
        let mut there = configuration.clone();
        for group in &mut there.devices {
            group.device.clone_from(&model.profile.device);
        }
        Some((model, there))
    }

    /// The workers of a group.
    pub(super) fn class(&self, group: &DeviceGroup) -> Result<Class<'_>, PredictError> {
        let (device, workers) = (&group.device, group.count);
        match self.devices.get(device) {
            Some(Device::Relative(speed)) => Ok(Class { workers, model: self, speed: *speed }),
            Some(Device::Measured(model)) => Ok(Class { workers, model, speed: 1.0 }),
            None => Err(PredictError::Unknown(format!(
                "nothing is known of the device `{device}`; say --device {device}=SPEED or {device}=PROFILE.json"
            ))),
        }
    }

    /// The workers by how fast their devices are.
    pub(super) fn classes(&self, configuration: &Configuration) -> Result<Vec<Class<'_>>, PredictError> {
        let mut classes: Vec<Class<'_>> = Vec::new();
        for group in configuration.devices.iter().filter(|group| group.count > 0) {
            let found = self.class(group)?;
            // Mostly the neighbour's: a cluster has few types of devices.
            let same = classes
                .iter_mut()
                .rev()
                .find(|class| class.speed == found.speed && ptr::eq(class.model, found.model));
            match same {
                Some(class) => class.workers = class.workers.saturating_add(found.workers),
                None => classes.push(found),
            }
        }
        Ok(classes)
    }

    /// The speed of a class relative to the profiled device: of one with a profile of its own, by the mean of what both
    /// compute.
    pub(super) fn relative(&self, class: &Class<'_>, configuration: &Configuration) -> f64 {
        if ptr::eq(class.model, self) {
            return class.speed;
        }
        let mean_s = |model: &ProfileModel| model.mean_compute_s() * model.compute_factor(configuration);
        mean_s(self) / mean_s(class.model)
    }

    /// How many workers compute at each speed relative to the profiled device, the slowest first.
    pub(super) fn worker_speeds(
        &self,
        configuration: &Configuration,
    ) -> Result<Vec<(u32, f64)>, PredictError> {
        let classes = self.classes(configuration)?;
        let mut speeds: Vec<(u32, f64)> =
            classes.iter().map(|class| (class.workers, self.relative(class, configuration))).collect();
        speeds.sort_by(|left, right| left.1.total_cmp(&right.1));
        Ok(speeds)
    }

    /// Mean speed of the workers.
    pub(super) fn mean_speed(&self, configuration: &Configuration) -> Result<f64, PredictError> {
        let speeds = self.worker_speeds(configuration)?;
        let sum: f64 = speeds.iter().map(|(count, speed)| f64::from(*count) * speed).sum();
        Ok(sum / f64::from(configuration.workers()))
    }

    /// Mean of the slowest worker's computing of this many virtual nodes, in seconds.
    pub(super) fn slowest_s(&self, configuration: &Configuration, nodes: u32) -> Result<f64, PredictError> {
        let classes = self.classes(configuration)?;
        let factor = |class: &Class<'_>| class.model.compute_factor(configuration) / class.speed;
        if let [only] = classes.as_slice() {
            let durations = only.model.durations(nodes)?;
            return Ok(durations.expected_maximum_s(configuration.workers()) * factor(only));
        }
        let taken_s = |class: &Class<'_>| -> Result<(u32, Durations), InputError> {
            Ok((class.workers, class.model.durations(nodes)?.scaled(factor(class))?))
        };
        let classes = classes.iter().map(taken_s).collect::<Result<Vec<_>, _>>()?;
        Ok(expected_maximum_s(&classes))
    }
}

/// The link between workers of which each has another one.
pub fn slower(one: Link, other: Link) -> Link {
    Link {
        bandwidth_bytes_per_s: one.bandwidth_bytes_per_s.min(other.bandwidth_bytes_per_s),
        latency_s: one.latency_s.max(other.latency_s),
    }
}
