//! The form of a federation's file, and how its parts become a description.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::units::{Dollars, DollarsPerHour, Seconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Class, Classes, HOUR_S, Jobs, Member, Prices, SERVER_PRICE_SHARE, Speeds};
use crate::queue::simulation::{Arrivals, Law, State};

/// Servers and devices that one member may have: more are a slip.
const MOST: f64 = 1e9;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The datacenters.
    #[serde(default)]
    pub(super) member: Vec<MemberFile>,
    /// Jobs that queue for servers that are all alike.
    pub(super) jobs: Option<JobsFile>,
    /// Classes of jobs that run faster on some devices than on others.
    #[serde(default)]
    pub(super) class: Vec<ClassFile>,
    /// The public cloud, for classes of jobs.
    #[serde(default)]
    pub(super) public: DevicesFile,
    /// What members' own devices cost; 0.7 of what the public cloud takes where nothing is said.
    #[serde(default)]
    pub(super) own: DevicesFile,
    /// How lent servers are paid inside.
    #[serde(default)]
    pub(super) prices: PricesFile,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberFile {
    /// Its name.
    pub(super) name: String,
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

/// Law of the time that a job takes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LawFile {
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

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsFile {
    /// Mean time of a job on a server.
    mean_time: Seconds,
    /// Law of that time: "exponential", "deterministic", { lognormal = 1.5 }, { hyperexponential = 4.0 },
    /// { pareto = 2.5 }.
    #[serde(default)]
    law: LawFile,
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
pub(super) struct ClassFile {
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
pub(super) struct DevicesFile {
    /// What a device costs, by type.
    #[serde(default)]
    devices: BTreeMap<String, DollarsPerHour>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PricesFile {
    /// Prices of a lent server, each relative to what the public cloud takes for its time; of lent devices (where there
    /// is no [jobs]), relative to the market's rents.
    internal: Vec<f64>,
    /// How much a member minds that its servers are busier, 0 (not) to 1.
    gamma: f64,
}

impl Default for PricesFile {
    fn default() -> Self {
        PricesFile { internal: vec![0.1, 0.3, 0.5, 0.7, 0.9], gamma: 0.0 }
    }
}

fn amount(place: &str, what: &str, value: f64) -> Result<f64, InputError> {
    if (0.0..=MOST).contains(&value) {
        return Ok(value);
    }
    let why = if value < 0.0 { "is negative" } else { "is not a finite number" };
    Err(InputError::new(place, format!("{what} {value} {why}")).hint("give a number from 0 on"))
}

pub(super) fn prices(file: PricesFile, place: &str) -> Result<Prices, InputError> {
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

pub(super) fn jobs(file: JobsFile, place: &str) -> Result<Jobs, InputError> {
    let place = format!("{place}: [jobs]");
    let mean_time_s = file.mean_time.get();
    if mean_time_s <= 0.0 {
        return Err(InputError::new(place, "jobs of no length cause no work: mean_time is 0")
            .hint("give the mean time of a job on one server, for example \"2h\""));
    }
    let (value, least, name, law) = match file.law {
        LawFile::Exponential => (1.0, 0.0, "", Law::Exponential),
        LawFile::Deterministic => (1.0, 0.0, "", Law::Deterministic),
        LawFile::Lognormal(variation) => (variation, 0.0, "lognormal", Law::Lognormal { variation }),
        LawFile::Hyperexponential(squared_variation) => {
            (squared_variation, 1.0, "hyperexponential", Law::Hyperexponential { squared_variation })
        }
        LawFile::Pareto(shape) => (shape, 1.0, "pareto", Law::Pareto { shape }),
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
        law,
        public_dollars,
        busy_dollars,
        server_dollars_per_hour: own.unwrap_or(SERVER_PRICE_SHARE * work_dollars_per_hour),
        transfer_s: file.transfer.get(),
    })
}

pub(super) fn classes(
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
            return Err(InputError::new(
                place,
                format!("invalid job_examples {examples}: expected a number above 0"),
            ));
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

pub(super) fn member(
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
        // One gap after the last job, the trace repeats.
        let last_s = jobs.last().map_or(0.0, |job| job.0);
        let gap_s = last_s / (jobs.len().max(2) - 1) as f64;
        return Ok(Arrivals::Trace { jobs, period_s: Some(last_s + gap_s) });
    }
    let rate = |per_hour: &f64| Ok(amount(place, "arrivals_per_hour", *per_hour)? / HOUR_S);
    match &file.arrivals_per_hour {
        RateFile::One(per_hour) if file.stay.is_empty() => {
            Ok(Arrivals::Poisson { rate_per_s: rate(per_hour)? })
        }
        RateFile::ByTurns(rates) if rates.len() == file.stay.len() && rates.len() > 1 => {
            if file.stay.iter().any(|stay| stay.get() <= 0.0) {
                return Err(InputError::new(place, "a state needs a stay longer than 0"));
            }
            let state = |(per_hour, stay): (&f64, &Seconds)| {
                Ok(State { rate_per_s: rate(per_hour)?, mean_stay_s: stay.get() })
            };
            let states = rates.iter().zip(&file.stay).map(state).collect::<Result<_, InputError>>()?;
            Ok(Arrivals::Modulated { states })
        }
        _ => Err(InputError::new(place, "rates that come by turns need a mean stay each, two or more")
            .hint("write arrivals_per_hour = [10, 60] and stay = [\"12h\", \"12h\"]")),
    }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
