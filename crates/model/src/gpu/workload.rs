//! What is to run on a GPU: kernels, the streams that launch them, and the processes that they belong to.

use bellwether_core::{InputError, ParseError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::discipline::{Discipline, Slice, TimeSlice};
use super::kernel::Kernel;
use super::occupancy::occupancy;

/// Most blocks of a grid, as on the devices themselves.
const BLOCKS_MAX: u32 = i32::MAX as u32;

/// What is to run, as a file says it.
///
/// ```
/// use bellwether_model::gpu::Workload;
/// let text = r#"
/// [[kernel]]
/// name = "step"
/// blocks = 160
/// threads_per_block = 256
/// time_us = 50.0
///
/// [[stream]]
/// name = "training"
/// repeat = 3
/// [[stream.launch]]
/// kernel = "step"
/// "#;
/// let workload: Workload = bellwether_core::parse::document(text, "workload.toml")?;
/// assert_eq!(workload.streams[0].repeat, 3);
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The kernels that streams may launch.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Kernel>,
    /// The streams. Without any, each kernel is launched once at time 0, in a stream of its own and in this order.
    #[serde(rename = "stream", default)]
    pub streams: Vec<Stream>,
    /// What is special about processes; those that are not named here are ordinary.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
    /// The slices of the device, for `mig`.
    #[serde(rename = "slice", default)]
    pub slices: Vec<Slice>,
    /// Which queue discipline holds unless the command line says otherwise.
    #[serde(default)]
    pub discipline: Discipline,
    /// Lengths of a turn and of a switch, for `time-slice`.
    #[serde(default)]
    pub time_slice: TimeSlice,
    /// Most launches of a stream that runs ahead that may be pending; about a thousand are reported.
    #[serde(default = "launch_queue")]
    pub launch_queue: u32,
    /// Chooses the random numbers of durations that vary and of requests that come at random.
    #[serde(default)]
    pub seed: u64,
}

/// Launches one after the other: each begins when all blocks of the one before have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// What it is called in reports.
    pub name: String,
    /// The process that it belongs to; streams that name none belong to the same one.
    #[serde(default = "ordinary_process")]
    pub process: String,
    /// Level under `priority`: the lower number goes first.
    #[serde(default)]
    pub priority: i32,
    /// When its first round begins, in microseconds.
    #[serde(default)]
    pub start_us: f64,
    /// How often its launches are gone through.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Mean time between the arrivals of rounds, in microseconds; 0: each follows the one before at once. A round that
    /// arrives earlier than the one before ends waits for it.
    #[serde(default)]
    pub every_us: f64,
    /// How arrivals are spread around that mean.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Whether the host launches all rounds without waiting for the device, until as many launches are pending as a
    /// process may have. From then on, each time that a launch of this stream ends, the other streams of its process
    /// get one launch through.
    #[serde(default)]
    pub run_ahead: bool,
    /// What a round launches.
    #[serde(rename = "launch")]
    pub launches: Vec<Launch>,
}

/// How the rounds of a stream arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Regular,
    /// Independently of each other: exponential distances.
    Poisson,
}

/// A launch of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Time from the end of the launch before (or from the arrival of the round) to this one reaching the device's
    /// queue, in microseconds.
    #[serde(default)]
    pub gap_us: f64,
    /// How often, each time after the same gap.
    #[serde(default = "one")]
    pub times: u32,
}

/// What is special about a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// As streams name it.
    pub name: String,
    /// Under `mps`: the share of multiprocessors, in percent, on which it may hold blocks at a time.
    #[serde(default = "hundred")]
    pub active_thread_percent: f64,
    /// Under `mig`: the slice in which it runs.
    #[serde(default)]
    pub slice: Option<String>,
}

impl Workload {
    /// The JSON schema of such a file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Workload).to_value()
    }
}

fn ordinary_process() -> String {
    "main".into()
}

fn one() -> u32 {
    1
}

fn launch_queue() -> u32 {
    1000
}

fn hundred() -> f64 {
    100.0
}

impl Kernel {
    fn check(&self, device: &Device) -> Result<(), InputError> {
        let place = format!("kernel `{}`", self.name);
        if !(1..=BLOCKS_MAX).contains(&self.blocks) {
            let what = format!("it has {} blocks", self.blocks);
            return Err(InputError::new(place, what).hint(format!("1 to {BLOCKS_MAX}")));
        }
        occupancy(device, self)?;
        let given = [self.time_us.is_some(), self.block_times_us.is_some(), self.cycles.is_some()];
        if given.into_iter().filter(|given| *given).count() != 1 {
            let what = "the time of its blocks is given not once but more or less often";
            return Err(
                InputError::new(place, what).hint("write one of `time_us`, `block_times_us` and `cycles`")
            );
        }
        let single = self.time_us.or(self.cycles);
        let times = self.block_times_us.as_deref().unwrap_or_default();
        if self.block_times_us.is_some() && times.len() != self.blocks as usize {
            let what = format!("`block_times_us` has {} times for {} blocks", times.len(), self.blocks);
            return Err(InputError::new(place, what).hint("give one for each block"));
        }
        for time in times.iter().copied().chain(single) {
            if !(TIME_LEAST..=TIME_MOST).contains(&time) {
                let what = format!("the time of a block is {time}");
                return Err(
                    InputError::new(place, what).hint(format!("it must be from {TIME_LEAST} to {TIME_MOST}"))
                );
            }
        }
        number(&place, "variation", self.variation, 10.0)?;
        let demand = self.demand;
        for (key, value) in
            [("issue", demand.issue), ("l1", demand.l1), ("dram", demand.dram), ("pcie", demand.pcie)]
        {
            number(&place, &format!("demand.{key}"), value, 1.0)?;
        }
        Ok(())
    }
}

