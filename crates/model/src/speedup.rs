//! Speed by number of devices from one law, relative to what the job's author declared.
//!
//! # Model
//!
//! ```text
//! throughput = s(k) / s(k0) v      linear, amdahl, power
//! throughput = c(k) v              curve
//! linear     s(k) = k
//! amdahl     s(k) = 1 / (f + (1 - f) / k)
//! power      s(k) = k^p
//! ```
//!
//! | symbol | meaning                                                                | unit      |
//! |--------|------------------------------------------------------------------------|-----------|
//! | k      | devices that the job holds                                             | 1         |
//! | k0     | devices that its author asked for                                      | 1         |
//! | f      | part of the work that more devices do not speed up                     | 1         |
//! | p      | exponent                                                               | 1         |
//! | c(k)   | declared throughput on k devices, from 1 on; the last value beyond     | samples/s |
//! | v      | relative speed of the type of device; the slowest, where they differ   | 1         |
//!
//! A relative law knows no unit: with it the work of a job is the seconds that its author declared, and on the
//! devices that were asked for it takes just these.
//!
//! # Source
//!
//! Amdahl, AFIPS 1967; powers and curves as the literature of scheduling takes them: Berg et al., heSRPT,
//! Performance Evaluation 2020; Lin, Paolieri, Chou, Golubchik, MASCOTS 2018, for a measured curve.
//!
//! # Assumes
//!
//! Where the devices are does not matter, nor does the batch. The interval of a prediction has no width: these are
//! declarations, not measurements.
//!
//! # Valid
//!
//! Wherever it is declared so; a curve up to its end.
//!
//! # Checked by
//!
//! `tests/it/speedup.rs`: values by hand, the laws of [`StepModel`].
//!
//! ```
//! use bellwether_model::speedup::Law;
//! let law: Law = "amdahl:0.2".parse().unwrap();
//! // 1 / (0.2 + 0.8 / 4) = 2.5
//! assert!((law.at(4) - 2.5).abs() < 1e-12);
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bellwether_core::prediction::{
    Configuration, JobDescription, PredictError, Prediction, StepModel, Validity,
};
use bellwether_core::{InputError, ParseError};

use crate::common::answer::{exact, own_devices};
use crate::common::check;

/// Throughput by number of devices.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    /// In proportion to the devices.
    Linear,
    /// Only what is not this serial part, 0 to 1, gets faster.
    Amdahl(f64),
    /// The devices to this power, 0 to 1.
    Power(f64),
    /// Samples per second on 1, 2, ... devices.
    Curve(Vec<f64>),
}

/// Kinds of [`Law`], as they are written.
/// What a [`Law`] is in messages.
const WHAT: &str = "law of speed";

const KINDS: [&str; 4] = ["linear", "amdahl", "power", "curve"];

impl Law {
    /// Throughput on `devices` devices of speed 1: relative to one device, but absolute, in samples per second, of a
    /// curve. 0 on none.
    pub fn at(&self, devices: u32) -> f64 {
        let k = f64::from(devices);
        match self {
            _ if devices == 0 => 0.0,
            Law::Linear => k,
            Law::Amdahl(serial) => 1.0 / (serial + (1.0 - serial) / k),
            Law::Power(exponent) => k.powf(*exponent),
            Law::Curve(values) => {
                let place = (devices as usize).min(values.len());
                place.checked_sub(1).map_or(0.0, |place| values[place])
            }
        }
    }
}

/// Throughput of a job by one law for all jobs, on devices that may differ in speed.
#[derive(Debug, Clone, PartialEq)]
pub struct Speedup {
    law: Law,
    device_speeds: BTreeMap<String, f64>,
}

impl Speedup {
    /// A law, and the relative speed of each type of device; 1 for a type that is not named.
    ///
    /// # Errors
    ///
    /// Returns an error for a speed that is not finite and above 0.
    pub fn new(law: Law, device_speeds: BTreeMap<String, f64>) -> Result<Speedup, InputError> {
        for (device, speed) in &device_speeds {
            check::not_positive("device speeds", format_args!("the relative speed of `{device}`"), *speed)?;
        }
        Ok(Speedup { law, device_speeds })
    }

    /// Relative speed of the slowest device.
    fn slowest(&self, configuration: &Configuration) -> f64 {
        if self.device_speeds.is_empty() {
            return 1.0;
        }
        let held = configuration.devices.iter().filter(|group| group.count > 0);
        held.map(|group| self.device_speeds.get(&group.device).copied().unwrap_or(1.0))
            .fold(f64::INFINITY, f64::min)
    }
}

impl StepModel for Speedup {
    fn is_relative(&self) -> bool {
        !matches!(self.law, Law::Curve(_))
    }

    fn is_by_count(&self) -> bool {
        true
    }

    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let count = own_devices(configuration)?;
        let speed = self.slowest(configuration);
        let examples_per_s = match &self.law {
            Law::Curve(_) => self.law.at(count) * speed,
            // Exactly the declared speed on the devices that were asked for.
            _ if count == job.devices => speed,
            _ if job.devices == 0 => {
                let why = format!("`{}` asks for no device, so its speed on {count} is unknown", job.name);
                return Err(PredictError::Incomplete(why));
            }
            law => law.at(count) / law.at(job.devices) * speed,
        };
        let validity = match &self.law {
            Law::Curve(values) if count as usize > values.len() => {
                Validity::Extrapolated(format!("the curve ends at {} devices", values.len()))
            }
            _ => Validity::Interpolated,
        };
        exact(examples_per_s, configuration.batch as f64, validity)
    }
}

impl FromStr for Law {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Law, ParseError> {
        let (kind, parameters) = match text.split_once(':') {
            Some((kind, parameters)) => (kind, Some(parameters)),
            None => (text, None),
        };
        let wrong = |expected: &str| ParseError::new(WHAT, text, expected);
        match (kind, parameters) {
            ("linear", None) => Ok(Law::Linear),
            ("linear", Some(_)) => Err(wrong("linear, without a parameter")),
            ("amdahl", Some(part)) => part_of_one(part)
                .map(Law::Amdahl)
                .ok_or_else(|| wrong("amdahl:F, F the serial part from 0 to 1, for example amdahl:0.1")),
            ("power", Some(part)) => part_of_one(part)
                .map(Law::Power)
                .ok_or_else(|| wrong("power:P, P the exponent from 0 to 1, for example power:0.8")),
            ("curve", Some(values)) => curve(values),
            ("amdahl" | "power" | "curve", None) => {
                Err(wrong("a parameter, for example amdahl:0.1, power:0.8 or curve:10,19,27"))
            }
            _ => Err(ParseError::one_of(WHAT, kind, KINDS)),
        }
    }
}

fn part_of_one(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|part| (0.0..=1.0).contains(part))
}

fn curve(text: &str) -> Result<Law, ParseError> {
    let value = |field: &str| {
        let field = field.trim();
        let value: Option<f64> = field.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| ParseError::new("throughput", field, "samples/s above 0"))
    };
    Ok(Law::Curve(text.split(',').map(value).collect::<Result<_, _>>()?))
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Law::Linear => f.write_str("linear"),
            Law::Amdahl(serial) => write!(f, "amdahl:{serial}"),
            Law::Power(exponent) => write!(f, "power:{exponent}"),
            Law::Curve(values) => {
                let values: Vec<String> = values.iter().map(f64::to_string).collect();
                write!(f, "curve:{}", values.join(","))
            }
        }
    }
}
