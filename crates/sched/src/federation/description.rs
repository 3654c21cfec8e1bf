//! The file that describes a federation: its members, what they have, what is asked of them, and what the public cloud costs.
//!
//! One file may describe queues (`[jobs]`, members with `servers` and `arrivals_per_hour`), resource affinity (`[[class]]`,
//! members with `devices` and `demand`), or both.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::parse::document;
use bellwether_core::units::{Dollars, DollarsPerHour, Seconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::affinity::{self, Affinity};

/// Seconds of an hour.
pub const HOUR_S: f64 = 3600.0;

/// What an own server costs where nothing is said: this part of what the public cloud takes for the work that it could do.
/// As the published evaluation assumes (IEEE CLOUD 2022).
pub const SERVER_PRICE_SHARE: f64 = 0.7;

/// Servers and devices that one member may have: more are a slip.
const MOST: f64 = 1e9;

/// Answers what a file names that the description names: examples per second of each class on one device of each type.
pub trait Speeds {
    /// Examples per second of the job that a throughput table at `path` calls `job`, on one device, by type.
    ///
    /// # Errors
    ///
    /// A table that cannot be read, or does not know the job.
    fn table(&self, path: &str, job: &str) -> Result<BTreeMap<String, f64>, InputError>;

    /// Examples per second of one worker, predicted from the profile at `path`.
    ///
    /// # Errors
    ///
    /// A profile that cannot be read.
    fn profile(&self, path: &str) -> Result<f64, InputError>;

    /// Pairs of arrival and work, both in seconds, from the trace at `path`.
    ///
    /// # Errors
    ///
    /// A trace that cannot be read.
    fn trace(&self, path: &str) -> Result<Vec<(f64, f64)>, InputError>;
}

/// A federation, as it was described.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The members, in the order of the file.
    pub members: Vec<Member>,
    /// Jobs that queue for servers; `None` where the file has no `[jobs]`.
    pub jobs: Option<Jobs>,
    /// Classes of jobs with speeds of their own; `None` where the file has no `[[class]]`.
    pub affinity: Option<Classes>,
    /// How lent servers are paid inside.
    pub prices: Prices,
}

/// A datacenter.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its name, which no other has.
    pub name: String,
    /// Servers, all alike, for the games of queues.
    pub servers: u32,
    /// How many of them are shared.
    pub shared: u32,
    /// How jobs arrive.
    pub arrivals: Arrivals,
    /// Longest mean wait that its jobs may have, in seconds.
    pub longest_wait_s: f64,
    /// Devices of each type, in the order of [`Classes::devices`].
    pub devices: Vec<f64>,
    /// Demand of each class, in examples per second.
    pub demand: Vec<f64>,
}

/// How jobs arrive at a member.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// At random, so many per second on average.
    Poisson(f64),
    /// At random, by turns at these rates.
    Modulated {
        /// Jobs per second of each state.
        per_s: Vec<f64>,
        /// Mean stay in each state, in seconds.
        stay_s: Vec<f64>,
    },
    /// As recorded: arrival and work of each job, in seconds.
    Trace(Vec<(f64, f64)>),
}

impl Arrivals {
    /// Jobs per second, on average.
    pub fn mean_per_s(&self) -> f64 {
        match self {
            Arrivals::Poisson(per_s) => *per_s,
            Arrivals::Modulated { per_s, stay_s } => {
                let jobs: f64 = per_s.iter().zip(stay_s).map(|(rate, stay)| rate * stay).sum();
                jobs / stay_s.iter().sum::<f64>()
            }
            Arrivals::Trace(jobs) => match (jobs.first(), jobs.last()) {
                (Some(first), Some(last)) if last.0 > first.0 => (jobs.len() - 1) as f64 / (last.0 - first.0),
                _ => 0.0,
            },
        }
    }
}

