//! What may be rented: machines with their prices, how long they live and how fast they are; a TOML file.

use std::collections::BTreeMap;

use bellwether_core::machines::Obtain;
use bellwether_core::parse::document;
use bellwether_core::prediction::{Link, NetworkFile};
use bellwether_core::profile::Profile;
use bellwether_core::units::{Bytes, BytesPerSecond, DollarsPerHour, Seconds};
use bellwether_core::{InputError, ParseError};
use bellwether_model::predict::ProfileModel;
use bellwether_model::transient::{Law, LawSpec, lives, samples};
use schemars::JsonSchema;
use serde::Deserialize;

/// Most machines of a kind where the catalogue says nothing.
const LIMIT: u32 = u32::MAX;

/// Reads the text of a file that the catalogue names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, InputError>;

/// All that may be rented.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    /// Kinds of machines, in the order of the file.
    pub machines: Vec<Machine>,
    /// What runs beside the workers from the first request to the end, in dollars per hour.
    pub fixed_dollars_per_hour: f64,
    /// The link between machines, where the catalogue says one for all.
    pub link: Option<Link>,
    /// The link between devices of one machine.
    pub local_link: Option<Link>,
    /// Seconds to write a checkpoint to the catalogue's storage, if it says so.
    pub checkpoint_s: Option<f64>,
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name, which no other kind has.
    pub name: String,
    /// Type of its devices.
    pub device: String,
    /// Devices of one machine: each is a worker.
    pub devices: u32,
    /// Where it stands.
    pub region: Option<String>,
    /// Speed of a device relative to the profiled one, if the catalogue says so.
    pub speed: Option<f64>,
    /// The profile of the job on such a machine, if the catalogue names one.
    pub profile: Option<KindProfile>,
    /// Dollars per hour, on demand.
    pub on_demand: Option<f64>,
    /// What is known of it as a transient server.
    pub transient: Option<Transient>,
    /// Seconds from its request until it runs.
    pub provision_s: f64,
    /// Seconds from then until its workers are at work.
    pub join_s: f64,
    /// Bytes of memory of one machine, which its devices share; `None` where the catalogue does not say.
    pub memory_bytes: Option<u64>,
    /// How many may be had at once, on demand and transient together.
    pub limit: u32,
    /// Its link to others, where it is another than that of all.
    pub link: Option<Link>,
    /// How one is asked for.
    pub obtain: Obtain,
}

/// The profile of a job on a kind of machine.
#[derive(Debug, Clone, PartialEq)]
pub struct KindProfile {
    /// The file, in the words of the catalogue.
    pub file: String,
    /// What it holds.
    pub profile: Profile,
}

/// A machine that its provider may take away.
#[derive(Debug, Clone, PartialEq)]
pub struct Transient {
    /// Dollars per hour.
    pub dollars_per_hour: f64,
    /// How long one lives.
    pub law: Law,
    /// The same in words that name no file.
    pub words: String,
}

/// A price catalogue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// Kinds of machines.
    #[serde(default)]
    machine: Vec<MachineFile>,
    /// Price of what runs beside the workers all the time: a coordinator's machine, storage.
    fixed_price: Option<DollarsPerHour>,
    /// Links between machines, and between devices of one machine; as in the profile where nothing is said.
    network: Option<NetworkFile>,
    /// Time to write a checkpoint to storage that outlives the machines.
    checkpoint: Option<Seconds>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    /// Its name; the device and the region where nothing is said.
    name: Option<String>,
    /// Type of its devices.
    device: String,
    /// Devices of one machine: each is a worker.
    #[serde(default = "one")]
    devices: u32,
    /// Where it stands. Machines of different regions are never mixed.
    region: Option<String>,
    /// How fast a device computes relative to the profiled one: 2 is twice as fast.
    speed: Option<f64>,
    /// In place of a speed, the profile of the job on such a machine: a file beside the catalogue.
    profile: Option<String>,
    /// Price of a machine on demand; without it, it is not offered on demand.
    price: Option<DollarsPerHour>,
    /// Price of a machine that the provider may take away; without it, there are none.
    transient_price: Option<DollarsPerHour>,
    /// How long such a machine lives: k80:us-east1, exponential:15h, points:1h=0.1,24h=0.5, bathtub:…, samples:FILE,
    /// never.
    revocations: Option<String>,
    /// Time from the request of a machine until it runs, and is paid.
    #[serde(default)]
    provision: Seconds,
    /// Time from then until its workers are at work.
    #[serde(default)]
    join: Seconds,
    /// Memory of a machine, which the workers on its devices share: kinds that have too little for the job are left
    /// out.
    memory: Option<Bytes>,
    /// How many may be had at once, on demand and transient together.
    limit: Option<u32>,
    /// Bandwidth of its link to other machines, in each direction.
    bandwidth: Option<BytesPerSecond>,
    /// Time that a first byte takes to another machine.
    latency: Option<Seconds>,
    /// How a provider is asked for one, for `run --provision`.
    #[serde(default)]
    obtain: Obtain,
}

fn one() -> u32 {
    1
}

