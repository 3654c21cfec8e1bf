//! The file that describes a federation: its members, what they have, what is asked of them, and what the public
//! cloud costs.
//!
//! One file may describe queues (`[jobs]`, members with `servers` and `arrivals_per_hour`), resource affinity
//! (`[[class]]`, members with `devices` and `demand`), or both.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::parse::document;

use crate::game::affinity::{self, Affinity};
use crate::queue::simulation::{Arrivals, Law};

mod file;

/// Seconds of an hour.
pub const HOUR_S: f64 = 3600.0;

/// What an own server costs where nothing is said: this part of what the public cloud takes for the work that it
/// could do. As the published evaluation assumes (IEEE CLOUD 2022).
pub const SERVER_PRICE_SHARE: f64 = 0.7;

/// Answers what a file names that the description names: examples per second of each class on one device of each type.
pub trait Speeds {
    /// Examples per second of the job that a throughput table at `path` calls `job`, on one device, by type.
    ///
    /// # Errors
    ///
    /// Returns an error for a table that cannot be read, or does not know the job.
    fn table(&self, path: &str, job: &str) -> Result<BTreeMap<String, f64>, InputError>;

    /// Examples per second of one worker, predicted from the profile at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error for a profile that cannot be read.
    fn profile(&self, path: &str) -> Result<f64, InputError>;

    /// Pairs of arrival and work, both in seconds, from the trace at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error for a trace that cannot be read.
    fn trace(&self, path: &str) -> Result<Vec<(f64, f64)>, InputError>;
}

/// For descriptions that name no files: refuses every one.
#[derive(Debug, Clone, Copy)]
pub struct NoFiles;

impl NoFiles {
    fn refuse<T>(path: &str) -> Result<T, InputError> {
        Err(InputError::new(path, "no files can be read here").hint("write the numbers into the description"))
    }
}

impl Speeds for NoFiles {
    fn table(&self, path: &str, _: &str) -> Result<BTreeMap<String, f64>, InputError> {
        NoFiles::refuse(path)
    }

    fn profile(&self, path: &str) -> Result<f64, InputError> {
        NoFiles::refuse(path)
    }

    fn trace(&self, path: &str) -> Result<Vec<(f64, f64)>, InputError> {
        NoFiles::refuse(path)
    }
}

/// A federation, as it was described.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The members, in the order of the file.
    pub members: Vec<Member>,
    /// Jobs that queue for servers; `None` where the file has no `[jobs]`.
    pub jobs: Option<Jobs>,
    /// Classes of jobs with speeds of their own; `None` where the file has no `[[class]]`.
    pub affinity: Option<Classes>,
    /// How lent servers are paid inside.
    pub prices: Prices,
}

/// A datacenter.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its name, which no other has.
    pub name: String,
    /// Servers, all alike, for the games of queues.
    pub servers: u32,
    /// How many of them are shared.
    pub shared: u32,
    /// How jobs arrive.
    pub arrivals: Arrivals,
    /// Longest mean wait that its jobs may have, in seconds.
    pub longest_wait_s: f64,
    /// Devices of each type, in the order of [`Classes::devices`].
    pub devices: Vec<f64>,
    /// Demand of each class, in examples per second.
    pub demand: Vec<f64>,
}

/// Jobs that queue for servers that are all alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// Mean time of a job on a server, in seconds.
    pub mean_time_s: f64,
    /// Law of that time.
    pub law: Law,
    /// What the public cloud takes for one job, in dollars.
    pub public_dollars: f64,
    /// What a busy server costs more than an idle one for the mean time of a job, in dollars.
    pub busy_dollars: f64,
    /// What a member's own server costs, in dollars per hour.
    pub server_dollars_per_hour: f64,
    /// Additional seconds of a job that runs away from home.
    pub transfer_s: f64,
}

impl Jobs {
    /// What is saved by one job that the public cloud need not do, in dollars.
    pub fn saved_dollars(&self) -> f64 {
        self.public_dollars - self.busy_dollars
    }

    /// Jobs that a server does per second.
    pub fn service_per_s(&self) -> f64 {
        1.0 / self.mean_time_s
    }
}

