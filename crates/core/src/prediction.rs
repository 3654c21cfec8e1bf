//! The seam between models and their callers: a job and a configuration in, a prediction out.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InputError, InputErrorKind, ParseError};
use crate::profile::Network;
use crate::units::{BytesPerSecond, Seconds};

/// What a model must know of a job beside what it was fitted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDescription {
    /// Its name.
    pub name: String,
    /// The model that it trains, in the words of the profile or table that describes it.
    pub model: String,
    /// Samples of a step that its author chose; statistical efficiency is 1 there.
    pub batch: u64,
    /// Devices that its author asked for: a declared speed holds there.
    pub devices: u32,
}

/// Where and how a job might run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Devices, grouped by the node that holds them.
    pub devices: Vec<DeviceGroup>,
    /// Samples of a step of all workers together (of one worker's step times the workers, where no worker waits).
    pub batch: u64,
    /// Micro-batches that each worker computes one after another before it exchanges anything.
    pub accumulation: u32,
    /// Who waits for whom.
    pub protocol: Protocol,
    /// Parameter servers; 0 for none.
    pub servers: u32,
    /// The link of each node to the others.
    pub link: Link,
    /// The link between devices of one node, where it is another.
    pub local_link: Option<Link>,
    /// Jobs that use the same devices at the same time.
    pub shared_with: Vec<String>,
}

/// Devices of one type in one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGroup {
    /// The node.
    pub node: u32,
    /// Type of the device.
    pub device: String,
    /// How many of them.
    pub count: u32,
}

/// A link, the same in both directions at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes per second in each direction.
    pub bandwidth_bytes_per_s: f64,
    /// Seconds that the first byte takes.
    pub latency_s: f64,
}

impl Link {
    /// A link where none is described: so fast that nothing waits for it.
    pub const UNLIMITED: Link = Link { bandwidth_bytes_per_s: 1e15, latency_s: 1e-12 };

    /// Whether it stands for a link that is not described.
    pub fn is_unlimited(&self) -> bool {
        *self == Link::UNLIMITED
    }

    /// A link as a user writes it; without a latency its first byte takes no time.
    pub fn new(bandwidth: BytesPerSecond, latency: Option<Seconds>) -> Link {
        Link { bandwidth_bytes_per_s: bandwidth.get(), latency_s: latency.map_or(0.0, Seconds::get) }
    }
}

/// The table `[network]` of a cluster file and of a price catalogue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkFile {
    /// Of each machine to the others, in each direction.
    bandwidth: BytesPerSecond,
    /// Time that a first byte takes.
    latency: Option<Seconds>,
    /// Between devices of one machine, where it is another.
    local_bandwidth: Option<BytesPerSecond>,
    /// Time that a first byte takes there.
    local_latency: Option<Seconds>,
}

impl NetworkFile {
    /// Between machines.
    pub fn link(&self) -> Link {
        Link::new(self.bandwidth, self.latency)
    }

    /// Between devices of one machine, where it is another.
    pub fn local_link(&self) -> Option<Link> {
        Some(Link::new(self.local_bandwidth?, self.local_latency))
    }
}

/// Who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// All wait for all, every step.
    Bsp,
    /// No worker waits.
    Asp,
    /// No worker is more than this many steps ahead of the slowest.
    Ssp(u32),
    /// No worker waits; pairs average their parameters, and there is no server.
    Gossip,
    /// Each virtual node trains by itself for this many steps; then all wait for all, and an outer step follows what
    /// they moved on average.
    Local(u32),
}

/// What keeps a configuration from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The workers' devices.
    Compute,
    /// Samples that come later than they are computed.
    Data,
    /// A network link.
    Link,
    /// A parameter server's own work.
    Server,
}

/// Whether a prediction lies where its model was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// It does.
    Interpolated,
    /// It does not, and this is why.
    Extrapolated(String),
}

impl Validity {
    /// Why it lies beyond what was measured, if it does.
    pub fn beyond(&self) -> Option<&str> {
        match self {
            Validity::Interpolated => None,
            Validity::Extrapolated(why) => Some(why),
        }
    }
}

/// What a model says of one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Samples per second, all workers together.
    pub examples_per_s: f64,
    /// Lower end of the 95 % interval of `examples_per_s`.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Seconds from one step of a worker to its next.
    pub step_s: f64,
    /// What bounds the throughput.
    pub bottleneck: Bottleneck,
    /// Whether the model was measured there.
    pub validity: Validity,
}

/// What a profile says of a job on a number of equal devices, before it ran there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProfiledRate {
    /// Devices, one for each worker.
    pub workers: u32,
    /// Their speed, relative to the device of the profile.
    pub speed: f64,
    /// Samples per second, all workers together.
    pub examples_per_s: f64,
    /// Lower end of the 95 % interval of `examples_per_s`.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// What bounds the throughput.
    pub bottleneck: Bottleneck,
}

