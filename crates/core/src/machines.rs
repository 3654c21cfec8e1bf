//! Machines that a provider gives and takes back: the seam to whatever obtains them, and its words.
//!
//! A [`Provider`] is Slurm, Kubernetes, SkyPilot or this machine. Who holds machines keeps a *lease*, a random word;
//! each machine of the lease has a number, and both together are its [`Tag`]. A provider keeps the tag where it keeps
//! the machine, so that whatever dies, the machines of a lease are found and given back.
//!
//! # Laws of a provider
//!
//! 1. A request that is said twice with one tag is one machine.
//! 2. Where a request was answered with `Ok`, the machine is listed until it has ended.
//! 3. Where it was answered with [`ProviderError::Unanswered`], the machine may be there: the list tells, or the same
//!    request again.
//! 4. A list has every machine of its lease that may still cost money, and none of another lease.
//! 5. A machine that is not there is released without an error. Once one is released, it ends.
//!
//! No method waits longer than its program may take, and none is called by the thread that leads a run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Whatever gives machines and takes them back. Its laws are those of the [module](self).
pub trait Provider: Send {
    /// Its name, as an option says it.
    fn name(&self) -> &'static str;

    /// Seconds after a request within which its machine may yet appear, though no answer came.
    fn settle_s(&self) -> f64;

    /// Kinds of machines with what they cost now and how many more may be had, as far as the provider tells; kinds that
    /// are not in the answer are as the catalogue says.
    ///
    /// # Errors
    ///
    /// Why it does not tell.
    fn offers(&mut self) -> Result<Vec<Offer>, ProviderError>;

    /// Asks for a machine that runs a script.
    ///
    /// # Errors
    ///
    /// [`ProviderError::Refused`] where it will not come, [`ProviderError::Unanswered`] where it may.
    fn request(&mut self, request: &Request) -> Result<(), ProviderError>;

    /// The machines of a lease.
    ///
    /// # Errors
    ///
    /// Why it does not tell. Nothing is known then of any machine.
    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError>;

    /// Gives a machine back.
    ///
    /// # Errors
    ///
    /// Why it could not be asked. The machine may be there, and is to be released again.
    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError>;
}

/// The name of a machine, which its provider keeps: `f3a9c2d41b7e-4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag {
    /// The lease: lower-case letters and digits.
    pub lease: String,
    /// The number of the machine in its lease, from 1.
    pub number: u64,
}

/// Most characters of a lease's word: a tag has to fit where providers keep names.
const LEASE_CHARACTERS_MAX: usize = 32;

impl FromStr for Tag {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::machines::Tag;
    /// let tag: Tag = "f3a9-4".parse()?;
    /// assert_eq!((tag.lease.as_str(), tag.number, tag.to_string().as_str()), ("f3a9", 4, "f3a9-4"));
    /// let wrong = ["", "-4", "f3a9", "f3a9-", "f3 a9-4", "f3a9-+4", "F3-1"];
    /// assert!(wrong.iter().all(|text| text.parse::<Tag>().is_err()));
    /// # Ok::<(), bellwether_core::ParseError>(())
    /// ```
    fn from_str(text: &str) -> Result<Tag, ParseError> {
        let wrong = || ParseError::new("tag of a machine", text, "LEASE-NUMBER, for example f3a9c2d41b7e-4");
        let (lease, number) = text.rsplit_once('-').ok_or_else(wrong)?;
        let is_word = is_lease(lease) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let number = if is_word { number.parse().map_err(|_| wrong())? } else { return Err(wrong()) };
        Ok(Tag { lease: lease.into(), number })
    }
}

/// Whether a word may be that of a lease.
pub fn is_lease(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !word.is_empty() && word.len() <= LEASE_CHARACTERS_MAX && word.bytes().all(is_plain)
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.lease, self.number)
    }
}

impl TryFrom<String> for Tag {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Tag, ParseError> {
        text.parse()
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> String {
        tag.to_string()
    }
}

/// How a machine is rented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Market {
    /// Until it is given back.
    OnDemand,
    /// Until the provider takes it away, for less.
    Transient,
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Market::OnDemand => "on demand",
            Market::Transient => "transient",
        })
    }
}

