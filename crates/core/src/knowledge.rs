//! What a policy is told of the work that remains of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ParseError;

/// What is known of the work that remains.
///
/// ```
/// use bellwether_core::knowledge::Knowledge;
/// assert_eq!("estimated:0.3".parse(), Ok(Knowledge::Estimated(0.3)));
/// assert_eq!("estimated".parse(), Ok(Knowledge::Estimated(0.5)));
/// assert_eq!(Knowledge::Estimated(0.3).to_string(), "estimated:0.3");
/// assert!("estimated:-1".parse::<Knowledge>().is_err());
/// assert!("all".parse::<Knowledge>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Knowledge {
    /// What is true; only a simulation knows it.
    Exact,
    /// What its author declared: that it may end early is hidden.
    Nominal,
    /// The mean over how it may end early, given that it has not yet.
    Expected,
    /// The truth times a factor of its own: log-normal with median 1, and this standard deviation of the logarithm.
    Estimated(f64),
    /// Nothing.
    Unknown,
}

impl Knowledge {
    /// Reads what a daemon or an operator can know of the jobs that it trains: `expected` or `nominal`.
    ///
    /// # Errors
    ///
    /// Returns an error for any other word; only a simulation knows more.
    pub fn of_live_jobs(text: &str) -> Result<Knowledge, ParseError> {
        let known =
            text.parse().ok().filter(|known| matches!(known, Knowledge::Expected | Knowledge::Nominal));
        let expected = "`expected` or `nominal`; only a simulation knows more";
        known.ok_or_else(|| ParseError::new("knowledge of remaining work", text, expected))
    }
}

impl FromStr for Knowledge {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
        match (word, value) {
            ("exact", None) => Ok(Knowledge::Exact),
            ("nominal", None) => Ok(Knowledge::Nominal),
            ("expected", None) => Ok(Knowledge::Expected),
            ("unknown", None) => Ok(Knowledge::Unknown),
            ("estimated", None) => Ok(Knowledge::Estimated(0.5)),
            ("estimated", Some(value)) => match value.parse() {
                Ok(deviation) if (0.0..=5.0).contains(&deviation) => Ok(Knowledge::Estimated(deviation)),
                _ => Err(ParseError::out_of_range("deviation of a logarithm", value, "a number from 0 to 5")),
            },
            _ => {
                let expected = "exact, nominal, expected, estimated, estimated:0.3 or unknown";
                Err(ParseError::new("knowledge of remaining work", text, expected))
            }
        }
    }
}

impl fmt::Display for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knowledge::Exact => f.write_str("exact"),
            Knowledge::Nominal => f.write_str("nominal"),
            Knowledge::Expected => f.write_str("expected"),
            Knowledge::Estimated(deviation) => write!(f, "estimated:{deviation}"),
            Knowledge::Unknown => f.write_str("unknown"),
        }
    }
}

impl TryFrom<String> for Knowledge {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Knowledge> for String {
    fn from(knowledge: Knowledge) -> String {
        knowledge.to_string()
    }
}