/// Why a model cannot answer, each time with a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PredictError {
    /// Nothing is known of such a job or type of device; another name may be.
    Unknown(String),
    /// The model knows no such protocol, mixture or number of devices.
    Unsupported(String),
    /// The job does not run on these devices: too little memory for it, or too small a batch for their number.
    DoesNotFit(String),
    /// The question lacks something: a device, a sample, a link that carries anything.
    Incomplete(String),
    /// The answer is more, or less, than a number can hold.
    OutOfRange(String),
}

impl fmt::Display for PredictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PredictError::Unknown(why)
        | PredictError::Unsupported(why)
        | PredictError::DoesNotFit(why)
        | PredictError::Incomplete(why)
        | PredictError::OutOfRange(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for PredictError {}

impl From<InputError> for PredictError {
    /// A part of a model refused the configuration that it was to work with.
    fn from(error: InputError) -> PredictError {
        match error.kind {
            InputErrorKind::Unknown => PredictError::Unknown(error.what),
            InputErrorKind::Invalid | InputErrorKind::Unsupported => PredictError::Unsupported(error.what),
        }
    }
}

/// Predicts what a job does in a configuration.
///
/// # Laws
///
/// - Everything in a [`Prediction`] is finite and positive, and `low <= examples_per_s <= high`.
/// - The same question gets the same answer.
/// - What is [kept](StepModel::shared) beside another job is above 0 and at most 1, and where one of two keeps nothing
///   the other one keeps nothing either.
pub trait StepModel {
    /// Throughput and step time of `job` in `configuration`.
    ///
    /// # Errors
    ///
    /// Returns an error if the model cannot answer for such a job or configuration at all.
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError>;

    /// The same while the links between the job's nodes carry only `part` (above 0, at most 1) of their bandwidth for
    /// it. A model that does not read [`Configuration::link`] says of any part what it says of the whole, unless it
    /// knows the time of the exchange otherwise.
    ///
    /// # Errors
    ///
    /// Same errors as [`predict`](StepModel::predict).
    fn predict_on_part(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        part: f64,
    ) -> Result<Prediction, PredictError> {
        let mut less = configuration.clone();
        less.link.bandwidth_bytes_per_s *= part;
        self.predict(job, &less)
    }

    /// Seconds that a lone device of `configuration` needs for one of the equal parts that the job's batch is cut into,
    /// its virtual nodes; `None` where the model does not know them.
    fn virtual_node_s(&self, _job: &JobDescription, _configuration: &Configuration) -> Option<f64> {
        None
    }

    /// Whether each worker of `configuration` fits into `room_bytes` of memory, as far as the model knows.
    ///
    /// # Errors
    ///
    /// [`PredictError::DoesNotFit`], which says by how much it does not.
    fn fits(
        &self,
        _job: &JobDescription,
        _configuration: &Configuration,
        _room_bytes: f64,
    ) -> Result<(), PredictError> {
        Ok(())
    }

    /// Progress per sample at `batch`, relative to that at the job's own batch, after `progress` samples.
    fn efficiency(&self, _job: &JobDescription, _batch: u64, _progress: f64) -> f64 {
        1.0
    }

    /// Whether speeds are relative to the devices that the job's author asked for, so that its work is seconds there.
    fn is_relative(&self) -> bool {
        false
    }

    /// Whether the speed of a job with its devices for itself follows from their type and the number of its workers:
    /// neither nodes and links nor its batch or progress matter, and it has no more than one type. What then bounds a
    /// job on any devices can be found from few.
    fn is_by_count(&self) -> bool {
        false
    }

    /// The fraction of its speed alone in `configuration` that `job` keeps while `beside` trains on the same devices;
    /// `None` if the two cannot share them, usually for want of memory. A model that knows nothing of sharing says that
    /// no two jobs can.
    ///
    /// # Errors
    ///
    /// Returns an error if the model cannot answer for such a pair or configuration at all.
    fn shared(
        &self,
        _job: &JobDescription,
        _configuration: &Configuration,
        _beside: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        Ok(None)
    }

    /// The progress, in samples, at which the efficiency changes next; `None` when it stays.
    fn efficiency_changes_at(&self, _job: &JobDescription, _progress: f64) -> Option<f64> {
        None
    }

    /// The batch with which the job makes most progress in `configuration` (whose own batch does not count) after
    /// `progress` samples. A model that knows no other batch answers with the configuration's.
    ///
    /// # Errors
    ///
    /// Same errors as [`predict`](StepModel::predict).
    fn best_batch(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
        progress: f64,
    ) -> Result<Progress, PredictError> {
        let prediction = self.predict(job, configuration)?;
        Ok(Progress {
            batch: configuration.batch,
            accumulation: configuration.accumulation,
            examples_per_s: prediction.examples_per_s,
            efficiency: self.efficiency(job, configuration.batch, progress),
        })
    }
}

/// What a job makes of its best batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Samples of a step of all workers together.
    pub batch: u64,
    /// Micro-batches that each worker computes one after another before it exchanges anything.
    pub accumulation: u32,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Progress per sample, relative to that at the job's own batch.
    pub efficiency: f64,
}

