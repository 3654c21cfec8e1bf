//! How a job's workers keep together: who waits for whom, and when that changes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ParseError;
use crate::prediction::Protocol;
use crate::units::Bytes;

/// The table `[sync]` of a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sync {
    /// Who waits for whom: `"bsp"`, `"asp"`, `"ssp:3"`, `"gossip"`, `"local:50"`, `"auto"`, `{ switch_at = 0.0625 }`
    /// (synchronous for this share of the steps, then asynchronous), or `{ phases = [[0.0, "bsp"], [0.5, "ssp:3"]] }`.
    pub policy: SyncPolicy,
    /// Parameter servers of asynchronous phases (and of synchronous ones with `reduce = "servers"`).
    pub servers: u32,
    /// How gradients are summed in synchronous phases.
    pub reduce: Reduce,
    /// Virtual nodes whose gradients make one asynchronous update; it divides `batch.virtual_nodes`.
    pub nodes_per_update: u32,
    /// How the learning rate follows the batch of an asynchronous update, which is a part of `batch.size`.
    pub rate: AsyncRateScaling,
    /// What the momentum is in asynchronous phases.
    pub momentum: AsyncMomentum,
    /// In phases of `"local:H"`: how much of what the virtual nodes moved on average an outer step moves.
    pub outer_learning_rate: f64,
    /// The outer steps' momentum (Nesterov's form).
    pub outer_momentum: f64,
    /// Which waiting part a connection to a server serves next: `"fifo"`, `"window:64KiB"` or `"priority"`.
    pub order: Order,
    /// Whether each server has a replica that takes its place when it dies.
    pub replica: bool,
    /// What is done about a slow worker in synchronous phases.
    pub stragglers: StragglerPolicy,
}

impl Default for Sync {
    fn default() -> Self {
        Sync {
            policy: SyncPolicy::Phases(vec![(0.0, Protocol::Bsp)]),
            servers: 1,
            reduce: Reduce::AllReduce,
            nodes_per_update: 1,
            rate: AsyncRateScaling::Linear,
            momentum: AsyncMomentum::Keep,
            outer_learning_rate: 0.7,
            outer_momentum: 0.9,
            order: Order::Fifo,
            replica: false,
            stragglers: StragglerPolicy::Ignore,
        }
    }
}

impl Sync {
    /// Whether all steps are synchronous, whatever happens.
    pub fn is_synchronous(&self) -> bool {
        self.is_always(|protocol| protocol == Protocol::Bsp)
    }

    /// Whether all workers wait for all in every phase, whatever happens, be it only after some steps.
    pub fn waits_for_all(&self) -> bool {
        self.is_always(Protocol::waits_for_all)
    }

    fn is_always(&self, is_so: impl Fn(Protocol) -> bool) -> bool {
        match &self.policy {
            SyncPolicy::Auto => false,
            SyncPolicy::Phases(phases) => {
                self.stragglers != StragglerPolicy::Greedy
                    && phases.iter().all(|(_, protocol)| is_so(*protocol))
            }
        }
    }

    /// Whether a phase has local steps, which an outer step follows.
    pub fn has_outer_steps(&self) -> bool {
        let SyncPolicy::Phases(phases) = &self.policy else { return false };
        phases.iter().any(|(_, protocol)| protocol.is_local())
    }

    /// Most steps after which all workers wait for all, where they do.
    pub fn steps_per_round(&self) -> u32 {
        let SyncPolicy::Phases(phases) = &self.policy else { return 1 };
        phases.iter().map(|(_, protocol)| protocol.steps_per_round()).max().unwrap_or(1)
    }
}

/// The protocols of a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum SyncPolicy {
    /// From this share of the steps on (0…1, rising, the first 0), this protocol.
    Phases(Vec<(f64, Protocol)>),
    /// Synchronous first; when to switch is decided while the job is trained.
    Auto,
}