impl Catalogue {
    /// Reads a catalogue; `place` names it in errors, and `read_file` reads the lifetimes and profiles that it names.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed file: no machine, one without a price or without devices, a speed that is not
    /// positive, a transient one without a law, a law with invalid probabilities, two of one name, one device of two
    /// speeds, a speed beside a profile, a profile that cannot be used.
    ///
    /// ```
    /// use bellwether_sched::plan::Catalogue;
    /// let text = r#"
    ///     [[machine]]
    ///     device = "k80"
    ///     price = "$0.72/h"
    ///     transient_price = "$0.26/h"
    ///     revocations = "k80:us-west1"
    /// "#;
    /// let catalogue = Catalogue::read(text, "prices.toml", &|_| unreachable!("no file is named"))?;
    /// assert_eq!(catalogue.machines[0].on_demand, Some(0.72));
    /// let wrong = Catalogue::read(&text.replace("us-west1", "us-wst1"), "prices.toml", &|_| unreachable!());
    /// assert!(wrong.unwrap_err().to_string().contains("us-west1"));
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn read(text: &str, place: &str, read_file: ReadFile) -> Result<Catalogue, InputError> {
        let file: File = document(text, place)?;
        if file.machine.is_empty() {
            return Err(InputError::new(place, "the catalogue has no machines").hint(
                "write a table [[machine]] with device and price for each; examples/plan has a catalogue",
            ));
        }
        let mut machines: Vec<Machine> = Vec::with_capacity(file.machine.len());
        for (number, read) in (1..).zip(file.machine) {
            let place = format!("{place}: machine {number} ({})", read.device);
            let machine = machine(read, &place, read_file)?;
            check_against(&machines, &machine, &place)?;
            machines.push(machine);
        }
        let network = file.network.as_ref();
        Ok(Catalogue {
            machines,
            fixed_dollars_per_hour: file.fixed_price.map_or(0.0, DollarsPerHour::get),
            link: network.map(NetworkFile::link),
            local_link: network.and_then(NetworkFile::local_link),
            checkpoint_s: file.checkpoint.map(Seconds::get),
        })
    }

    /// The JSON schema of a catalogue.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(File).to_value()
    }

    /// Devices, and their speeds relative to the profiled one where the catalogue says so.
    pub fn devices(&self) -> BTreeMap<&str, Option<f64>> {
        let mut devices = BTreeMap::new();
        for machine in &self.machines {
            let known = devices.entry(machine.device.as_str()).or_insert(machine.speed);
            *known = known.or(machine.speed);
        }
        devices
    }

    /// The model with the speeds of the catalogue's devices, and what was measured on them.
    ///
    /// # Errors
    ///
    /// A device of which neither the catalogue nor the profile says how fast it is; a profile of another job.
    pub fn speeds_of(&self, mut model: ProfileModel) -> Result<ProfileModel, InputError> {
        let own = model.profile().device.clone();
        for (device, speed) in self.devices() {
            if let Some(KindProfile { file, profile }) = self.measured(device) {
                let place = |error: InputError| InputError { place: file.clone(), ..error };
                model = model.with_profile(device, profile.clone()).map_err(place)?;
                continue;
            }
            let speed = speed.or((device == own).then_some(1.0)).ok_or_else(|| {
                let what = format!("nothing says how fast the unknown device `{device}` is");
                InputError::new("catalogue", what).hint(format!(
                    "write its speed relative to the profiled `{own}`, for example speed = 2.5, or the file of its own \
                     profile: profile = \"{device}.json\""
                ))
            })?;
            model = model.with_device(device, speed)?;
        }
        Ok(model)
    }

    /// The profile of the job on a type of device, if the catalogue names one.
    pub fn measured(&self, device: &str) -> Option<&KindProfile> {
        let machines = self.machines.iter().filter(|machine| machine.device == device);
        machines.filter_map(|machine| machine.profile.as_ref()).next()
    }

    /// Regions, each once.
    pub fn regions(&self) -> Vec<&str> {
        let mut regions: Vec<&str> = self.machines.iter().filter_map(|m| m.region.as_deref()).collect();
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    /// Refuses a region that no machine stands in.
    ///
    /// # Errors
    ///
    /// Returns the first such region, and those that there are.
    pub fn check_regions(&self, regions: &[String]) -> Result<(), InputError> {
        let known = self.regions();
        for region in regions {
            if !known.contains(&region.as_str()) {
                if known.is_empty() {
                    let what = format!("no machine of the catalogue stands in `{region}`");
                    let hint = "its machines have no region; leave --region out";
                    return Err(InputError::new("--region", what).hint(hint));
                }
                return Err(ParseError::one_of("region", region, &known).at("--region"));
            }
        }
        Ok(())
    }
}

