//! The models of whole jobs as a command line names them; the caller reads files and makes models of them.
//!
//! # Model
//!
//! | word                 | model                                                                                |
//! |----------------------|--------------------------------------------------------------------------------------|
//! | `declared`, `linear` | [`Speedup`]: the declared speed, in proportion to the devices                        |
//! | `amdahl:F`, `power:P`, `curve:A,B,...` | [`Speedup`] by the other laws                                      |
//! | `gavel:FILE`         | [`GavelTable`]                                                                       |
//! | `gavel_by_nodes:FILE` | [`GavelTable::by_nodes`]                                                            |
//! | `gavel_colocated:FILE` | [`Colocated`]: its speeds alone, and predictions of what jobs lose that share a device |
//! | `elasticflow:FOLDER` | [`ElasticFlowTables`] of `FOLDER/TYPE/NETWORK.csv`                                   |
//! | `goodput:FOLDER`     | [`FittedJobs`] of `FOLDER/APPLICATION/` with the files of [`Sources`]                |
//! | `measured:FOLDER`    | [`MeasuredJobs`] of the same; both with the caps of `FOLDER/limits.csv`, if any      |
//! | `profiles:FOLDER`    | [`ProfiledJobs`] of `FOLDER/NAME.json`                                               |
//! | `fitted:FILE`        | [`FittedKinds`] of a file of `bellwether fit`                                        |
//! | `noisy:E:MODEL`      | [`Biased`]: any of the others with a relative error E                                |
//!
//! # Source
//!
//! That of each model.
//!
//! # Assumes
//!
//! That of each model.
//!
//! # Valid
//!
//! That of each model.
//!
//! # Checked by
//!
//! `tests/it/named.rs`: each word comes back, wrong ones are met with the nearest.
//!
//! [`Speedup`]: crate::speedup::Speedup
//! [`GavelTable`]: crate::throughput_table::GavelTable
//! [`GavelTable::by_nodes`]: crate::throughput_table::GavelTable::by_nodes
//! [`Colocated`]: crate::colocation::Colocated
//! [`ElasticFlowTables`]: crate::throughput_table::ElasticFlowTables
//! [`FittedJobs`]: crate::elastic::jobs::FittedJobs
//! [`MeasuredJobs`]: crate::elastic::jobs::MeasuredJobs
//! [`Sources`]: crate::elastic::jobs::Sources
//! [`ProfiledJobs`]: crate::profiles::ProfiledJobs
//! [`FittedKinds`]: crate::calibrate::kinds::FittedKinds
//! [`Biased`]: crate::biased::Biased

use std::fmt;
use std::str::FromStr;

use bellwether_core::ParseError;

use crate::speedup::Law;

/// A model as a command line names it.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelSpec {
    /// One law for all jobs.
    Law(Law),
    /// Gavel's table.
    Gavel {
        /// Its file.
        file: String,
        /// Whether devices in several nodes are told apart from those in one.
        by_nodes: bool,
    },
    /// Gavel's table in this file for speeds alone, and what was fitted to its pairs.
    Colocated(String),
    /// ElasticFlow's tables in this folder.
    ElasticFlow(String),
    /// What may be believed of the applications whose tables are in this folder.
    Goodput(String),
    /// What the applications whose tables are in this folder do.
    Measured(String),
    /// The profiles in this folder.
    Profiles(String),
    /// The fitted models in this file.
    Fitted(String),
    /// Another one with an error.
    Noisy {
        /// Relative error, 0 to 3: standard deviation of the logarithm.
        error: f64,
        /// The other one, which is not noisy itself.
        model: Box<ModelSpec>,
    },
}

/// What a [`ModelSpec`] is in messages.
const WHAT: &str = "model";

const WORDS: [&str; 14] = [
    "declared",
    "linear",
    "amdahl",
    "power",
    "curve",
    "gavel",
    "gavel_by_nodes",
    "gavel_colocated",
    "elasticflow",
    "goodput",
    "measured",
    "profiles",
    "fitted",
    "noisy",
];

impl FromStr for ModelSpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<ModelSpec, ParseError> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        let path = |what: &str| match rest {
            "" => Err(ParseError::new(WHAT, text, format!("{word}:{}", what.to_uppercase()))),
            path => Ok(path.to_string()),
        };
        match word {
            "declared" if text == word => Ok(ModelSpec::Law(Law::Linear)),
            "declared" => Err(ParseError::new(WHAT, text, "declared, without a parameter")),
            "linear" | "amdahl" | "power" | "curve" => text.parse().map(ModelSpec::Law),
            "gavel" | "gavel_by_nodes" => {
                Ok(ModelSpec::Gavel { file: path("file")?, by_nodes: word == "gavel_by_nodes" })
            }
            "gavel_colocated" => path("file").map(ModelSpec::Colocated),
            "elasticflow" => path("folder").map(ModelSpec::ElasticFlow),
            "goodput" => path("folder").map(ModelSpec::Goodput),
            "measured" => path("folder").map(ModelSpec::Measured),
            "profiles" => path("folder").map(ModelSpec::Profiles),
            "fitted" => path("file").map(ModelSpec::Fitted),
            "noisy" => noisy(text, rest),
            _ => Err(ParseError::one_of(WHAT, word, WORDS)),
        }
    }
}

fn noisy(text: &str, rest: &str) -> Result<ModelSpec, ParseError> {
    let (error, model) = rest
        .split_once(':')
        .ok_or_else(|| ParseError::new(WHAT, text, "noisy:E:MODEL, for example noisy:0.2:linear"))?;
    let error: Option<f64> = error.trim().parse().ok().filter(|error| (0.0..=3.0).contains(error));
    let error = error
        .ok_or_else(|| ParseError::out_of_range(WHAT, text, "a number from 0 to 3 as the relative error"))?;
    if model.starts_with("noisy:") {
        return Err(ParseError::new(WHAT, text, "a model that is not noisy itself"));
    }
    Ok(ModelSpec::Noisy { error, model: Box::new(model.parse()?) })
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSpec::Law(law) => write!(f, "{law}"),
            ModelSpec::Gavel { file, by_nodes: false } => write!(f, "gavel:{file}"),
            ModelSpec::Gavel { file, by_nodes: true } => write!(f, "gavel_by_nodes:{file}"),
            ModelSpec::Colocated(file) => write!(f, "gavel_colocated:{file}"),
            ModelSpec::ElasticFlow(folder) => write!(f, "elasticflow:{folder}"),
            ModelSpec::Goodput(folder) => write!(f, "goodput:{folder}"),
            ModelSpec::Measured(folder) => write!(f, "measured:{folder}"),
            ModelSpec::Profiles(folder) => write!(f, "profiles:{folder}"),
            ModelSpec::Fitted(file) => write!(f, "fitted:{file}"),
            ModelSpec::Noisy { error, model } => write!(f, "noisy:{error}:{model}"),
        }
    }
}