impl Progress {
    /// Samples per second that count: as many as at the job's own batch would take it as far.
    pub fn goodput(&self) -> f64 {
        self.examples_per_s * self.efficiency
    }
}

impl From<Network> for Link {
    fn from(network: Network) -> Link {
        let Network { bandwidth_bytes_per_s, latency_s } = network;
        Link { bandwidth_bytes_per_s, latency_s }
    }
}

impl Configuration {
    /// All wait for all, there are no servers, and `link` is the only one.
    pub fn synchronous(devices: Vec<DeviceGroup>, batch: u64, link: Link) -> Configuration {
        Configuration {
            devices,
            batch,
            accumulation: 1,
            protocol: Protocol::Bsp,
            servers: 0,
            link,
            local_link: None,
            shared_with: Vec::new(),
        }
    }

    /// The same in units of `nodes` virtual nodes, after which a worker pushes and pulls: of a job that shares a batch
    /// of `batch` samples among `virtual_nodes`. Where not all workers wait, a worker's step is one unit.
    pub fn in_units(mut self, batch: u64, virtual_nodes: u32, nodes: u32) -> Configuration {
        self.accumulation = nodes.clamp(1, virtual_nodes.max(1));
        if virtual_nodes > 1 && !self.protocol.waits_for_all() {
            let share = f64::from(self.accumulation) / f64::from(virtual_nodes);
            let samples = batch as f64 * share * f64::from(self.workers());
            self.batch = (samples.round() as u64).max(1);
        }
        self
    }

    /// Workers: one per device.
    pub fn workers(&self) -> u32 {
        self.devices.iter().fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// Different nodes that hold devices.
    pub fn nodes(&self) -> u32 {
        let mut nodes: Vec<u32> = self.devices.iter().filter(|g| g.count > 0).map(|g| g.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len() as u32
    }
}

/// What a protocol may be.
const PROTOCOLS: &str = "bsp, asp, ssp:K (for example ssp:3), gossip, or local:H (for example local:50)";

impl FromStr for Protocol {
    type Err = ParseError;

    /// ```
    /// use bellwether_core::prediction::Protocol;
    /// assert_eq!("ssp:3".parse(), Ok(Protocol::Ssp(3)));
    /// assert_eq!("local:50".parse(), Ok(Protocol::Local(50)));
    /// assert!("local:0".parse::<Protocol>().is_err());
    /// assert!("spp".parse::<Protocol>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "bsp" => Ok(Protocol::Bsp),
            "asp" => Ok(Protocol::Asp),
            "gossip" => Ok(Protocol::Gossip),
            _ => match text.strip_prefix("ssp:").map(str::parse) {
                Some(Ok(bound)) => Ok(Protocol::Ssp(bound)),
                _ => match text.strip_prefix("local:").map(str::parse) {
                    Some(Ok(steps)) if steps > 0 => Ok(Protocol::Local(steps)),
                    _ => Err(ParseError::new("protocol", text, PROTOCOLS)),
                },
            },
        }
    }
}

impl Protocol {
    /// Whether the parameters are kept at servers, which workers ask and tell whenever they are ready.
    pub fn needs_servers(self) -> bool {
        matches!(self, Protocol::Asp | Protocol::Ssp(_))
    }

    /// Whether virtual nodes train by themselves between two exchanges.
    pub fn is_local(self) -> bool {
        matches!(self, Protocol::Local(_))
    }

    /// Whether all workers wait for all, be it only after some steps: then the trained bits are the same for any number
    /// of workers.
    pub fn waits_for_all(self) -> bool {
        self == Protocol::Bsp || self.is_local()
    }

    /// Steps after which all wait for all: 1 but for [`Protocol::Local`].
    ///
    /// ```
    /// use bellwether_core::prediction::Protocol;
    /// assert_eq!((Protocol::Bsp.steps_per_round(), Protocol::Local(50).steps_per_round()), (1, 50));
    /// ```
    pub fn steps_per_round(self) -> u32 {
        match self {
            Protocol::Local(steps) => steps.max(1),
            _ => 1,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protocol::Bsp => write!(f, "bsp"),
            Protocol::Asp => write!(f, "asp"),
            Protocol::Ssp(bound) => write!(f, "ssp:{bound}"),
            Protocol::Gossip => write!(f, "gossip"),
            Protocol::Local(steps) => write!(f, "local:{steps}"),
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::Compute => "compute",
            Bottleneck::Data => "data",
            Bottleneck::Link => "link",
            Bottleneck::Server => "server",
        })
    }
}