/// Jobs that queue for servers that are all alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// Mean time of a job on a server, in seconds.
    pub mean_time_s: f64,
    /// Law of that time.
    pub law: Law,
    /// What the public cloud takes for one job, in dollars.
    pub public_dollars: f64,
    /// What a busy server costs more than an idle one for the mean time of a job, in dollars.
    pub busy_dollars: f64,
    /// What a member's own server costs, in dollars per hour.
    pub server_dollars_per_hour: f64,
    /// Seconds by which a job takes longer away from home.
    pub transfer_s: f64,
}

impl Jobs {
    /// What is saved by one job that the public cloud need not do, in dollars.
    pub fn saved_dollars(&self) -> f64 {
        self.public_dollars - self.busy_dollars
    }

    /// Jobs that a server does per second.
    pub fn service_per_s(&self) -> f64 {
        1.0 / self.mean_time_s
    }
}

/// Law of the time that a job takes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// Without memory.
    #[default]
    Exponential,
    /// Always the mean.
    Deterministic,
    /// With this coefficient of variation.
    Lognormal(f64),
    /// Of two exponential phases, with this squared coefficient of variation, above 1.
    Hyperexponential(f64),
    /// With this exponent of the tail, above 1.
    Pareto(f64),
}

/// Classes of jobs, and their speeds by type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes {
    /// Types of device, in the order of their names.
    pub devices: Vec<String>,
    /// What a member's own device of each type costs, in dollars per hour; 0 where it is not known.
    pub own_dollars_per_hour: Vec<f64>,
    /// The classes, in the order of the file.
    pub classes: Vec<Class>,
}

/// A class of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name, which no other has.
    pub name: String,
    /// Examples per second on one device of each type; 0 where it cannot run.
    pub examples_per_s: Vec<f64>,
    /// What the public cloud takes, in dollars per hour, for one example per second.
    pub public_dollars_per_hour: f64,
    /// Examples of one job on average, where jobs are told apart.
    pub job_examples: Option<f64>,
    /// Devices of one job.
    pub job_devices: u32,
    /// The share of capacity more that its work takes on another member's devices.
    pub transfer: f64,
}

