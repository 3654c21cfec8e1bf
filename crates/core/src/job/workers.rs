//! A number of workers, or a range of numbers.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::ParseError;

/// How many workers a job may have: `min ≤ max`, both at least 1. A plain number is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRange {
    /// Fewest workers.
    pub min: u32,
    /// Most workers.
    pub max: u32,
}

impl Default for WorkerRange {
    fn default() -> Self {
        WorkerRange { min: 2, max: 2 }
    }
}

impl WorkerRange {
    /// The number of workers a run starts with where none is chosen: 2 where the range allows it.
    pub fn initial(self) -> u32 {
        2.clamp(self.min, self.max)
    }
}

impl From<RangeInclusive<u32>> for WorkerRange {
    fn from(range: RangeInclusive<u32>) -> Self {
        WorkerRange { min: *range.start(), max: *range.end() }
    }
}

impl FromStr for WorkerRange {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::job::WorkerRange;
    /// assert_eq!("1..4".parse(), Ok(WorkerRange { min: 1, max: 4 }));
    /// assert_eq!("3".parse(), Ok(WorkerRange { min: 3, max: 3 }));
    /// assert!("4..1".parse::<WorkerRange>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let number = |part: &str| {
            part.trim().parse::<u32>().map_err(|_| {
                ParseError::new("number of workers", text, "a number such as 3, or a range such as 1..4")
            })
        };
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min == 0 || max < min {
            let expected = "at least 1 worker, and no fewer at its end than at its start";
            return Err(ParseError::out_of_range("number of workers", text, expected));
        }
        Ok(WorkerRange { min, max })
    }
}

impl fmt::Display for WorkerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}..{}", self.min, self.max) }
    }
}

impl Serialize for WorkerRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.min == self.max { serializer.serialize_u32(self.min) } else { serializer.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for WorkerRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RangeVisitor;
        impl Visitor<'_> for RangeVisitor {
            type Value = WorkerRange;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of workers or a range like \"1..4\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<WorkerRange, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<WorkerRange, E> {
                number.to_string().parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<WorkerRange, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(RangeVisitor)
    }
}

impl JsonSchema for WorkerRange {
    fn schema_name() -> Cow<'static, str> {
        "WorkerRange".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "string", "pattern": "^[0-9]+(\\.\\.[0-9]+)?$" }
            ]
        })
    }
}