/// A policy as it stands in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "invalid policy: expected a word such as \"asp\", { switch_at = 0.0625 }, or { phases = [[0.0, \"bsp\"], [0.5, \"asp\"]] }"
)]
enum Written {
    Word(String),
    Switch {
        switch_at: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    Phases {
        phases: Vec<(f64, String)>,
    },
}

impl JsonSchema for SyncPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SyncPolicy".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

/// What a policy of one word may be.
const PROTOCOLS_OR_AUTO: &str =
    "bsp, asp, ssp:K (for example ssp:3), gossip, local:H (for example local:50) or auto";

impl TryFrom<Written> for SyncPolicy {
    type Error = ParseError;

    fn try_from(written: Written) -> Result<Self, ParseError> {
        let share = |at: f64| match at {
            0.0..=1.0 => Ok(at),
            _ => Err(ParseError::out_of_range("share of the steps", at, "a number from 0 to 1")),
        };
        let phases: Vec<(f64, Protocol)> = match written {
            Written::Word(word) if word == "auto" => return Ok(SyncPolicy::Auto),
            Written::Word(word) => match word.parse() {
                Ok(protocol) => vec![(0.0, protocol)],
                Err(_) => return Err(ParseError::new("policy", word, PROTOCOLS_OR_AUTO)),
            },
            Written::Switch { switch_at, to } => {
                let to = to.map_or(Ok(Protocol::Asp), |to| to.parse())?;
                vec![(0.0, Protocol::Bsp), (share(switch_at)?, to)]
            }
            Written::Phases { phases } => {
                let read = |(at, word): (f64, String)| Ok((share(at)?, word.parse()?));
                phases.into_iter().map(read).collect::<Result<_, ParseError>>()?
            }
        };
        let begin = phases.first().map(|(at, _)| *at);
        if begin != Some(0.0) {
            let begin = begin.map_or_else(String::new, |at| at.to_string());
            return Err(ParseError::new("beginning of the first phase", begin, "0"));
        }
        if let Some(pair) = phases.windows(2).find(|pair| pair[0].0 > pair[1].0) {
            let expected = format!("{} or more, as the phase before begins there", pair[0].0);
            return Err(ParseError::out_of_range("beginning of a phase", pair[1].0, expected));
        }
        Ok(SyncPolicy::Phases(phases))
    }
}

impl From<SyncPolicy> for Written {
    fn from(policy: SyncPolicy) -> Written {
        match policy {
            SyncPolicy::Auto => Written::Word("auto".into()),
            SyncPolicy::Phases(phases) => match phases.as_slice() {
                [(_, only)] => Written::Word(only.to_string()),
                [(_, Protocol::Bsp), (switch_at, to)] => {
                    let to = (*to != Protocol::Asp).then(|| to.to_string());
                    Written::Switch { switch_at: *switch_at, to }
                }
                _ => {
                    let phases = phases.into_iter().map(|(at, protocol)| (at, protocol.to_string()));
                    Written::Phases { phases: phases.collect() }
                }
            },
        }
    }
}

impl SyncPolicy {
    /// The protocol of each phase of a run of `total_steps`: the first step of it, rising; empty phases left out.
    /// [`SyncPolicy::Auto`] begins synchronous.
    ///
    /// ```
    /// use bellwether_core::job::SyncPolicy;
    /// use bellwether_core::prediction::Protocol;
    /// let policy = SyncPolicy::Phases(vec![(0.0, Protocol::Bsp), (0.25, Protocol::Asp)]);
    /// assert_eq!(policy.phases(10), [(0, Protocol::Bsp), (3, Protocol::Asp)]);
    /// ```
    pub fn phases(&self, total_steps: u64) -> Vec<(u64, Protocol)> {
        let SyncPolicy::Phases(shares) = self else { return vec![(0, Protocol::Bsp)] };
        let mut phases: Vec<(u64, Protocol)> = Vec::new();
        for (share, protocol) in shares {
            let from = (share * total_steps as f64).round() as u64;
            if from >= total_steps && from > 0 {
                break;
            }
            // A phase that would be empty gives way to the one after it.
            while phases.last().is_some_and(|(at, _)| *at >= from) {
                phases.pop();
            }
            if phases.last().is_none_or(|(_, last)| last != protocol) {
                phases.push((from, *protocol));
            }
        }
        phases
    }
}

impl SyncPolicy {
    /// Shares of the steps and their protocols, in order, those without steps left out; `None` where the switch is
    /// decided only while the job is trained.
    ///
    /// ```
    /// use bellwether_core::job::SyncPolicy;
    /// use bellwether_core::prediction::Protocol;
    /// let policy: SyncPolicy = "switch:0.25".parse()?;
    /// assert_eq!(policy.shares(), Some(vec![(0.25, Protocol::Bsp), (0.75, Protocol::Asp)]));
    /// # Ok::<(), bellwether_core::ParseError>(())
    /// ```
    pub fn shares(&self) -> Option<Vec<(f64, Protocol)>> {
        let SyncPolicy::Phases(phases) = self else { return None };
        let ends = phases.iter().skip(1).map(|(at, _)| *at).chain([1.0]);
        let shares = phases.iter().zip(ends).map(|((at, protocol), end)| (end - at, *protocol));
        Some(shares.filter(|(share, _)| *share > 0.0).collect())
    }
}

impl FromStr for SyncPolicy {
    type Err = ParseError;