/// Shortest and longest time of a block, in microseconds or cycles: sums of them stay exact enough to be ordered.
const TIME_LEAST: f64 = 1e-3;
const TIME_MOST: f64 = 1e12;

/// Refuses a value outside 0 to `most`.
fn number(place: &str, key: &str, value: f64, most: f64) -> Result<(), InputError> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(InputError::new(place, format!("`{key}` is {value}")).hint(format!("it must be from 0 to {most}")))
}

/// The position of a name among others.
fn position(place: String, what: &str, name: &str, known: &[&str]) -> Result<usize, InputError> {
    let found = known.iter().position(|other| *other == name);
    found.ok_or_else(|| ParseError::one_of(what, name, known).at(place))
}

impl Workload {
    /// One launch of each of these kernels at time 0, in order, each in a stream of its own.
    pub fn of(kernels: Vec<Kernel>) -> Workload {
        Workload {
            kernels,
            streams: Vec::new(),
            processes: Vec::new(),
            slices: Vec::new(),
            discipline: Discipline::default(),
            time_slice: TimeSlice::default(),
            launch_queue: launch_queue(),
            seed: 0,
        }
    }

    /// The streams that run: those that are given, or one for each kernel.
    pub(super) fn running_streams(&self) -> Vec<Stream> {
        if !self.streams.is_empty() {
            return self.streams.clone();
        }
        let stream = |kernel: &Kernel| Stream::once(&kernel.name, 0.0);
        self.kernels.iter().map(stream).collect()
    }

    /// Index of the kernel of this name.
    pub(super) fn kernel(&self, name: &str, place: String) -> Result<usize, InputError> {
        let known: Vec<&str> = self.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        position(place, "kernel", name, &known)
    }

    /// Refuses what cannot run on this device.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no kernel, a kernel that does not fit, a number out of range, an unknown or a
    /// duplicate name.
    pub fn check(&self, device: &Device) -> Result<(), InputError> {
        if self.kernels.is_empty() {
            return Err(InputError::new("the workload", "it has no kernel").hint("add [[kernel]]"));
        }
        unique("kernels", self.kernels.iter().map(|kernel| kernel.name.as_str()))?;
        unique("streams", self.streams.iter().map(|stream| stream.name.as_str()))?;
        unique("processes", self.processes.iter().map(|process| process.name.as_str()))?;
        unique("slices", self.slices.iter().map(|slice| slice.name.as_str()))?;
        for kernel in &self.kernels {
            kernel.check(device)?;
        }
        for stream in &self.streams {
            stream.check(self)?;
        }
        let streams = self.running_streams();
        let used: Vec<&str> = streams.iter().map(|stream| stream.process.as_str()).collect();
        for process in &self.processes {
            let place = format!("process `{}`", process.name);
            position("a [[process]]".into(), "process of any stream", &process.name, &used)?;
            if !(process.active_thread_percent > 0.0 && process.active_thread_percent <= 100.0) {
                let what = format!("`active_thread_percent` is {}", process.active_thread_percent);
                return Err(InputError::new(place, what).hint("it must be above 0 and at most 100"));
            }
        }
        self.time_slice.check()
    }
}

impl Stream {
    /// A stream that launches one kernel once, at a time in microseconds; it is called as the kernel.
    pub fn once(kernel: &str, start_us: f64) -> Stream {
        Stream {
            name: kernel.into(),
            process: ordinary_process(),
            priority: 0,
            start_us,
            repeat: 1,
            every_us: 0.0,
            arrivals: Arrivals::default(),
            run_ahead: false,
            launches: vec![Launch { kernel: kernel.into(), gap_us: 0.0, times: 1 }],
        }
    }

    fn check(&self, workload: &Workload) -> Result<(), InputError> {
        let place = format!("stream `{}`", self.name);
        number(&place, "start_us", self.start_us, TIME_MOST)?;
        number(&place, "every_us", self.every_us, TIME_MOST)?;
        if self.launches.is_empty()
            || self.repeat == 0
            || self.launches.iter().any(|launch| launch.times == 0)
        {
            return Err(InputError::new(place, "it launches nothing")
                .hint("it needs a [[stream.launch]], and `repeat` and `times` from 1 on"));
        }
        for launch in &self.launches {
            number(&place, "gap_us", launch.gap_us, TIME_MOST)?;
            workload.kernel(&launch.kernel, place.clone())?;
        }
        Ok(())
    }
}

/// Refuses a name that two have.
fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), InputError> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InputError::new("the workload", format!("two {what} are named `{}`", pair[0]))),
        None => Ok(()),
    }
}
