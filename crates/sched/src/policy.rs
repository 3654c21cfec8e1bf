//! The policies, a file each. A [registry](crate::registry) names them.

pub mod afs;
pub mod edf;
pub mod elasticflow;
pub mod equi;
pub mod fifo;
pub mod gandiva;
pub mod gavel;
pub mod gittins;
pub mod hell;
pub mod hesrpt;
pub mod knee;
pub mod las;
pub mod optimus;
pub mod pollux;
pub mod priority;
pub mod sia;
pub mod srpt_greedy;
pub mod srtf;
pub mod wfs;

use bellwether_core::ParseError;
use bellwether_core::policy::{Policy, Promises};

use crate::options::Options;

/// What a user should know of a policy, and how to make one.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub idea: &'static str,
    /// Its options, in the order in which they may be given without their names: name, default and meaning.
    pub options: &'static [(&'static str, f64, &'static str)],
    /// When it is a bad choice.
    pub bad_when: &'static str,
    /// Whether a running job holds as many devices as its author asked for, no matter which policy gave it those; else
    /// any number within its limits will do.
    pub gangs: bool,
    /// Whether it needs to know the work that remains.
    pub needs_remaining: bool,
    /// What it claims.
    pub promises: Promises,
    /// Makes one with its options checked for their names only.
    pub make: fn(&Options) -> Result<Box<dyn Policy + Send>, ParseError>,
}

/// The shortest time from one decision to the next that an option may ask for, in seconds.
const LEAST_INTERVAL_S: f64 = 1e-3;

/// The built-in policies, in the order in which they are explained.
pub(crate) const CATALOGUE: &[&About] = &[
    &fifo::STRICT,
    &fifo::SKIP,
    &fifo::EASY,
    &gandiva::ABOUT,
    &srtf::TIME,
    &srtf::SERVICE,
    &las::TIME,
    &las::SERVICE,
    &gittins::SERVICE,
    &edf::ABOUT,
    &priority::ABOUT,
    &equi::ABOUT,
    &equi::FAIR,
    &wfs::ABOUT,
    &hell::ABOUT,
    &knee::ABOUT,
    &hesrpt::ABOUT,
    &srpt_greedy::ABOUT,
    &optimus::ABOUT,
    &afs::ABOUT,
    &elasticflow::ABOUT,
    &gavel::MAX_MIN,
    &gavel::FTF,
    &gavel::MAKESPAN,
    &gavel::SUM,
    &pollux::ABOUT,
    &sia::ABOUT,
];