fn machine(read: MachineFile, place: &str, read_file: ReadFile) -> Result<Machine, InputError> {
    let wrong = |what: String, hint: &str| Err(InputError::new(place, what).hint(hint));
    if read.device.is_empty() {
        return wrong("a type of device has a name".into(), "write for example device = \"k80\"");
    }
    if read.devices == 0 || read.limit == Some(0) {
        return wrong(
            "it has no devices, or none of it may be had".into(),
            "devices and limit are at least 1",
        );
    }
    if read.memory == Some(Bytes(0)) {
        return wrong("it has no memory".into(), "write for example memory = \"16GiB\", or leave it out");
    }
    if let Some(speed) = read.speed.filter(|speed| !(speed.is_finite() && *speed > 0.0)) {
        return wrong(
            format!("a speed of {speed} computes nothing"),
            "1 is the profiled device, 2 is twice as fast",
        );
    }
    if read.price.is_none() && read.transient_price.is_none() {
        let hint = "write price = \"$0.72/h\" (on demand) or transient_price = \"$0.26/h\", or both";
        return wrong("it has no price".into(), hint);
    }
    let own_link = match (read.bandwidth, read.latency) {
        (Some(bandwidth), latency) => Some(Link::new(bandwidth, latency)),
        (None, None) => None,
        (None, Some(_)) => {
            return wrong("a latency without a bandwidth does not make a link".into(), "say bandwidth too");
        }
    };
    let transient = transient(&read, place, read_file)?;
    let profile = measured(&read, place, read_file)?;
    let name = read.name.unwrap_or_else(|| match &read.region {
        Some(region) => format!("{}:{region}", read.device),
        None => read.device.clone(),
    });
    Ok(Machine {
        name,
        device: read.device,
        devices: read.devices,
        region: read.region,
        speed: read.speed,
        profile,
        on_demand: read.price.map(DollarsPerHour::get),
        transient,
        provision_s: read.provision.get(),
        join_s: read.join.get(),
        memory_bytes: read.memory.map(|memory| memory.0),
        limit: read.limit.unwrap_or(LIMIT),
        link: own_link,
        obtain: read.obtain,
    })
}

/// The profile that a machine names.
fn measured(read: &MachineFile, place: &str, read_file: ReadFile) -> Result<Option<KindProfile>, InputError> {
    let Some(file) = &read.profile else { return Ok(None) };
    if let Some(speed) = read.speed {
        let what = format!("it has a speed, {speed}, and a profile, `{file}`, which says the speed too");
        return Err(
            InputError::new(place, what).hint("leave one of them out; what was measured is more exact")
        );
    }
    let name = |error: InputError| InputError { place: format!("{place}: {}", error.place), ..error };
    let profile = Profile::read(&read_file(file)?, file).map_err(name)?;
    Ok(Some(KindProfile { file: file.clone(), profile }))
}

/// What is known of a machine as a transient server: its price and its law belong together.
fn transient(read: &MachineFile, place: &str, read_file: ReadFile) -> Result<Option<Transient>, InputError> {
    let (price, words) = match (read.transient_price, &read.revocations) {
        (None, None) => return Ok(None),
        (Some(price), Some(words)) => (price, words),
        (Some(_), None) => {
            return Err(InputError::new(place, "nothing says how long a transient one lives")
                .hint("write revocations = \"exponential:15h\", a published law such as \"k80:us-east1\", or \"never\""));
        }
        (None, Some(_)) => {
            return Err(InputError::new(place, "it has a law of revocation, and no transient price")
                .hint("write transient_price = \"$0.26/h\", or leave revocations out"));
        }
    };
    let place = format!("{place}: revocations");
    let (law, own_words) = match words.parse::<LawSpec>().map_err(|error| error.at(&place))? {
        LawSpec::Law(law) => (law, words.clone()),
        LawSpec::Samples(file) => {
            let text = read_file(&file)?;
            (samples(&text, &file)?, lives(&text))
        }
    };
    Ok(Some(Transient { dollars_per_hour: price.get(), law, words: own_words }))
}

/// Refuses a machine that contradicts those before it.
fn check_against(before: &[Machine], machine: &Machine, place: &str) -> Result<(), InputError> {
    if before.iter().any(|other| other.name == machine.name) {
        return Err(InputError::new(place, format!("there are two machines called `{}`", machine.name))
            .hint("give each a name of its own: name = \"…\""));
    }
    let same = || before.iter().filter(|other| other.device == machine.device);
    let wrong = |what: String| {
        Err(InputError::new(place, what).hint("a device has one speed; call one of them another device"))
    };
    let device = &machine.device;
    let (speed, profile) =
        (same().find_map(|other| other.speed), same().find_map(|other| other.profile.as_ref()));
    match (speed, profile, machine.speed, &machine.profile) {
        (Some(other), _, Some(speed), _) if other != speed => {
            wrong(format!("`{device}` has two speeds, {other} and {speed}"))
        }
        (_, Some(other), _, Some(profile)) if other.profile != profile.profile => {
            wrong(format!("`{device}` has two profiles, `{}` and `{}`", other.file, profile.file))
        }
        (Some(speed), _, _, Some(KindProfile { file, .. }))
        | (_, Some(KindProfile { file, .. }), Some(speed), _) => {
            wrong(format!("`{device}` has a speed, {speed}, and a profile, `{file}`"))
        }
        _ => Ok(()),
    }
}
