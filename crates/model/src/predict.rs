//! What a profile of one worker says of any configuration: the coarse models put together.
//!
//! # Model
//!
//! ```text
//! synchronous, all-reduce   T = E[max_w c_w] + exposed(t_ar) + u + r
//! synchronous, servers      T = E[max_w c_w] + k W S p_max / B (down) + the same (up) + u + r
//! asynchronous, servers     X = MVA(W; Z = E[c] + r + 2 (1 - p_max) S / B, D = p_m S / B down and up, p_m u)
//! bounded by K, servers     the same with Z = E[max_w mean of K + 1 c_w] + r
//! asynchronous, gossip      T = max(c + S/B, 2 S/B)
//! ```
//!
//! | symbol | meaning                                                              | unit    |
//! |--------|----------------------------------------------------------------------|---------|
//! | c_w    | computing of worker w in one step, and d: its virtual nodes, or batch   | s       |
//! | t_ar   | all-reduce: ring, two levels, or this project's direct exchange      | s       |
//! | exposed | what is left of it when all is computed: buckets travel as they get ready      | s       |
//! | d      | waiting for the samples of what is computed in c                     | s       |
//! | u      | update                                                               | s       |
//! | r      | rest of a measured step that is none of these                        | s       |
//! | S, B   | bytes of the gradients; bandwidth of a link, each direction          | B, B/s  |
//! | p_m    | share of server m of the bytes                                       | 1       |
//! | W      | workers                                                              | 1       |
//! | k      | units of a worker in a synchronous step through servers              | 1       |
//! | K      | bound of staleness                                                   | units of a worker |
//!
//! Of workers of several speeds, each speed is a class with a Z of its own, and X is that of all classes together.
//!
//! Where a profile says which parts computing waits for, and sends while it computes, Z is what is left of a lone
//! worker's mean step, as [`crate::event`] says it, without the largest server's D.
//!
//! A *unit* is what is pulled for, computed and pushed as one: `accumulation` virtual nodes of a shared batch, or the
//! batch of one worker. In a synchronous step through servers all workers are taken to have as many units as the one
//! that has most.
//!
//! # Source
//!
//! The parts: [`crate::compute`], [`crate::batch_times`], [`crate::collective`], [`crate::queueing`], [`crate::phase`].
//!
//! # Assumes
//!
//! A profile with several virtual nodes is of a fixed global batch that workers share; one with a single virtual node
//! is of one worker's batch, and each worker has its own. Virtual nodes are alike: what one took says what any other
//! may take. Workers of which none is more than K units ahead are no slower than workers that wait for each other after
//! every K + 1 units; the mean of K + 1 units is taken to be spread as one is, by the root of K + 1 less. Devices of
//! another speed do all computing faster or slower by that factor; on devices with a profile of their own everything is
//! as it says. Where these and others wait for each other, each computes as its own profile says, while update, rest,
//! waiting and handling are those of whatever device takes longest; where not all wait for all, they differ in the mean
//! of their computing alone. Computing of a batch of other size is as [`crate::batch_times`] says where the profile has
//! several, else proportional to it. Waiting for samples is proportional to their number, the same on devices of any
//! speed, and as if each worker had a loader of its own. Where loading hides behind computing, a faster device waits
//! longer than this says.
//!
//! # Valid
//!
//! Interpolated for the profiles' own batch and devices, and a link that was measured; extrapolated otherwise. The
//! interval is that of the mean of the measured computing, and of [`LINK_UNCERTAINTY`] on what goes over links. Where
//! asynchronous workers mostly wait for their servers, its lower end is what they do if they fall into step, which was
//! measured, and which the models do not foresee.
//!
//! # Checked by
//!
//! Laws in `tests/it/predict.rs`; live measurements behind shaped links (`bellwether-bench scaling`).
//!
//! ```
//! use bellwether_core::prediction::{Configuration, DeviceGroup, Link, Protocol, StepModel};
//! use bellwether_core::profile::Profile;
//! use bellwether_model::predict::ProfileModel;
//!
//! // One worker: 4 virtual nodes of 0.1 s, a vector of 1 MB.
//! let text = r#"{"version":1,"job":"j","source":"s","device":"d","batch":8,"virtual_nodes":4,"parameter_bytes":1000000,
//!   "parts":[{"name":"g","bytes":1000000}],
//!   "operations":[{"name":"0","kind":"compute"},{"name":"1","kind":"compute","after":[0]},
//!     {"name":"2","kind":"compute","after":[1]},{"name":"3","kind":"compute","after":[2]},
//!     {"name":"up","kind":{"upload":0},"after":[3]},{"name":"update","kind":{"update":0},"after":[4]}],
//!   "steps":[{"step_s":0.4,"operations_s":[0.1,0.1,0.1,0.1,0.0,0.0]}]}"#;
//! let model = ProfileModel::new(Profile::read(text, "p").unwrap()).unwrap();
//! let link = Link { bandwidth_bytes_per_s: 1e7, latency_s: 0.0 };
//! let two = model.configuration(2, link);
//! // 2 virtual nodes each, and a ring of two: all bytes once each way. 0.2 s + 0.1 s for 8 samples.
//! let prediction = model.predict(&model.job(), &two).unwrap();
//! assert!((prediction.examples_per_s - 8.0 / 0.3).abs() < 1e-9);
//! ```

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, JobDescription, Link, PredictError, Prediction, Protocol,
    StepModel, Validity,
};
use bellwether_core::profile::{CollectiveCost, OperationKind, Profile};
use bellwether_des::statistics::mean;

