//! Questions about a job as a person asks them: which workers, devices and servers, under which protocol, for which
//! numbers of workers; answered by the coarse or the fine model, with the knee marked.

use bellwether_core::InputError;
use bellwether_core::job::{Reduce, WorkerRange};
use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, Link, Prediction, Protocol, StepModel, Validity,
};
use bellwether_core::units::Bytes;
use serde::Serialize;

use super::ProfileModel;
use crate::event::{TransmissionOrder, priority};
use crate::staleness;

/// Numbers of workers to answer for at once: more make no table, and a mistyped one must not run for ever.
pub const ANSWERS_MAX: u32 = 4_096;

/// Rows of a trace, which a viewer still opens.
const TRACE_ROWS: usize = 200_000;

/// A marginal worker that adds less than this part of the first one's throughput is past the knee.
const KNEE_EFFICIENCY: f64 = 0.5;

/// A type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// How fast it is.
    pub speed: DeviceSpeed,
    /// How many workers have it; `None`: all.
    pub count: Option<u32>,
}

/// How fast a type of device is.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceSpeed {
    /// Relative to the profiled device.
    Relative(f64),
    /// As the profile in this file says, which was measured there.
    Profiled(String),
}

impl std::fmt::Display for DeviceSpeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceSpeed::Relative(speed) => speed.fmt(f),
            DeviceSpeed::Profiled(file) => f.write_str(file),
        }
    }
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Every operation of every worker.
    Fine,
    /// Formulas over phases.
    Coarse,
    /// The coarse model wherever there is one.
    Auto,
}

/// The order in which parts are sent, for the fine model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOrder {
    /// As asked for.
    Fifo,
    /// In turns of this many bytes.
    RoundRobin(Bytes),
    /// What the most operations wait for first, whatever the times.
    Tic,
    /// The same with times.
    Tac,
}

/// What is asked, but for the number of workers.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The job.
    pub model: &'a ProfileModel,
    /// Every worker's and server's link.
    pub link: Link,
    /// Which workers wait for which.
    pub protocol: Protocol,
    /// Parameter servers; `None`: as many as the protocol needs.
    pub servers: Option<u32>,
    /// Where gradients are summed in synchronous training; `None`: as `servers` says.
    pub reduce: Option<Reduce>,
    /// The workers' devices, which the model knows; empty: the profiled one.
    pub devices: &'a [DeviceSpec],
    /// Samples per step, or of each update where workers do not wait for each other; `None`: as profiled.
    pub batch: Option<u64>,
    /// Virtual nodes whose gradients make one update through servers.
    pub nodes_per_update: u32,
    /// Which model answers.
    pub fidelity: Fidelity,
    /// For the fine model.
    pub order: SendOrder,
    /// Seed of the fine model's draws.
    pub seed: u64,
}

/// The answer for one number of workers.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// How many.
    pub workers: u32,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Seconds of a step.
    pub step_s: f64,
    /// What limits it.
    pub bottleneck: Bottleneck,
    /// Throughput over that of the same workers each alone; not a number before [`Question::mark_knee`].
    pub efficiency: f64,
    /// Whether this is the last number of workers that is worth its last worker: the next one adds too little.
    pub knee: bool,
    /// Whether the profile covers it.
    pub validity: Validity,
    /// Which model answered: `fine` or `coarse`.
    pub model: &'static str,
    /// Which times at links and servers the coarse model takes where workers queue: `exponential`; absent where none
    /// do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stations: Option<&'static str>,
    /// Expected mean staleness of an update; absent where there is no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<f64>,
    /// Bytes of memory that the largest worker needs; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_bytes: Option<f64>,
}

impl Answer {
    /// A model's prediction for this many workers; its efficiency is not known before [`mark`].
    pub fn of(workers: u32, prediction: Prediction, model: &'static str) -> Answer {
        let Prediction { examples_per_s, low, high, step_s, bottleneck, validity } = prediction;
        let (efficiency, knee, stations, staleness, worker_bytes) = (f64::NAN, false, None, None, None);
        Answer {
            workers,
            examples_per_s,
            low,
            high,
            step_s,
            bottleneck,
            efficiency,
            knee,
            validity,
            model,
            stations,
            staleness,
            worker_bytes,
        }
    }
}

