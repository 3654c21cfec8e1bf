//! The policies, a file each, and the catalogue that names them.

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

use bellwether_core::InputError;
use bellwether_core::policy::{Policy, Promises};

use crate::enforce_limits::WithLimits;
use crate::options::{self, Options};

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
    pub make: fn(&Options) -> Result<Box<dyn Policy + Send>, String>,
}

/// The shortest time from one decision to the next that an option may ask for, in seconds.
const LEAST_INTERVAL_S: f64 = 1e-3;

/// All policies, in the order in which they are explained.
pub const CATALOGUE: &[&About] = &[
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

/// The policy that `text` names, with options after a colon: `las2d:3250,7200` or `pollux:p=-1,interval=60`.
///
/// # Errors
///
/// Returns an error for an unknown name or option, with the nearest known one, or an invalid value.
///
/// ```
/// use bellwether_sched::policy;
/// assert!(policy::parse("fifo").is_ok());
/// let error = policy::parse("fivo").err().map(|error| error.to_string());
/// assert!(error.is_some_and(|error| error.contains("`fifo`")));
/// ```
pub fn parse(text: &str) -> Result<(&'static About, Box<dyn Policy + Send>), InputError> {
    let (name, values) = text.split_once(':').unwrap_or((text, ""));
    let place = format!("policy `{text}`");
    let about = CATALOGUE.iter().find(|about| about.name == name).ok_or_else(|| {
        let names: Vec<&str> = CATALOGUE.iter().map(|about| about.name).collect();
        let hint = bellwether_core::parse::did_you_mean(name, &names);
        InputError::new(&place, format!("there is no policy `{name}`")).hint(hint)
    })?;
    let options = Options::read(about.options, values)
        .map_err(|what| InputError::new(&place, what).hint(options::usage(about.options)))?;
    let policy = (about.make)(&options).map_err(|what| InputError::new(&place, what))?;
    Ok((about, Box::new(WithLimits::new(policy, about.gangs))))
}