use crate::batch_times::BatchTimes;
use crate::collective::{Algorithm, Bucket, all_reduce_s, hierarchical_s, overlap_on_one_processor};
use crate::compute::{Durations, most_virtual_nodes};
use crate::event::server_bytes;
use crate::memory::MemoryLaw;
use crate::phase::{PhaseTime, Servers, synchronous_all_reduce, synchronous_servers};
use crate::queueing::Shares;

mod asynchronous;
mod batches;
mod devices;
mod fine;
mod handling;
mod local;
mod memory;
mod question;
mod recut;
mod room;
mod slowest;
mod units;
mod waiting;
mod whole_run;

use devices::Device;
pub use devices::slower;
pub use question::{
    ANSWERS_MAX, Answer, DeviceSpec, DeviceSpeed, Fidelity, Question, QuestionError, SendOrder, mark,
};
pub use whole_run::{PhaseAnswer, RunAnswer, RunQuestion};

/// Standard error of the time that bytes take over a link, relative: what repeated bulk measurements differ by.
pub const LINK_UNCERTAINTY: f64 = 0.03;

/// Most servers: a wrong number must not take the machine's memory.
const SERVERS_MAX: u32 = 1_000_000;

/// Two standard errors on each side ...
pub(crate) const LEVEL_95: f64 = 1.96;

/// ... of an interval that holds the truth so often.
const LEVEL: f64 = 0.95;

/// A profile that answers questions.
#[derive(Debug, Clone)]
pub struct ProfileModel {
    profile: Profile,
    /// Types of device, the profiled one among them.
    devices: BTreeMap<String, Device>,
    update_s: f64,
    /// Mean seconds that a step waited for its samples.
    data_wait_s: f64,
    rest_s: f64,
    /// Whether parts were received while it was measured.
    downloads: bool,
    /// What a micro-batch takes by its size, where several were measured.
    batches: Option<BatchTimes>,
    /// What a worker needs of memory, where it was measured.
    memory: Option<MemoryLaw>,
}

/// A step in the making.
struct Step {
    step_s: f64,
    /// The part that goes over links.
    link_s: f64,
    bottleneck: Bottleneck,
}

