//! The speed of jobs from their profiles, on any number of devices of a cluster.
//!
//! # Model
//!
//! That of [`crate::predict`], for the job whose profile has the name of the job's kind.
//!
//! # Source
//!
//! That of [`crate::predict`].
//!
//! # Assumes
//!
//! A device of relative speed 1 in the cluster is as fast as the one that the profile was measured on. A job that was
//! profiled on a type of device, too, is there as that profile says, whatever the relative speed. A job of which no
//! batch is said (or 1) has the profile's. Where the cluster's links are not described, they are as the profile's were;
//! without a measured link there is none, and a job runs on one device only. Where the memory of a device is known, a
//! job of which a worker needs more ([`crate::memory`]) does not run there.
//!
//! # Valid
//!
//! As [`crate::predict`] says of each configuration.
//!
//! # Checked by
//!
//! `tests/it/profiles.rs`: equal to the question of `predict`, on each device to that of its own profile, the laws of
//! [`StepModel`]; `simulate` with profiles in the command's tests.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use bellwether_core::profile::Profile;

use crate::common::answer::{not_known, own_devices};
use crate::predict::ProfileModel;

/// Profiles by name.
#[derive(Debug, Default)]
pub struct ProfiledJobs {
    speeds: BTreeMap<String, f64>,
    /// Bytes that a device of a type has for its worker, where it is known.
    memory: BTreeMap<String, u64>,
    jobs: BTreeMap<String, Known>,
}

/// What is known of the jobs of a name.
#[derive(Debug)]
struct Known {
    model: ProfileModel,
    /// Whether it has profiles of types of device alone, and nothing to which others are relative.
    is_by_device: bool,
}

impl ProfiledJobs {
    /// No profiles yet, for devices of these relative speeds; of a type that is not named it is 1.
    pub fn new(speeds: BTreeMap<String, f64>) -> ProfiledJobs {
        ProfiledJobs { speeds, memory: BTreeMap::new(), jobs: BTreeMap::new() }
    }

    /// The same, with the bytes that a device of a type has for its worker: jobs that need more do not run there.
    #[must_use]
    pub fn with_memory(self, memory: BTreeMap<String, u64>) -> ProfiledJobs {
        ProfiledJobs { memory, ..self }
    }

    /// Adds the profile of jobs that are called `name`, to which the speeds of devices are relative.
    ///
    /// # Errors
    ///
    /// Those of [`ProfileModel::new`] and [`ProfileModel::with_device`]; a name that is there already.
    pub fn add(&mut self, name: &str, profile: Profile) -> Result<(), InputError> {
        let mut model = ProfileModel::new(profile)?;
        for (device, speed) in &self.speeds {
            model = model.with_device(device, *speed)?;
        }
        if self.jobs.insert(name.to_string(), Known { model, is_by_device: false }).is_some() {
            return Err(InputError::new(name, "there are two profiles of this name"));
        }
        Ok(())
    }

    /// Adds what was measured of the same jobs on a type of device, after the profile to which speeds are relative, if
    /// there is one.
    ///
    /// # Errors
    ///
    /// Those of [`ProfileModel::with_profile`].
    pub fn add_on(&mut self, name: &str, device: &str, profile: Profile) -> Result<(), InputError> {
        let (model, is_by_device) = match self.jobs.remove(name) {
            Some(Known { model, is_by_device }) => (model, is_by_device),
            None => (ProfileModel::new(profile.clone())?, true),
        };
        let model = model.with_profile(device, profile)?;
        self.jobs.insert(name.to_string(), Known { model, is_by_device });
        Ok(())
    }

    /// Names of the profiles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// The configuration in the words of the profile.
    fn translated(
        &self,
        known: &Known,
        configuration: &Configuration,
    ) -> Result<Configuration, PredictError> {
        let Known { model, is_by_device } = known;
        let workers = own_devices(configuration)?;
        let profile = model.profile();
        let mut asked = configuration.clone();
        for group in asked.devices.iter_mut().filter(|group| !model.is_measured(&group.device)) {
            if *is_by_device {
                let why = format!("`{}` was not profiled on `{}`", profile.job, group.device);
                return Err(PredictError::Unsupported(why));
            }
            if !self.speeds.contains_key(&group.device) {
                group.device.clone_from(&profile.device);
            }
        }
        if asked.link.is_unlimited() {
            let devices = configuration.devices.iter().map(|group| group.device.as_str());
            asked.link = match model.measured_link(devices) {
                Some(link) => link,
                None if workers > 1 => {
                    let why = format!(
                        "the profile of `{}` has no measured link; describe the cluster's",
                        profile.job
                    );
                    return Err(PredictError::Incomplete(why));
                }
                None => asked.link,
            };
        }
        if !asked.protocol.waits_for_all() {
            asked = model.in_units(asked, configuration.accumulation);
        } else if asked.batch <= 1 {
            asked.batch = model.configuration(workers, asked.link).batch;
        }
        Ok(asked)
    }
}

impl StepModel for ProfiledJobs {
    fn fits(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        room_bytes: f64,
    ) -> Result<(), PredictError> {
        let Some(known) = self.jobs.get(&job.model) else { return Ok(()) };
        known.model.fits(job, &self.translated(known, configuration)?, room_bytes)
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.predict_on_part(job, configuration, 1.0)
    }

    /// A link that is not described is the profile's, of which there is a part then.
    fn predict_on_part(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        part: f64,
    ) -> Result<Prediction, PredictError> {
        let known =
            self.jobs.get(&job.model).ok_or_else(|| not_known(&job.model, "profile", self.names()))?;
        let (model, mut translated) = (&known.model, self.translated(known, configuration)?);
        translated.link.bandwidth_bytes_per_s *= part;
        let of_group = |device: &String| self.memory.get(device);
        let rooms = configuration.devices.iter().filter(|group| group.count > 0);
        if let Some(room) = rooms.filter_map(|group| of_group(&group.device)).min() {
            model.fits(job, &translated, *room as f64)?;
        }
        model.predict(job, &translated)
    }
}