/// How lent servers are paid inside, and how much their owners mind.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// Prices of a lent server, each relative to what the public cloud takes for its time.
    pub internal: Vec<f64>,
    /// How much a member minds that its servers are busier, 0 (not) to 1.
    pub gamma: f64,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The datacenters.
    #[serde(default)]
    member: Vec<MemberFile>,
    /// Jobs that queue for servers that are all alike.
    jobs: Option<JobsFile>,
    /// Classes of jobs that run faster on some devices than on others.
    #[serde(default)]
    class: Vec<ClassFile>,
    /// The public cloud, for classes of jobs.
    #[serde(default)]
    public: DevicesFile,
    /// What members' own devices cost; 0.7 of what the public cloud takes where nothing is said.
    #[serde(default)]
    own: DevicesFile,
    /// How lent servers are paid inside.
    #[serde(default)]
    prices: PricesFile,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MemberFile {
    /// Its name.
    name: String,
    /// Servers, all alike.
    #[serde(default)]
    servers: u32,
    /// How many of them are shared; all where nothing is said.
    shared: Option<u32>,
    /// Jobs that arrive per hour, at random; two or more numbers for states that come by turns.
    #[serde(default)]
    arrivals_per_hour: RateFile,
    /// Mean stay in each of these states.
    #[serde(default)]
    stay: Vec<Seconds>,
    /// Arrivals as recorded instead: a CSV file with the columns arrival_s and work_s.
    trace: Option<String>,
    /// Longest mean wait that its jobs may have; none may wait where nothing is said.
    #[serde(default)]
    longest_wait: Seconds,
    /// Devices by type.
    #[serde(default)]
    devices: BTreeMap<String, f64>,
    /// Demand by class, in examples (or steps) per second, in the unit of the class's speeds.
    #[serde(default)]
    demand: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum RateFile {
    One(f64),
    ByTurns(Vec<f64>),
}

impl Default for RateFile {
    fn default() -> Self {
        RateFile::One(0.0)
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JobsFile {
    /// Mean time of a job on a server.
    mean_time: Seconds,
    /// Law of that time: "exponential", "deterministic", { lognormal = 1.5 }, { hyperexponential = 4.0 }, { pareto = 2.5 }.
    #[serde(default)]
    law: Law,
    /// What the public cloud takes for one job.
    public_price: Dollars,
    /// What a member's own server costs; 0.7 of what the public cloud takes for its work where nothing is said.
    server_price: Option<DollarsPerHour>,
    /// What a busy server costs more than an idle one.
    #[serde(default)]
    busy_price: DollarsPerHour,
    /// By how much a job takes longer away from home.
    #[serde(default)]
    transfer: Seconds,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClassFile {
    /// Its name.
    name: String,
    /// Examples per second on one device, by type; types that are not named cannot run it.
    #[serde(default)]
    speeds: BTreeMap<String, f64>,
    /// Profiles by type of device, each made there by `bellwether profile`: the speeds are predicted from them.
    #[serde(default)]
    profiles: BTreeMap<String, String>,
    /// A table of throughputs that has the speeds (Gavel's format): steps per second.
    table: Option<String>,
    /// What the table calls this class; its name where nothing is said.
    table_job: Option<String>,
    /// What the public cloud takes for one example per second; the cheapest of its devices where nothing is said.
    public_price: Option<DollarsPerHour>,
    /// Examples of one job on average: needed to simulate jobs that queue.
    job_examples: Option<f64>,
    /// Devices of one job.
    #[serde(default = "one")]
    job_devices: u32,
    /// The share of capacity more that its work takes on another member's devices.
    #[serde(default)]
    transfer: f64,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DevicesFile {
    /// What a device costs, by type.
    #[serde(default)]
    devices: BTreeMap<String, DollarsPerHour>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct PricesFile {
    /// Prices of a lent server, each relative to what the public cloud takes for its time.
    internal: Vec<f64>,
    /// How much a member minds that its servers are busier, 0 (not) to 1.
    gamma: f64,
}

impl Default for PricesFile {
    fn default() -> Self {
        PricesFile { internal: vec![0.1, 0.3, 0.5, 0.7, 0.9], gamma: 0.0 }
    }
}

impl Description {
    /// Reads a description; `place` names it in errors, `speeds` reads the files that it names.
    ///
    /// # Errors
    ///
    /// No member, two of one name, neither jobs nor classes, a time of no length, more shared than owned, a demand or a
    /// number of devices that is negative, a class that no device runs, a class that has no public price.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use bellwether_core::InputError;
    /// use bellwether_sched::federation::description::{Description, Speeds};
    /// # struct None;
    /// # impl Speeds for None {
    /// #     fn table(&self, _: &str, _: &str) -> Result<BTreeMap<String, f64>, InputError> { unreachable!() }
    /// #     fn profile(&self, _: &str) -> Result<f64, InputError> { unreachable!() }
    /// #     fn trace(&self, _: &str) -> Result<Vec<(f64, f64)>, InputError> { unreachable!() }
    /// # }
    /// let text = r#"
    ///     [jobs]
    ///     mean_time = "1h"
    ///     public_price = "$1"
    ///     [[member]]
    ///     name = "north"
    ///     servers = 50
    ///     arrivals_per_hour = 30
    /// "#;
    /// let federation = Description::read(text, "two.toml", &None)?;
    /// assert_eq!(federation.members[0].shared, 50);
    /// let wrong = text.replace("servers = 50", "servers = 50\nshared = 51");
    /// let error = Description::read(&wrong, "two.toml", &None).unwrap_err();
    /// assert!(error.to_string().contains("shares 51 of 50"), "{error}");
    /// # Ok::<(), InputError>(())
    /// ```
    pub fn read(text: &str, place: &str, speeds: &dyn Speeds) -> Result<Description, InputError> {
        let file: File = document(text, place)?;
        if file.member.is_empty() {
            return Err(InputError::new(place, "the federation has no members")
                .hint("write a table [[member]] with name and servers (or devices) for each"));
        }
        if file.jobs.is_none() && file.class.is_empty() {
            return Err(InputError::new(place, "nothing says which jobs there are").hint(
                "write [jobs] for jobs that queue for servers, or [[class]] for jobs that suit some devices",
            ));
        }
        let prices = prices(file.prices, place)?;
        let jobs = file.jobs.map(|jobs| self::jobs(jobs, place)).transpose()?;
        let affinity = classes(file.class, [&file.public, &file.own], &file.member, place, speeds)?;
        let mut members: Vec<Member> = Vec::with_capacity(file.member.len());
        for (number, read) in (1..).zip(file.member) {
            let place = format!("{place}: member {number} ({})", read.name);
            if members.iter().any(|member| member.name == read.name) {
                return Err(InputError::new(place, "another member has this name").hint("rename one of them"));
            }
            members.push(member(read, &place, jobs.as_ref(), affinity.as_ref(), speeds)?);
        }
        Ok(Description { members, jobs, affinity, prices })
    }

    /// The linear production game of its classes and devices; `None` where it has no classes.
    ///
    /// # Errors
    ///
    /// See [`Affinity::new`].
    pub fn affinity_game(&self) -> Result<Option<Affinity>, InputError> {
        let Some(classes) = &self.affinity else { return Ok(None) };
        let class = |class: &Class| affinity::Class {
            name: class.name.clone(),
            speeds: class.examples_per_s.clone(),
            public_price: class.public_dollars_per_hour,
            transfer: class.transfer,
        };
        let member = |member: &Member| affinity::Member {
            name: member.name.clone(),
            owned: member.devices.clone(),
            demand: member.demand.clone(),
        };
        let (classes, devices) = (classes.classes.iter().map(class), classes.devices.clone());
        Affinity::new(devices, classes.collect(), self.members.iter().map(member).collect()).map(Some)
    }

    /// The JSON schema of such a file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(File).to_value()
    }
}

fn amount(place: &str, what: &str, value: f64) -> Result<f64, InputError> {
    if value >= 0.0 && value <= MOST {
        return Ok(value);
    }
    let why = if value < 0.0 { "is negative" } else { "is no number that can be" };
    Err(InputError::new(place, format!("{what} {value} {why}")).hint("give a number from 0 on"))
}

fn prices(file: PricesFile, place: &str) -> Result<Prices, InputError> {
    let place = format!("{place}: [prices]");
    for price in &file.internal {
        amount(&place, "the internal price", *price)?;
    }
    if file.internal.is_empty() {
        return Err(InputError::new(place, "there is no internal price").hint("write internal = [0.5]"));
    }
    if !(0.0..=1.0).contains(&file.gamma) {
        return Err(InputError::new(place, format!("gamma {} is not between 0 and 1", file.gamma)));
    }
    Ok(Prices { internal: file.internal, gamma: file.gamma })
}

fn jobs(file: JobsFile, place: &str) -> Result<Jobs, InputError> {
    let place = format!("{place}: [jobs]");
    let mean_time_s = file.mean_time.get();
    if mean_time_s <= 0.0 {
        return Err(InputError::new(place, "jobs of no length are no work: mean_time is 0")
            .hint("give the mean time of a job on one server, for example \"2h\""));
    }
    let (value, least, name) = match file.law {
        Law::Exponential | Law::Deterministic => (1.0, 0.0, ""),
        Law::Lognormal(variation) => (variation, 0.0, "lognormal"),
        Law::Hyperexponential(variation) => (variation, 1.0, "hyperexponential"),
        Law::Pareto(tail) => (tail, 1.0, "pareto"),
    };
    if !(value > least && value.is_finite()) {
        return Err(InputError::new(place, format!("{name} = {value} must be above {least}")));
    }
    let public_dollars = file.public_price.get();
    let work_dollars_per_hour = public_dollars * HOUR_S / mean_time_s;
    let busy_dollars = file.busy_price.get() * mean_time_s / HOUR_S;
    if busy_dollars >= public_dollars {
        let what = format!(
            "a job costs ${busy_dollars:.2} on a busy server and ${public_dollars:.2} in the public cloud: nothing can be saved"
        );
        return Err(InputError::new(place, what).hint("look at busy_price and public_price"));
    }
    let own = file.server_price.map(DollarsPerHour::get);
    Ok(Jobs {
        mean_time_s,
        law: file.law,
        public_dollars,
        busy_dollars,
        server_dollars_per_hour: own.unwrap_or(SERVER_PRICE_SHARE * work_dollars_per_hour),
        transfer_s: file.transfer.get(),
    })
}

fn classes(
    files: Vec<ClassFile>,
    [public, own]: [&DevicesFile; 2],
    members: &[MemberFile],
    place: &str,
    speeds: &dyn Speeds,
) -> Result<Option<Classes>, InputError> {
    if files.is_empty() {
        return Ok(None);
    }
    let owned = || members.iter().flat_map(|member| member.devices.iter());
    let mut named: Vec<(ClassFile, BTreeMap<String, f64>)> = Vec::with_capacity(files.len());
    for (number, file) in (1..).zip(files) {
        let place = format!("{place}: class {number} ({})", file.name);
        if named.iter().any(|(other, _)| other.name == file.name) {
            return Err(InputError::new(place, "another class has this name").hint("rename one of them"));
        }
        let by_type = speeds_of(&file, &place, speeds)?;
        let somebody = |(device, count): (&String, &f64)| *count > 0.0 && by_type.contains_key(device);
        let asked = members.iter().any(|member| member.demand.get(&file.name).is_some_and(|d| *d > 0.0));
        if asked && !owned().any(somebody) {
            let runs: Vec<&str> = by_type.keys().map(String::as_str).collect();
            let what = format!("no member has a device that runs it: it runs on {}", listed(&runs));
            return Err(
                InputError::new(place, what).hint("add such devices to a member, or leave the class out")
            );
        }
        named.push((file, by_type));
    }
    let known = named.iter().flat_map(|(_, by_type)| by_type.keys());
    let mut devices: Vec<String> = known.chain(owned().map(|(device, _)| device)).cloned().collect();
    devices.sort_unstable();
    devices.dedup();
    let classes = named.into_iter().map(|(file, by_type)| {
        let examples_per_s: Vec<f64> =
            devices.iter().map(|device| by_type.get(device).copied().unwrap_or(0.0)).collect();
        let place = format!("{place}: class {}", file.name);
        let cheapest =
            public.devices.iter().filter_map(|(device, price)| Some(price.get() / by_type.get(device)?));
        let price = file.public_price.map(DollarsPerHour::get).or_else(|| cheapest.min_by(f64::total_cmp));
        let public_dollars_per_hour = price.ok_or_else(|| {
            InputError::new(&place, "nothing says what the public cloud takes for it").hint(
                "give the class a public_price, or [public] devices = { v100 = \"$2.48/h\" } that run it",
            )
        })?;
        if let Some(examples) =
            file.job_examples.filter(|examples| !(*examples > 0.0 && examples.is_finite()))
        {
            return Err(InputError::new(place, format!("a job of {examples} examples is none")));
        }
        if file.job_devices == 0 {
            return Err(InputError::new(place, "a job without devices does not run").hint("give 1 or more"));
        }
        let transfer = amount(&place, "transfer", file.transfer)?;
        let ClassFile { name, job_examples, job_devices, .. } = file;
        Ok(Class { name, examples_per_s, public_dollars_per_hour, job_examples, job_devices, transfer })
    });
    let classes = classes.collect::<Result<_, _>>()?;
    let price = |device: &String| {
        let bought = || Some(SERVER_PRICE_SHARE * public.devices.get(device)?.get());
        own.devices.get(device).map(|price| price.get()).or_else(bought).unwrap_or(0.0)
    };
    let own_dollars_per_hour = devices.iter().map(price).collect();
    Ok(Some(Classes { devices, own_dollars_per_hour, classes }))
}

/// Examples per second by type of device; types that do not run it are left out.
fn speeds_of(
    file: &ClassFile,
    place: &str,
    speeds: &dyn Speeds,
) -> Result<BTreeMap<String, f64>, InputError> {
    let within = |error: InputError| InputError { place: format!("{place}: {}", error.place), ..error };
    let mut by_type = match &file.table {
        Some(path) => speeds.table(path, file.table_job.as_ref().unwrap_or(&file.name)).map_err(within)?,
        None => BTreeMap::new(),
    };
    for (device, path) in &file.profiles {
        by_type.insert(device.clone(), speeds.profile(path).map_err(within)?);
    }
    for (device, speed) in &file.speeds {
        by_type.insert(device.clone(), amount(place, &format!("the speed on {device}"), *speed)?);
    }
    by_type.retain(|_, speed| *speed > 0.0);
    if by_type.is_empty() {
        return Err(InputError::new(place, "nothing says how fast it runs anywhere")
            .hint("give speeds = { v100 = 300.0 }, or profiles, or a table"));
    }
    Ok(by_type)
}

fn member(
    file: MemberFile,
    place: &str,
    jobs: Option<&Jobs>,
    affinity: Option<&Classes>,
    speeds: &dyn Speeds,
) -> Result<Member, InputError> {
    let shared = file.shared.unwrap_or(file.servers);
    if shared > file.servers {
        return Err(InputError::new(place, format!("it shares {shared} of {} servers", file.servers))
            .hint("share at most what is owned"));
    }
    if jobs.is_some() && affinity.is_none() && file.servers == 0 && !file.devices.is_empty() {
        return Err(InputError::new(
            place,
            "it has devices, but the file has no [[class]] that could use them",
        )
        .hint("give it servers, or add classes"));
    }
    let arrivals = arrivals(&file, place, speeds)?;
    let mut devices = Vec::new();
    let mut demand = Vec::new();
    if let Some(classes) = affinity {
        for (device, count) in &file.devices {
            amount(place, &format!("the number of {device}"), *count)?;
        }
        let names: Vec<&str> = classes.classes.iter().map(|class| class.name.as_str()).collect();
        for (class, asked) in &file.demand {
            amount(place, &format!("the demand of {class}"), *asked)?;
            if !names.contains(&class.as_str()) {
                return Err(InputError::new(place, format!("there is no class `{class}`"))
                    .hint(format!("the classes are {}", listed(&names))));
            }
        }
        let of = |table: &BTreeMap<String, f64>, name: &str| table.get(name).copied().unwrap_or(0.0);
        devices = classes.devices.iter().map(|device| of(&file.devices, device)).collect();
        demand = names.iter().map(|class| of(&file.demand, class)).collect();
    }
    let longest_wait_s = file.longest_wait.get();
    Ok(Member { name: file.name, servers: file.servers, shared, arrivals, longest_wait_s, devices, demand })
}

fn arrivals(file: &MemberFile, place: &str, speeds: &dyn Speeds) -> Result<Arrivals, InputError> {
    if let Some(path) = &file.trace {
        if !matches!(file.arrivals_per_hour, RateFile::One(rate) if rate == 0.0) {
            return Err(
                InputError::new(place, "it has arrivals_per_hour and a trace").hint("leave one of them out")
            );
        }
        let jobs = speeds.trace(path)?;
        return Ok(Arrivals::Trace(jobs));
    }
    let rate = |per_hour: &f64| Ok(amount(place, "arrivals_per_hour", *per_hour)? / HOUR_S);
    match &file.arrivals_per_hour {
        RateFile::One(per_hour) if file.stay.is_empty() => Ok(Arrivals::Poisson(rate(per_hour)?)),
        RateFile::ByTurns(rates) if rates.len() == file.stay.len() && rates.len() > 1 => {
            let stay_s: Vec<f64> = file.stay.iter().map(|stay| stay.get()).collect();
            if stay_s.iter().any(|stay| *stay <= 0.0) {
                return Err(InputError::new(place, "a stay of no length is no state"));
            }
            Ok(Arrivals::Modulated { per_s: rates.iter().map(rate).collect::<Result<_, _>>()?, stay_s })
        }
        _ => Err(InputError::new(place, "rates that come by turns need a mean stay each, two or more")
            .hint("write arrivals_per_hour = [10, 60] and stay = [\"12h\", \"12h\"]")),
    }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
