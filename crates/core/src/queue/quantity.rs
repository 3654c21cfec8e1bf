//! How much of a cluster: devices, or a percentage, of every type of device or by type.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InputError, ParseError};

/// Some devices of one type: a number, or a part of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub enum Measure {
    /// This many.
    Devices(u32),
    /// This many of a hundred, rounded down.
    Percent(f64),
}

/// Some devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenQuantity", untagged)]
#[schemars(with = "WrittenQuantity")]
pub enum Quantity {
    /// Of every type; a number only where the cluster has one type.
    Each(Measure),
    /// By type of device.
    ByType(BTreeMap<String, Measure>),
}

/// A measure as it is written: `8`, or `"60%"`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Devices(u32),
    /// Not a number of devices; here so that an error can say what would be one.
    #[schemars(skip)]
    Number(f64),
    Percent(String),
}

/// A quantity as it is written.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum WrittenQuantity {
    Each(Written),
    ByType(BTreeMap<String, Written>),
}

/// What a measure looks like.
const EXPECTED: &str = "a number of devices such as 8, or a percentage such as \"60%\"";

impl Default for Quantity {
    fn default() -> Quantity {
        Quantity::Each(Measure::Percent(0.0))
    }
}

impl TryFrom<Written> for Measure {
    type Error = ParseError;

    fn try_from(written: Written) -> Result<Measure, ParseError> {
        let text = match written {
            Written::Devices(devices) => return Ok(Measure::Devices(devices)),
            Written::Number(number) => number.to_string(),
            Written::Percent(text) => text,
        };
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = number.ok_or_else(|| ParseError::new("share of devices", &text, EXPECTED))?;
        if (0.0..=100.0).contains(&percent) {
            Ok(Measure::Percent(percent))
        } else {
            Err(ParseError::out_of_range("share of devices", &text, "0% to 100%"))
        }
    }
}

impl TryFrom<WrittenQuantity> for Quantity {
    type Error = ParseError;

    fn try_from(written: WrittenQuantity) -> Result<Quantity, ParseError> {
        match written {
            WrittenQuantity::Each(written) => Ok(Quantity::Each(written.try_into()?)),
            WrittenQuantity::ByType(by_type) => {
                let measures = by_type.into_iter().map(|(name, written)| Ok((name, written.try_into()?)));
                measures.collect::<Result<_, ParseError>>().map(Quantity::ByType)
            }
        }
    }
}

impl From<Measure> for Written {
    fn from(measure: Measure) -> Written {
        match measure {
            Measure::Devices(devices) => Written::Devices(devices),
            Measure::Percent(percent) => Written::Percent(format!("{percent}%")),
        }
    }
}

impl Measure {
    /// Devices, of `whole`.
    pub fn of(self, whole: u32) -> u32 {
        match self {
            Measure::Devices(devices) => devices,
            // 29 % of 100 is 28.999999999999996 in floating point.
            Measure::Percent(percent) => (f64::from(whole) * percent / 100.0 + 1e-9).floor() as u32,
        }
    }
}

impl Quantity {
    /// Devices of a type, of `whole` of it; `None` if it says nothing of this type.
    ///
    /// ```
    /// use bellwether_core::queue::{Measure, Quantity};
    /// assert_eq!(Quantity::Each(Measure::Percent(29.0)).of("v100", 100), Some(29));
    /// let by_type = Quantity::ByType([("v100".to_owned(), Measure::Devices(8))].into());
    /// assert_eq!((by_type.of("v100", 16), by_type.of("p100", 16)), (Some(8), None));
    /// ```
    pub fn of(&self, device_type: &str, whole: u32) -> Option<u32> {
        match self {
            Quantity::Each(measure) => Some(measure.of(whole)),
            Quantity::ByType(by_type) => by_type.get(device_type).map(|measure| measure.of(whole)),
        }
    }

    /// Whether it can be a quantity of these types of device.
    ///
    /// # Errors
    ///
    /// A type that is not there, or a number that does not say of which of several types.
    pub(super) fn check(&self, device_types: &[String]) -> Result<(), InputError> {
        match self {
            Quantity::Each(Measure::Devices(devices)) if *devices > 0 && device_types.len() > 1 => {
                let what = format!("{devices} devices, and the cluster has {} types", device_types.len());
                let first = &device_types[0];
                Err(InputError::new("queue", what)
                    .hint(format!("write a percentage, or say of which type: {{ {first} = {devices} }}")))
            }
            Quantity::Each(_) => Ok(()),
            Quantity::ByType(by_type) => {
                let unknown = by_type.keys().find(|name| !device_types.contains(name));
                unknown
                    .map_or(Ok(()), |name| Err(ParseError::one_of("device", name, device_types).at("queue")))
            }
        }
    }
}