impl ProfileModel {
    /// Takes a profile in.
    ///
    /// # Errors
    ///
    /// Returns an error for a profile that does not pass [`Profile::check`], or in which nothing is computed.
    pub fn new(profile: Profile) -> Result<ProfileModel, InputError> {
        profile.check()?;
        let compute = mean(&profile.compute_s());
        if compute <= 0.0 {
            return Err(InputError::new("operations", "no operation of the profile computes for any time")
                .hint("measure again with `bellwether profile`"));
        }
        let update_s = mean(&profile.update_s());
        let step_s = mean(&profile.steps.iter().map(|step| step.step_s).collect::<Vec<_>>());
        // Where parts were received while it was measured, the rest of a step is their wire time: not ours to replay.
        let downloads = profile.operations.iter().any(|o| matches!(o.kind, OperationKind::Download(_)));
        let data_wait_s = mean(&profile.data_wait_s());
        let rest_s = if downloads { 0.0 } else { (step_s - compute - update_s - data_wait_s).max(0.0) };
        let devices = BTreeMap::from([(profile.device.clone(), Device::Relative(1.0))]);
        let batches = BatchTimes::of(&profile.batches)?;
        let memory = MemoryLaw::of(&profile);
        Ok(ProfileModel { profile, devices, update_s, data_wait_s, rest_s, downloads, batches, memory })
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether workers share one global batch, or each has its own.
    pub fn shares_batch(&self) -> bool {
        self.profile.virtual_nodes > 1
    }

    /// The job of the profile.
    pub fn job(&self) -> JobDescription {
        let Profile { job, parameter_bytes, batch, .. } = &self.profile;
        JobDescription { name: job.clone(), model: format!("{parameter_bytes} B"), batch: *batch, devices: 1 }
    }

    /// The plainest configuration of `workers`: one profiled device per node, synchronous, no servers.
    pub fn configuration(&self, workers: u32, link: Link) -> Configuration {
        let together = self.are_together(&link);
        let device = |node| DeviceGroup { node, device: self.profile.device.clone(), count: 1 };
        let devices = (0..workers).map(|worker| device(if together { 0 } else { worker })).collect();
        let own = if self.shares_batch() { 1 } else { u64::from(workers) };
        Configuration::synchronous(devices, self.profile.batch * own, link)
    }

    /// Bytes held by each of `servers`: as the profile says, or by the rule of the parameter servers, which cut large
    /// parts ([`with_pieces`](crate::event::with_pieces)). A part whose server does not exist here goes where there is
    /// room.
    pub fn server_bytes(&self, servers: u32) -> Vec<f64> {
        server_bytes(&self.profile, servers)
    }

    /// How the parts are spread over `servers`.
    fn shares(&self, servers: u32) -> Result<Shares, PredictError> {
        if servers > SERVERS_MAX {
            let why = format!("{servers} servers are more than any job has parts for");
            return Err(PredictError::Unsupported(why));
        }
        Ok(Shares::new(&self.server_bytes(servers))?)
    }

    /// Measured durations of this many of a worker's virtual nodes, wherever they stood in their step.
    fn durations(&self, nodes: u32) -> Result<Durations, InputError> {
        if nodes >= self.profile.virtual_nodes {
            return Durations::new(&self.profile.compute_s());
        }
        let mut sums_s = Vec::new();
        for step in &self.profile.steps {
            let of_step: Vec<f64> = step
                .operations_s
                .iter()
                .zip(&self.profile.operations)
                .filter(|(_, operation)| operation.kind == OperationKind::Compute)
                .map(|(seconds, _)| *seconds)
                .collect();
            // Where computing is not cut into virtual nodes, a share of it is the best guess.
            if of_step.len() != self.profile.virtual_nodes as usize {
                let share = f64::from(nodes) / f64::from(self.profile.virtual_nodes);
                sums_s.push(of_step.iter().sum::<f64>() * share);
                continue;
            }
            let nodes = nodes as usize;
            if of_step.len().is_multiple_of(nodes) {
                sums_s.extend(of_step.chunks_exact(nodes).map(|chunk| chunk.iter().sum::<f64>()));
                continue;
            }
            // Each virtual node counts as often as any other, so that none is dropped, slow or fast.
            let mut window_s: f64 = of_step[..nodes].iter().sum();
            for (first, last) in of_step.iter().zip(of_step.iter().cycle().skip(nodes)) {
                sums_s.push(window_s.max(0.0));
                window_s += last - first;
            }
        }
        Durations::new(&sums_s)
    }

    /// Seconds of the all-reduce that no computing hides.
    fn exposed_s(&self, configuration: &Configuration, compute_s: f64) -> Result<f64, InputError> {
        let (workers, link) = (configuration.workers(), &configuration.link);
        let nodes = units::devices_by_node(configuration);
        let bytes = self.profile.upload_bytes();
        if workers == 1 || bytes == 0 {
            return Ok(0.0);
        }
        let reduce_s = |bytes: u64| match &configuration.local_link {
            Some(local) if nodes.iter().any(|count| *count > 1) => hierarchical_s(&nodes, bytes, local, link),
            _ => all_reduce_s(Algorithm::Ring, workers, bytes, link),
        };
        if self.shares_batch() {
            return match configuration.local_link {
                Some(_) => reduce_s(bytes),
                None => self.exposed_of_runtime_s(configuration, compute_s, bytes),
            };
        }
        let total_s = self.mean_compute_s();
        let ready = self.ready_s();
        let cost = self.profile.collective.unwrap_or(CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 });
        let sent = Algorithm::Ring.link_bytes_per_byte(workers);
        let handling_s: Vec<f64> = ready
            .iter()
            .map(|(_, part)| {
                let bytes = self.profile.parts[*part as usize].bytes as f64;
                sent * bytes * cost.s_per_byte + f64::from(workers - 1) * cost.fixed_s
            })
            .collect();
        let buckets = ready
            .into_iter()
            .map(|(ready_s, part)| {
                let exchange_s = reduce_s(self.profile.parts[part as usize].bytes)?;
                Ok(Bucket { ready_s: (ready_s * compute_s / total_s).min(compute_s), exchange_s })
            })
            .collect::<Result<Vec<_>, InputError>>()?;
        Ok(overlap_on_one_processor(&buckets, &handling_s, compute_s)?.exposed_s)
    }