/// Machines of one kind that are rented alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The catalogue's name of such a machine.
    pub machine: String,
    /// How it is rented.
    pub market: Market,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.market {
            Market::OnDemand => f.write_str(&self.machine),
            Market::Transient => write!(f, "{} transient", self.machine),
        }
    }
}

/// A wish for one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The machine's name.
    pub tag: Tag,
    /// What kind of machine, and how it is rented.
    pub pool: Pool,
    /// What it runs: a text for a POSIX shell. The machine ends with it. No credential is in it.
    pub script: String,
    /// Variables that the script finds, which may hold credentials: they are in no command line, and in no log.
    pub secrets: BTreeMap<String, String>,
}

/// What a kind of machine costs now, and how many more may be had.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The kind.
    pub pool: Pool,
    /// Dollars per hour of one; `None` where the catalogue knows better.
    pub dollars_per_hour: Option<f64>,
    /// How many more may be had; `None` where that is not known.
    pub available: Option<u32>,
}

/// A machine, as its provider sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub tag: Tag,
    /// What it is doing.
    pub phase: Phase,
}

/// How far a machine is.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// It was accepted, and does not run yet. It costs nothing.
    Waits {
        /// Why, in the provider's words; empty where it does not say.
        reason: String,
    },
    /// It runs, and costs money.
    Runs {
        /// Where: the name of a node, an address.
        place: String,
        /// The provider's notice, where it takes the machine away.
        notice: Option<Notice>,
    },
    /// It is over, and costs nothing any more.
    Ended {
        /// How.
        how: String,
    },
}

/// A provider's word that it takes a machine away.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// Seconds until then; 0 where it may be any moment.
    pub left_s: f64,
    /// Why.
    pub why: String,
}

/// Why a provider did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It says no: there are no such machines now, a quota is used up, it knows no such kind.
    #[error("{provider} refused: {why}")]
    Refused {
        /// Its name.
        provider: &'static str,
        /// Why, in its words.
        why: String,
    },
    /// It did not answer, or what it answered cannot be read. It may have done what it was asked for.
    #[error("{provider} did not answer: {why}")]
    Unanswered {
        /// Its name.
        provider: &'static str,
        /// Why, as far as that is known.
        why: String,
    },
}

/// How a kind of machine is asked for, in the words of each provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Obtain {
    /// Options of `sbatch` for one machine: `["--partition=gpu", "--gres=gpu:k80:1"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slurm: Vec<String>,
    /// The same for one that Slurm may take away; as `slurm` says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_transient: Option<Vec<String>>,
    /// Labels of the nodes on which its pod may run: `{ "cloud.google.com/gke-accelerator" = "nvidia-tesla-k80" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kubernetes: BTreeMap<String, String>,
    /// Further labels where the nodes may be taken away: `{ "cloud.google.com/gke-spot" = "true" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kubernetes_transient: BTreeMap<String, String>,
    /// What its pod asks for: `{ "nvidia.com/gpu" = "1" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kubernetes_resources: BTreeMap<String, String>,
    /// The image of its pod, with the program and what a script imports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// SkyPilot's resources: `{ infra = "gcp/us-east1", accelerators = "K80:1" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skypilot: BTreeMap<String, String>,
    /// Lines of a shell that prepare the machine before its workers start: `"module load cuda"`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setup: String,
    /// The command that starts a process of this machine there: `["ip", "netns", "exec", "n1"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<String>,
}

impl Obtain {
    /// The options of `sbatch` for a machine that is rented so.
    pub fn slurm_of(&self, market: Market) -> &[String] {
        match (market, &self.slurm_transient) {
            (Market::Transient, Some(options)) => options,
            _ => &self.slurm,
        }
    }

    /// The labels of the nodes of a machine that is rented so.
    pub fn labels_of(&self, market: Market) -> BTreeMap<&str, &str> {
        let further = Some(&self.kubernetes_transient).filter(|_| market == Market::Transient);
        let all = self.kubernetes.iter().chain(further.into_iter().flatten());
        all.map(|(label, value)| (label.as_str(), value.as_str())).collect()
    }
}