/// Classes of jobs, and their speeds by type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes {
    /// Types of device, in the order of their names.
    pub devices: Vec<String>,
    /// What a member's own device of each type costs, in dollars per hour; 0 where it is not known.
    pub own_dollars_per_hour: Vec<f64>,
    /// The classes, in the order of the file.
    pub classes: Vec<Class>,
}

/// A class of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name, which no other has.
    pub name: String,
    /// Examples per second on one device of each type; 0 where it cannot run.
    pub examples_per_s: Vec<f64>,
    /// What the public cloud takes, in dollars per hour, for one example per second.
    pub public_dollars_per_hour: f64,
    /// Examples of one job on average, where jobs are told apart.
    pub job_examples: Option<f64>,
    /// Devices of one job.
    pub job_devices: u32,
    /// The share of capacity more that its work takes on another member's devices.
    pub transfer: f64,
}

/// How lent servers are paid inside, and how much their owners mind.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// Prices of a lent server, each relative to what the public cloud takes for its time; of lent devices,
    /// relative to the market's rents.
    pub internal: Vec<f64>,
    /// How much a member minds that its servers are busier, 0 (not) to 1.
    pub gamma: f64,
}

impl Description {
    /// Reads a description; `place` names it in errors, `speeds` reads the files that it names.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no member, two of one name, neither jobs nor classes, a time of no length,
    /// more shared than owned, a demand or a number of devices that is negative, a class that no device runs, a class
    /// that has no public price.
    ///
    /// ```
    /// use bellwether_federation::description::{Description, NoFiles};
    /// let text = r#"
    ///     [jobs]
    ///     mean_time = "1h"
    ///     public_price = "$1"
    ///     [[member]]
    ///     name = "north"
    ///     servers = 50
    ///     arrivals_per_hour = 30
    /// "#;
    /// let federation = Description::read(text, "two.toml", &NoFiles)?;
    /// assert_eq!(federation.members[0].shared, 50);
    /// let wrong = text.replace("servers = 50", "servers = 50\nshared = 51");
    /// let error = Description::read(&wrong, "two.toml", &NoFiles).unwrap_err();
    /// assert!(error.to_string().contains("shares 51 of 50"), "{error}");
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn read(text: &str, place: &str, speeds: &dyn Speeds) -> Result<Description, InputError> {
        let file: file::File = document(text, place)?;
        if file.member.is_empty() {
            return Err(InputError::new(place, "the federation has no members")
                .hint("write a table [[member]] with name and servers (or devices) for each"));
        }
        if file.jobs.is_none() && file.class.is_empty() {
            return Err(InputError::new(place, "nothing says which jobs there are").hint(
                "write [jobs] for jobs that queue for servers, or [[class]] for jobs that suit some devices",
            ));
        }
        let prices = file::prices(file.prices, place)?;
        let jobs = file.jobs.map(|jobs| file::jobs(jobs, place)).transpose()?;
        let affinity = file::classes(file.class, [&file.public, &file.own], &file.member, place, speeds)?;
        let mut members: Vec<Member> = Vec::with_capacity(file.member.len());
        for (number, read) in (1..).zip(file.member) {
            let place = format!("{place}: member {number} ({})", read.name);
            if members.iter().any(|member| member.name == read.name) {
                return Err(InputError::new(place, "another member has this name").hint("rename one of them"));
            }
            members.push(file::member(read, &place, jobs.as_ref(), affinity.as_ref(), speeds)?);
        }
        Ok(Description { members, jobs, affinity, prices })
    }

    /// The linear production game of its classes and devices; `None` where it has no classes.
    ///
    /// # Errors
    ///
    /// See [`Affinity::new`].
    pub fn affinity_game(&self) -> Result<Option<Affinity>, InputError> {
        let Some(classes) = &self.affinity else { return Ok(None) };
        let class = |class: &Class| affinity::Class {
            name: class.name.clone(),
            speeds: class.examples_per_s.clone(),
            public_price: class.public_dollars_per_hour,
            transfer: class.transfer,
        };
        let member = |member: &Member| affinity::Member {
            name: member.name.clone(),
            owned: member.devices.clone(),
            demand: member.demand.clone(),
        };
        let (classes, devices) = (classes.classes.iter().map(class), classes.devices.clone());
        Affinity::new(devices, classes.collect(), self.members.iter().map(member).collect()).map(Some)
    }

    /// The JSON schema of such a file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(file::File).to_value()
    }
}