/// A question cannot be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionError {
    /// An option of the question is wrong or contradicts another; the place is the option's name on the command line,
    /// without its dashes.
    Option(InputError),
    /// The model refuses.
    Model(InputError),
}

impl std::fmt::Display for QuestionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (QuestionError::Option(error) | QuestionError::Model(error)) = self;
        error.fmt(f)
    }
}

impl std::error::Error for QuestionError {}

impl From<InputError> for QuestionError {
    fn from(error: InputError) -> QuestionError {
        QuestionError::Model(error)
    }
}

/// Refuses an option.
pub(super) fn wrong<T>(option: &str, what: impl std::fmt::Display, hint: &str) -> Result<T, QuestionError> {
    Err(QuestionError::Option(InputError::new(option, what).hint(hint)))
}

impl Question<'_> {
    /// The same with the servers that `reduce` says.
    #[must_use]
    pub fn reduced(mut self) -> Self {
        if self.synchronous() {
            match self.reduce {
                Some(Reduce::Servers) => self.servers = Some(self.servers.unwrap_or(1)),
                Some(Reduce::AllReduce) => self.servers = Some(0),
                None => {}
            }
        }
        self
    }

    /// Refuses options that contradict each other; `with_trace` says that a trace is wanted.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option.
    pub fn check(&self, with_trace: bool) -> Result<(), QuestionError> {
        let protocol = self.protocol;
        if self.reduce == Some(Reduce::Servers) && self.servers == Some(0) {
            return wrong("servers", "missing servers: gradients are summed there", "ask for 1 or more");
        }
        if self.servers == Some(0) && self.needs_servers() {
            let what = format!("missing servers: {protocol} keeps the parameters at parameter servers");
            return wrong("servers", what, "ask for 1 or more, or for --protocol bsp or gossip");
        }
        let has_none = protocol == Protocol::Gossip || protocol.is_local();
        if has_none && self.servers.is_some_and(|servers| servers > 0) {
            let what = format!("{protocol} has no parameter servers");
            return wrong("servers", what, "leave it out, or choose --protocol asp");
        }
        if self.order != SendOrder::Fifo && !self.is_fine()? {
            let what = "only the fine-grained model of training through parameter servers knows an order";
            return wrong("order", what, "add --servers 1 and leave --model out");
        }
        if with_trace && !self.through_servers() {
            let what = "only training through parameter servers has a trace";
            return wrong("trace", what, "add --servers 1, for gossip --protocol asp");
        }
        self.check_devices()
    }

    /// Refuses devices of which it is not clear which workers have them.
    fn check_devices(&self) -> Result<(), QuestionError> {
        for (number, device) in self.devices.iter().enumerate() {
            let DeviceSpec { name, speed, .. } = device;
            if self.devices[..number].iter().any(|other| other.name == *name) {
                return wrong("device", format!("`{name}` is named twice"), "name each device once");
            }
            if self.devices.len() > 1 && device.count.is_none() {
                let what = format!("it is not said how many workers have `{name}`");
                let hint = format!("say how many there are of each, for example --device {name}={speed}:4");
                return wrong("device", what, &hint);
            }
            if device.count == Some(0) {
                return wrong("device", format!("0 workers have `{name}`"), "leave it out, or say how many");
            }
        }
        Ok(())
    }

    /// The numbers of workers to answer for: those of `asked` that the job can have, 1 to 64 if none are asked for.
    ///
    /// # Errors
    ///
    /// Returns an error if no number is left, if the devices name other numbers, or if there are too many.
    pub fn counts(&self, asked: Option<WorkerRange>) -> Result<Vec<u32>, QuestionError> {
        let mixed = self.mixed().then(|| self.devices.iter().filter_map(|device| device.count).sum::<u32>());
        let range = match (mixed, asked) {
            (Some(mixed), Some(range)) if (range.min, range.max) != (mixed, mixed) => {
                let what = format!("--device names exactly {mixed} workers");
                return wrong("workers", what, "leave it out, or leave the counts of --device out");
            }
            (Some(mixed), _) => WorkerRange { min: mixed, max: mixed },
            (None, range) => range.unwrap_or(WorkerRange { min: 1, max: 64 }),
        };
        let virtual_nodes = self.model.profile().virtual_nodes;
        let unit = self.nodes_per_update;
        let most = self.most_workers();
        if range.min > most {
            let option = if mixed.is_some() { "device" } else { "workers" };
            if most < virtual_nodes {
                let what = format!(
                    "a step has {most} units of {unit} virtual nodes, so at most {most} workers can share it"
                );
                return wrong(option, what, "ask for fewer workers, or for less --nodes-per-update");
            }
            let what =
                format!("the job has {most} virtual nodes, so at most {most} workers can share its batch");
            return wrong(option, what, "raise batch.virtual_nodes in the job file and profile it again");
        }
        let last = range.max.min(most);
        if last - range.min >= ANSWERS_MAX {
            let what = format!("{range} asks for more than {ANSWERS_MAX} predictions");
            return wrong("workers", what, "ask for fewer numbers of workers at once");
        }
        Ok((range.min..=last).collect())
    }

    /// The most workers that can share a step.
    fn most_workers(&self) -> u32 {
        let virtual_nodes = self.model.profile().virtual_nodes;
        match (self.synchronous(), self.model.shares_batch()) {
            (true, true) if self.through_servers() => virtual_nodes.div_ceil(self.nodes_per_update),
            (true, true) => virtual_nodes,
            _ => u32::MAX,
        }
    }

    /// Why the last of the `asked` numbers of workers are not among the [`counts`](Question::counts), if so.
    pub fn left_out(&self, asked: Option<WorkerRange>) -> Option<String> {
        let (most, range) = (self.most_workers(), asked?);
        let units =
            if most < self.model.profile().virtual_nodes { "units in a step" } else { "virtual nodes" };
        (range.max > most).then(|| {
            format!(
                "no answer for more than {most} workers: the job has {most} {units}, and a worker needs one"
            )
        })
    }

    /// Whether it is said which worker has which device.
    fn mixed(&self) -> bool {
        self.devices.iter().any(|device| device.count.is_some())
    }

    /// Whether all workers wait for all.
    pub fn synchronous(&self) -> bool {
        self.protocol.waits_for_all()
    }

    fn needs_servers(&self) -> bool {
        self.protocol.needs_servers()
    }

    fn through_servers(&self) -> bool {
        self.needs_servers() || self.servers.is_some_and(|servers| servers > 0)
    }

    /// Whether the fine model answers.
    fn is_fine(&self) -> Result<bool, QuestionError> {
        let through_servers = self.through_servers();
        let ordered = self.order != SendOrder::Fifo && through_servers;
        match self.fidelity {
            Fidelity::Coarse => Ok(false),
            Fidelity::Fine if !through_servers => wrong(
                "model",
                "the fine-grained model is of training through parameter servers",
                "add --servers 1, or leave --model out",
            ),
            Fidelity::Fine => Ok(true),
            Fidelity::Auto => Ok(ordered || matches!(self.protocol, Protocol::Ssp(_))),
        }
    }

    fn configuration(&self, workers: u32) -> Configuration {
        let mut configuration = self.model.configuration(workers, self.link);
        if self.mixed() {
            // Each worker on a host of its own or all on one, as without devices.
            let is_there = |device: &DeviceSpec| self.model.on(&device.name).are_together(&self.link);
            let together = self.devices.iter().all(is_there);
            let spread =
                self.devices.iter().flat_map(|device| (0..device.count.unwrap_or(0)).map(|_| &device.name));
            let group = |(node, device): (usize, &String)| DeviceGroup {
                node: if together { 0 } else { node as u32 },
                device: device.clone(),
                count: 1,
            };
            configuration.devices = spread.enumerate().map(group).collect();
        } else if let Some(device) = self.devices.last() {
            configuration.devices.iter_mut().for_each(|group| group.device.clone_from(&device.name));
        }
        configuration.protocol = self.protocol;
        configuration.servers = self.servers.unwrap_or(u32::from(self.needs_servers()));
        let profiled = self.model.profile().batch;
        let each = !self.synchronous() || !self.model.shares_batch();
        configuration.batch = match self.batch {
            Some(batch) if self.synchronous() => batch,
            Some(batch) => batch * u64::from(workers),
            None if each => profiled * u64::from(workers),
            None => profiled,
        };
        match self.batch {
            Some(_) => Configuration { accumulation: self.nodes_per_update, ..configuration },
            None => self.model.in_units(configuration, self.nodes_per_update),
        }
    }

    /// The answer for a number of workers.
    ///
    /// # Errors
    ///
    /// Returns an error for a fidelity that cannot answer, and that of the model.
    pub fn answer(&self, workers: u32) -> Result<Answer, QuestionError> {
        self.answer_for(workers, &self.configuration(workers))
    }

    fn answer_for(&self, workers: u32, configuration: &Configuration) -> Result<Answer, QuestionError> {
        let (model, (prediction, staleness)) = if self.is_fine()? {
            ("fine", self.model.predict_staleness(configuration, &self.send_order()?, self.seed)?)
        } else {
            let prediction = self.model.predict(&self.model.job(), configuration);
            let staleness = staleness::expected(self.protocol, workers).filter(|_| !self.synchronous());
            ("coarse", (prediction.map_err(|why| InputError::new("predict", why.to_string()))?, staleness))
        };
        let queues = matches!(self.protocol, Protocol::Asp | Protocol::Ssp(1..)) && model == "coarse";
        let stations = queues.then_some("exponential");
        let worker_bytes = self.model.memory(configuration).map(|need| need.bytes.round());
        Ok(Answer { stations, staleness, worker_bytes, ..Answer::of(workers, prediction, model) })
    }

    fn send_order(&self) -> Result<TransmissionOrder, InputError> {
        let profile = self.model.profile();
        Ok(match self.order {
            SendOrder::Fifo => TransmissionOrder::Fifo,
            SendOrder::RoundRobin(bytes) => TransmissionOrder::RoundRobin { window_bytes: bytes.0 },
            SendOrder::Tic => TransmissionOrder::Priority(priority::tic(profile)?),
            SendOrder::Tac => {
                TransmissionOrder::Priority(priority::tac(profile, self.link.bandwidth_bytes_per_s)?)
            }
        })
    }

    /// The execution that the fine model imagines for `workers`, in Chrome's trace format.
    ///
    /// # Errors
    ///
    /// Returns the model's error.
    pub fn trace(&self, workers: u32) -> Result<String, QuestionError> {
        Ok(self.model.trace(&self.configuration(workers), &self.send_order()?, self.seed, TRACE_ROWS)?)
    }

    /// Throughput of a lone worker; of mixed devices, the mean of one of each worker's.
    fn alone(&self) -> Result<f64, QuestionError> {
        if !self.mixed() {
            return Ok(self.answer(1)?.examples_per_s);
        }
        let (mut sum, mut workers) = (0.0, 0.0);
        for device in self.devices {
            let devices = vec![DeviceGroup { node: 0, device: device.name.clone(), count: 1 }];
            let lone = Configuration { devices, ..self.configuration(1) };
            let count = f64::from(device.count.unwrap_or(0));
            sum += count * self.answer_for(1, &lone)?.examples_per_s;
            workers += count;
        }
        Ok(sum / workers)
    }

    /// Sets the efficiency of answers for rising numbers of workers, and marks the knee: the last number that is worth
    /// its workers, whichever smaller one is compared. A number that adds nothing is passed over if a larger one makes
    /// up for it, as where virtual nodes come out even again. If the last answer is worth it, the knee lies beyond all,
    /// and none is marked.
    ///
    /// # Errors
    ///
    /// Those of [`answer`](Question::answer), for a lone worker.
    pub fn mark_knee(&self, answers: &mut [Answer]) -> Result<(), QuestionError> {
        let alone = match answers.first() {
            Some(first) if first.workers == 1 => first.examples_per_s,
            Some(_) => self.alone()?,
            None => return Ok(()),
        };
        mark(answers, alone);
        Ok(())
    }
}

/// Sets the efficiency of answers for rising numbers of workers, and marks the knee, where a lone worker does `alone`
/// samples per second: see [`Question::mark_knee`].
pub fn mark(answers: &mut [Answer], alone: f64) {
    for answer in answers.iter_mut() {
        answer.efficiency = answer.examples_per_s / (alone * f64::from(answer.workers));
    }
    // On the way there each worker adds enough in the mean, from wherever one looks, and beyond it from nowhere.
    let left = |answer: &Answer| answer.examples_per_s - KNEE_EFFICIENCY * alone * f64::from(answer.workers);
    let best = answers.iter().enumerate().max_by(|(_, one), (_, other)| left(one).total_cmp(&left(other)));
    let knee = best.map_or(0, |(place, _)| place);
    if knee + 1 < answers.len() {
        answers[knee].knee = true;
    }
}