    /// Reads what stands on a command line: a protocol, `auto`, `switch:SHARE` or `switch:SHARE:PROTOCOL`, or a table
    /// as in the job file.
    ///
    /// ```
    /// use bellwether_core::job::SyncPolicy;
    /// for text in ["asp", "auto", "switch:0.0625", "switch:0.25:ssp:3"] {
    ///     let policy: SyncPolicy = text.parse()?;
    ///     assert_eq!(policy.to_string(), text);
    /// }
    /// assert_eq!("{ switch_at = 0.5 }".parse::<SyncPolicy>()?, "switch:0.5".parse()?);
    /// assert_eq!(r#"{"switch_at": 0.5}"#.parse::<SyncPolicy>()?, "switch:0.5".parse()?);
    /// assert!("switch:2".parse::<SyncPolicy>().is_err());
    /// # Ok::<(), bellwether_core::ParseError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        #[derive(Deserialize)]
        struct Table {
            policy: SyncPolicy,
        }
        if text.starts_with('{') {
            let table = || toml::from_str::<Table>(&format!("policy = {text}"));
            return serde_json::from_str(text).or_else(|_| table().map(|table| table.policy)).map_err(|e| {
                ParseError::new("policy", text, format!("a table as in the job file ({})", e.message()))
            });
        }
        let Some(rest) = text.strip_prefix("switch:") else {
            return SyncPolicy::try_from(Written::Word(text.to_string())).map_err(|error| {
                let expected = format!("{}, or switch:SHARE (for example switch:0.0625)", error.expected);
                ParseError { expected, ..error }
            });
        };
        let (share, to) = rest.split_once(':').map_or((rest, None), |(share, to)| (share, Some(to)));
        let switch_at = share
            .parse()
            .map_err(|_| ParseError::new("share of the steps", share, "a number from 0 to 1"))?;
        SyncPolicy::try_from(Written::Switch { switch_at, to: to.map(str::to_string) })
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncPolicy::Auto => f.write_str("auto"),
            SyncPolicy::Phases(phases) => match phases.as_slice() {
                [(_, only)] => write!(f, "{only}"),
                [(_, Protocol::Bsp), (at, Protocol::Asp)] => write!(f, "switch:{at}"),
                [(_, Protocol::Bsp), (at, to)] => write!(f, "switch:{at}:{to}"),
                _ => {
                    let phases = phases.iter().map(|(at, protocol)| format!("[{at:?}, \"{protocol}\"]"));
                    write!(f, "{{ phases = [{}] }}", phases.collect::<Vec<_>>().join(", "))
                }
            },
        }
    }
}