    fn mean_compute_s(&self) -> f64 {
        mean(&self.profile.compute_s())
    }

    /// When each upload may begin in a mean step whose operations compute one after another, and its part;
    /// earliest first.
    fn ready_s(&self) -> Vec<(f64, u32)> {
        let count = self.profile.operations.len();
        let steps = self.profile.steps.len() as f64;
        let mean_s = |number: usize| {
            self.profile.steps.iter().map(|step| step.operations_s[number]).sum::<f64>() / steps
        };
        let mut end_s = vec![0.0f64; count];
        let mut now_s = 0.0;
        for (number, operation) in self.profile.operations.iter().enumerate() {
            if operation.kind == OperationKind::Compute {
                now_s += mean_s(number);
                end_s[number] = now_s;
            }
        }
        let ready = |operation: &bellwether_core::profile::Operation| {
            let OperationKind::Upload(part) = operation.kind else { return None };
            let ready_s = operation.after.iter().map(|before| end_s[*before as usize]).fold(0.0, f64::max);
            Some((ready_s, part))
        };
        let mut all: Vec<(f64, u32)> = self.profile.operations.iter().filter_map(ready).collect();
        all.sort_by(|left, right| left.0.total_cmp(&right.0));
        all
    }

    fn synchronous(&self, configuration: &Configuration) -> Result<Step, PredictError> {
        let workers = configuration.workers();
        let nodes = match self.shares_batch() {
            true if configuration.servers > 0 => self.synchronous_units(configuration)?.1,
            true => most_virtual_nodes(self.profile.virtual_nodes, workers)?,
            false => 1,
        };
        let computing_s = self.slowest_s(configuration, nodes)?;
        let waiting_s = self.most(configuration, |model| model.waiting_s(configuration, nodes));
        let rest_s = self.most(configuration, |model| model.rest_s);
        let update_s = self.most(configuration, |model| model.update_s);
        let compute_s = computing_s + waiting_s;
        let phase = if configuration.servers == 0 {
            let mut exposed_s = 0.0_f64;
            for model in self.models(configuration) {
                exposed_s = exposed_s.max(model.exposed_s(configuration, computing_s)?);
            }
            synchronous_all_reduce(compute_s + rest_s, update_s, exposed_s, 0.0)?
        } else {
            // Each unit of a worker's share of the step pulls all parameters and pushes all gradients.
            let units = if self.shares_batch() { self.synchronous_units(configuration)?.0 } else { 1 };
            let asking_s = 2.0 * f64::from(units - 1) * configuration.link.latency_s;
            self.through_servers(configuration, compute_s + rest_s + asking_s, units, update_s)?
        };
        let link_s = (phase.step_s - compute_s - rest_s - update_s).max(0.0);
        Ok(Step { step_s: phase.step_s, link_s, bottleneck: phase.bottleneck })
    }

