//! Workloads: a generator of traces, described by a TOML file, and the description of a trace from which such a file
//! follows.

use bellwether_core::cluster::{Switch, Way};
use bellwether_core::{InputError, parse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trace::ways_of;

mod arrivals;
mod classes;
mod describe;
mod fit;
mod gap_fit;
mod gaps;
mod generate;
mod hidden;
mod law;
mod modulated;
mod rival;
mod write;

pub use arrivals::{Arrivals, State};
pub use describe::{Concurrency, Description, Group, Summary, Window, describe};
pub use fit::{ArrivalFit, Candidate, Dispersion};
pub use gap_fit::GapFit;
pub use gaps::GapState;
pub use generate::generate;
pub use law::{Amount, Law};
pub use write::write_csv;

/// More jobs than this are a mistyped number.
const JOBS_MAX: u32 = 100_000_000;

/// A generator of traces. It draws jobs until there are `jobs` of them or `horizon` is over, whichever comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How many jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// For how long jobs arrive, in seconds or with a unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Amount>,
    /// Offered load: the device-seconds that arrive in a second, as a share of `gpus`. The rates of arrival are scaled
    /// so that it is this on average; without it they are what they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The devices that `load` is a share of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// When jobs arrive.
    pub arrivals: Arrivals,
    /// Kinds of jobs.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

impl Workload {
    /// The JSON schema of a generator file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Workload).to_value()
    }
}

/// A kind of jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// How many of all jobs are of this kind, relative to the shares of the others; 1 where nothing is said.
    #[serde(default = "one")]
    pub share: f64,
    /// Devices that a job asks for.
    pub gpus: u32,
    /// For how long it runs on them, in seconds or with a unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Law>,
    /// Steps or samples, in the place of a duration, where a model says the speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Law>,
    /// The model that it trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Samples of a step; 1 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The fewest devices that it can use; what it asks for where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_gpu: Option<u32>,
    /// The most devices that it can use; what it asks for where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu: Option<u32>,
    /// Its share of the cluster against those of others; 1 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// It should be done this many times its duration after it arrives; there is no deadline where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slack: Option<Law>,
    /// Types of device that it may run on; any where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Whether the policy may choose the batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adaptive_batch: bool,
    /// Who waits for whom, as in a trace: "asp", or several of which a decision chooses, "bsp|asp".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Parameter servers: "1", or a range of which a decision chooses, "1..4".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<String>,
    /// Virtual nodes whose gradients make one update through servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_per_update: Option<u32>,
    /// Part of the work for which it is synchronous before it goes on by its protocol (Sync-Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_at: Option<f64>,
    /// The queue of its jobs, where a simulation has queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

fn one() -> f64 {
    1.0
}

impl Workload {
    /// Reads a generator file. `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed file, or one that describes an impossible workload.
    ///
    /// ```
    /// use bellwether_sim::workload::{Workload, generate};
    /// let file = r#"
    ///     jobs = 100
    ///     arrivals = { kind = "poisson", per_hour = 60 }
    ///     [[class]]
    ///     gpus = 4
    ///     duration = { kind = "exponential", mean = "2h" }
    /// "#;
    /// let trace = generate(&Workload::parse(file, "w.toml")?, 1, &[])?;
    /// assert_eq!(trace.entries.len(), 100);
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn parse(text: &str, place: &str) -> Result<Workload, InputError> {
        let workload: Workload = parse::document(text, place)?;
        workload
            .check()
            .map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
        Ok(workload)
    }