/// How gradients are summed in synchronous phases. The trained parameters are the same bytes either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    /// Among the workers.
    AllReduce,
    /// At the parameter servers.
    Servers,
}

/// How the learning rate follows the batch of an asynchronous update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AsyncRateScaling {
    /// As the update's share of the batch.
    Linear,
    /// As the square root of that share.
    SquareRoot,
    /// Not at all.
    Keep,
}

impl AsyncRateScaling {
    /// What the learning rate is multiplied with for an update of this share of the batch, 0…1.
    pub fn factor(self, share: f64) -> f64 {
        match self {
            AsyncRateScaling::Linear => share,
            AsyncRateScaling::SquareRoot => share.sqrt(),
            AsyncRateScaling::Keep => 1.0,
        }
    }
}

/// What the momentum (of Adam: the first decay rate) is in asynchronous phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AsyncMomentum {
    /// As it is.
    Keep,
    /// Times the update's share of the batch.
    Scale,
    /// None.
    Zero,
}

/// What is done about a worker that is slower than the others, in synchronous phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StragglerPolicy {
    /// Nothing.
    Ignore,
    /// Asynchronous as long as it is slow.
    Greedy,
    /// It pauses until the next asynchronous phase; its virtual nodes go to the others.
    Elastic,
}

/// Which waiting part a connection serves next, as it stands in a job file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Order {
    /// The one that was asked for first, to its end.
    Fifo,
    /// In turns of this many bytes.
    Window(u64),
    /// The one that computing needs first, worked out from the profile.
    Priority,
}

impl FromStr for Order {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::job::Order;
    /// assert_eq!("window:64KiB".parse(), Ok(Order::Window(65536)));
    /// assert!("window".parse::<Order>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "fifo" => Ok(Order::Fifo),
            "priority" => Ok(Order::Priority),
            _ => match text.strip_prefix("window:").map(str::parse::<Bytes>) {
                Some(Ok(bytes)) if bytes.0 > 0 => Ok(Order::Window(bytes.0)),
                _ => Err(ParseError::new("order", text, "fifo, window:64KiB or priority")),
            },
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Fifo => f.write_str("fifo"),
            Order::Priority => f.write_str("priority"),
            // Not rounded: what is written is read again.
            Order::Window(bytes) if bytes % 1024 != 0 => write!(f, "window:{bytes}B"),
            Order::Window(bytes) => write!(f, "window:{}KiB", bytes / 1024),
        }
    }
}

impl TryFrom<String> for Order {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Order> for String {
    fn from(order: Order) -> String {
        order.to_string()
    }
}

impl JsonSchema for Order {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Order".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sync, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_policy_is_a_word_a_switch_or_phases() {
        let phases = |text: &str| read(text).map(|sync| sync.policy);
        assert_eq!(phases("policy = \"ssp:3\""), Ok(SyncPolicy::Phases(vec![(0.0, Protocol::Ssp(3))])));
        assert_eq!(phases("policy = \"auto\""), Ok(SyncPolicy::Auto));
        let switch = SyncPolicy::Phases(vec![(0.0, Protocol::Bsp), (0.0625, Protocol::Asp)]);
        assert_eq!(phases("policy = { switch_at = 0.0625 }"), Ok(switch.clone()));
        assert_eq!(phases("policy = { phases = [[0.0, \"bsp\"], [0.0625, \"asp\"]] }"), Ok(switch));
        for wrong in ["\"bs\"", "{ switch_at = 1.5 }", "{ phases = [[0.5, \"bsp\"]] }", "{ phases = [] }"] {
            assert!(read(&format!("policy = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "policy = \"gossip\"",
            "policy = { switch_at = 0.25, to = \"ssp:2\" }",
            "order = \"window:64KiB\"\nreplica = true\nstragglers = \"elastic\"",
        ] {
            let sync = read(text).expect("it is right");
            let written = serde_json::to_string(&sync).expect("plain data");
            assert_eq!(serde_json::from_str::<Sync>(&written).expect("it was just written"), sync);
        }
    }
}