    /// A step in which all pull at once, compute, push at once, and wait until all is applied in `update_s` by one
    /// server.
    fn through_servers(
        &self,
        configuration: &Configuration,
        compute_s: f64,
        units: u32,
        update_s: f64,
    ) -> Result<PhaseTime, PredictError> {
        let shares = self.shares(configuration.servers)?;
        let update_s = update_s * shares.largest();
        let (server_link, worker_link) = (configuration.link, configuration.link);
        let servers = Servers { shares, server_link, worker_link, update_s };
        let bytes = self.profile.upload_bytes().saturating_mul(u64::from(units));
        Ok(synchronous_servers(compute_s, configuration.workers(), bytes, &servers, 0.0)?)
    }

    /// A step of `step_s` with its relative `error` as a prediction, if these are finite.
    fn prediction(
        &self,
        configuration: &Configuration,
        step_s: f64,
        error: f64,
        bottleneck: Bottleneck,
    ) -> Result<Prediction, PredictError> {
        let examples_per_s = configuration.batch as f64 / step_s;
        let (mut low, high) = (examples_per_s / (1.0 + error), examples_per_s * (1.0 + error));
        if let Some(slowest_s) = self.in_step_s(configuration, bottleneck)? {
            low = low.min(configuration.batch as f64 / slowest_s);
        }
        if ![low, high, step_s].iter().all(|value| value.is_finite() && *value > 0.0) {
            return Err(PredictError::OutOfRange(format!("a step of {step_s} s is beyond all measure")));
        }
        let bottleneck = self.or_data(bottleneck, configuration)?;
        let validity = self.validity(configuration);
        Ok(Prediction { examples_per_s, low, high, step_s, bottleneck, validity })
    }

    /// Why a configuration lies beyond what was measured, if it does.
    pub fn validity(&self, configuration: &Configuration) -> Validity {
        let mut reasons = Vec::new();
        reasons.extend(self.other_batch(configuration));
        let measured = self.profile.network.is_some_and(|network| {
            configuration.link.bandwidth_bytes_per_s <= network.bandwidth_bytes_per_s * (1.0 + 1e-9)
        });
        if self.models(configuration).len() > 1 {
            reasons.push("a link between unlike devices, which was not measured");
        } else if configuration.workers() > 1 && !measured {
            reasons.push("a link that was not measured");
        }
        let other = |device: &str| device != self.profile.device && !self.is_measured(device);
        if configuration.devices.iter().any(|group| other(&group.device)) {
            reasons.push("another device than the profiled one");
        }
        if !configuration.shared_with.is_empty() {
            reasons.push("devices that other jobs share");
        }
        if self.most(configuration, ProfileModel::contention) > 0.0 {
            reasons.push("a machine that was busy while it was profiled");
        }
        match reasons.is_empty() {
            true => Validity::Interpolated,
            false => Validity::Extrapolated(reasons.join(", ")),
        }
    }
}

impl StepModel for ProfileModel {
    fn virtual_node_s(&self, _: &JobDescription, configuration: &Configuration) -> Option<f64> {
        match self.measured_there(configuration) {
            Some((model, there)) => model.lone_node_s(&there),
            None => self.lone_node_s(configuration),
        }
    }

    fn fits(&self, _: &JobDescription, configuration: &Configuration, room: f64) -> Result<(), PredictError> {
        self.check_room(configuration, room)
    }

    fn predict(&self, _: &JobDescription, configuration: &Configuration) -> Result<Prediction, PredictError> {
        if let Some((model, there)) = self.measured_there(configuration) {
            return model.predict(&model.job(), &there);
        }
        let workers = configuration.workers();
        if workers == 0 {
            return Err(PredictError::Incomplete("a configuration has at least one worker".into()));
        }
        if configuration.batch == 0 {
            return Err(PredictError::Incomplete("a step has at least one sample".into()));
        }
        let carries = configuration.link.bandwidth_bytes_per_s > 0.0;
        if workers > 1 && !carries {
            return Err(PredictError::Incomplete("a link without bandwidth carries nothing".into()));
        }
        let step = match configuration.protocol {
            Protocol::Bsp => self.synchronous(configuration)?,
            Protocol::Asp | Protocol::Ssp(_) => self.asynchronous(configuration)?,
            Protocol::Gossip => self.gossip(configuration)?,
            Protocol::Local(steps) => self.local(configuration, steps)?,
        };
        let step = self.with_handling(configuration, step)?;
        let error =
            self.most(configuration, |model| model.uncertainty_at(configuration, step.step_s, step.link_s));
        self.prediction(configuration, step.step_s, error, step.bottleneck)
    }
}