    /// The generator file.
    ///
    /// # Panics
    ///
    /// Never: all that a workload holds can be written as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers, words and tables are TOML")
    }

    /// Whether jobs can be drawn from it.
    ///
    /// # Errors
    ///
    /// Returns the first thing that makes no sense, with its key.
    pub fn check(&self) -> Result<(), InputError> {
        let wrong = |key: &str, what: String| Err(InputError::new(key, what));
        match (self.jobs, self.horizon) {
            (None, None) => return wrong("jobs", "neither `jobs` nor `horizon` says where to stop".into()),
            (Some(jobs), _) if !(1..=JOBS_MAX).contains(&jobs) => {
                return wrong("jobs", format!("{jobs} is not between 1 and {JOBS_MAX}"));
            }
            (_, Some(horizon)) if !(horizon.0 > 0.0 && horizon.0 <= 1e12) => {
                return wrong("horizon", format!("no jobs can arrive within {} s", horizon.0));
            }
            _ => {}
        }
        if self.classes.is_empty() {
            return wrong("class", "there is no kind of jobs".into());
        }
        self.arrivals.check(self.classes.len())?;
        for (at, class) in self.classes.iter().enumerate() {
            class.check().map_err(|error| InputError {
                place: format!("class {}: {}", at + 1, error.place),
                ..error
            })?;
        }
        if self.classes.iter().all(|class| class.share == 0.0) {
            return wrong("share", "all shares are 0".into());
        }
        match (self.load, self.gpus) {
            (Some(load), _) if !(load.is_finite() && load > 0.0) => {
                wrong("load", format!("{load} is not a load"))
            }
            (Some(_), None | Some(0)) => {
                wrong("gpus", "a load is a share of a number of devices: give it".into())
            }
            (Some(_), _) if self.device_seconds().is_none() => {
                wrong("load", "a load needs the durations of all classes".into())
            }
            (None, _) if !self.arrivals.says_rates() => {
                wrong("arrivals", "neither `per_hour` nor `load` says how many jobs arrive".into())
            }
            _ => self.check_rate(),
        }
    }

    /// A horizon must not hold more jobs than can be drawn.
    fn check_rate(&self) -> Result<(), InputError> {
        let rate = self.arrivals.mean_per_s() * self.scale();
        if !(rate.is_finite() && rate > 0.0) {
            return Err(InputError::new(
                "arrivals",
                format!("invalid average arrival rate: {rate} jobs per second"),
            ));
        }
        match self.horizon {
            Some(horizon) if self.jobs.is_none() && rate * horizon.0 > f64::from(JOBS_MAX) => {
                let what = format!(
                    "about {:e} jobs arrive in {} s; {JOBS_MAX} can be drawn",
                    rate * horizon.0,
                    horizon.0
                );
                Err(InputError::new("horizon", what))
            }
            _ => Ok(()),
        }
    }

    /// Device-seconds of a job on average; `None` where one is not declared by its duration.
    fn device_seconds(&self) -> Option<f64> {
        let by_class = || self.classes.iter().map(|class| class.share).collect();
        let shares: Vec<f64> = self.arrivals.class_shares().unwrap_or_else(by_class);
        let mut sum = 0.0;
        for (class, share) in self.classes.iter().zip(&shares) {
            sum += share * f64::from(class.gpus) * class.duration.as_ref()?.mean();
        }
        Some(sum / shares.iter().sum::<f64>())
    }

    /// By how much all rates are multiplied for the load.
    fn scale(&self) -> f64 {
        match (self.load, self.gpus, self.device_seconds()) {
            (Some(load), Some(gpus), Some(seconds)) => {
                load * f64::from(gpus) / (seconds * self.arrivals.mean_per_s())
            }
            _ => 1.0,
        }
    }
}

impl Class {
    fn check(&self) -> Result<(), InputError> {
        let wrong = |key: &str, what: String| Err(InputError::new(key, what));
        if !(self.share.is_finite() && self.share >= 0.0) {
            return wrong("share", format!("{} is not a share", self.share));
        }
        match (&self.duration, &self.work) {
            (Some(law), None) => law.check("duration")?,
            (None, Some(law)) => law.check("work")?,
            _ => return wrong("duration", "a class has either a `duration` or a `work`".into()),
        }
        if let Some(slack) = &self.slack {
            slack.check("slack")?;
            if self.duration.is_none() {
                return wrong("slack", "a deadline is a multiple of a duration, and there is none".into());
            }
        }
        let (least, most) = self.range();
        if self.gpus == 0 || least == 0 || !(least..=most).contains(&self.gpus) {
            return wrong(
                "gpus",
                format!("it asks for {} devices, and can use {least} to {most}", self.gpus),
            );
        }
        let (.., needed) = self.ways()?;
        if most < needed {
            let what = format!("it can use {most} devices, and needs {needed} with its servers");
            return wrong("max_gpu", what);
        }
        if self.batch == Some(0) {
            return wrong("batch", "a step has a sample at least".into());
        }
        match self.weight {
            Some(weight) if !(weight.is_finite() && weight > 0.0) => {
                wrong("weight", format!("{weight} is not a weight"))
            }
            _ => Ok(()),
        }
    }

    /// Its ways, its switch, and the fewest devices that it runs on with its servers.
    fn ways(&self) -> Result<(Vec<Way>, Option<Switch>, u32), InputError> {
        let Class { protocol, servers, nodes_per_update, switch_at, .. } = self;
        ways_of(protocol.as_deref(), servers.as_deref(), *nodes_per_update, *switch_at)
    }

    fn range(&self) -> (u32, u32) {
        (self.min_gpu.unwrap_or(self.gpus), self.max_gpu.unwrap_or(self.gpus))
    }
}
