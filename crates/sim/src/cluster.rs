//! The machines of a simulation: a TOML file, or a few words such as `16x4` or `3x4:v100,3x4:p100`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{ClusterView, Node};
use bellwether_core::prediction::NetworkFile;
use bellwether_core::units::{Bytes, Seconds};
use bellwether_core::{InputError, ParseError, parse};
use bellwether_model::transient::{LawSpec, samples};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::world::{Failures, Outage, Revocations};

/// More nodes or devices than this are a mistyped number.
const DEVICES_MAX: u64 = 10_000_000;

/// No time of a cluster is longer, in seconds: thirty thousand years.
const LONGEST_S: f64 = 1e12;

/// Reads the text of a file that a cluster file names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, InputError>;

/// A cluster and what happens to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// The cluster when it is empty.
    pub view: ClusterView,
    /// Outages of each node.
    pub outages: Vec<Option<Outage>>,
    /// How fast a device of each type is, relative to the others; 1 where nothing is said.
    pub device_speeds: BTreeMap<String, f64>,
    /// Bytes of memory that a device of each type has for its worker; of a type that is not there nothing is said.
    pub device_memory: BTreeMap<String, u64>,
    /// Work since the last multiple of this many seconds of progress is lost with a node.
    pub checkpoint_s: Option<f64>,
    /// Whether jobs that span several nodes share the nodes' links, and slow each other down there.
    pub shared_links: bool,
}

/// A cluster file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// Groups of equal nodes.
    nodes: Vec<Group>,
    /// The links.
    network: Option<NetworkFile>,
    /// What a job pays when it goes on after a stop or a change of its devices.
    restart: Option<Seconds>,
    /// How often a job saves its state: work since then is lost with a node. Nothing is lost where this is not said.
    checkpoint: Option<Seconds>,
    /// Whether two jobs may use the same devices, under policies that pack and with models that know what both lose.
    #[serde(default)]
    packing: bool,
    /// Whether jobs that span several nodes slow each other down where they have a node in common, with models that
    /// know what part of a step is exchange. Otherwise each is as fast as with the nodes' links for itself.
    #[serde(default)]
    shared_links: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Group {
    /// How many such nodes.
    count: u32,
    /// Devices of each.
    devices: u32,
    /// Type of the devices.
    #[serde(default = "device")]
    device: String,
    /// How fast a device is, relative to those of other types; 1 where nothing is said.
    speed: Option<f64>,
    /// Memory of a node, which its devices share in equal parts: a job whose profile says that a worker needs more does
    /// not run there.
    memory: Option<Bytes>,
    /// Mean of the exponential time for which a node works.
    mean_time_to_failure: Option<Seconds>,
    /// Mean of the exponential time for which it is away then.
    mean_time_to_repair: Option<Seconds>,
    /// A node is taken away no later than this after it came: a transient server.
    longest_life: Option<Seconds>,
    /// How long a transient node lives, in place of the times above: k80:us-east1, exponential:15h,
    /// points:1h=0.1,24h=0.5, bathtub:…, samples:FILE, never.
    lifetimes: Option<String>,
    /// Time from the end of such a node until another one works in its place.
    replacement: Option<Seconds>,
    /// Transient nodes of this name meet the same lifetimes in every cluster; the type of device where nothing is said.
    name: Option<String>,
}

fn device() -> String {
    "gpu".to_owned()
}

impl Cluster {
    /// A cluster in a few words: groups `NODESxDEVICES` or `NODESxDEVICES:TYPE`, with commas between them.
    ///
    /// # Errors
    ///
    /// Returns the words that do not describe a group of nodes, with an example of some that do.
    ///
    /// ```
    /// use bellwether_sim::cluster::Cluster;
    /// let cluster = Cluster::from_words("3x4:v100,2x8:p100")?;
    /// assert_eq!(cluster.view.device_types, ["v100", "p100"]);
    /// assert_eq!(cluster.view.devices(Some(1)), 16);
    /// assert!(Cluster::from_words("16*4").is_err());
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn from_words(text: &str) -> Result<Cluster, InputError> {
        let expected = "nodes x devices, for example 16x4 or 3x4:v100,3x4:p100, or the name of a TOML file";
        let group = |words: &str| {
            let (size, device) = words.split_once(':').unwrap_or((words, "gpu"));
            let (count, devices) = size.split_once('x')?;
            Some(Group {
                count: count.trim().parse().ok()?,
                devices: devices.trim().parse().ok()?,
                device: device.trim().to_owned(),
                speed: None,
                memory: None,
                mean_time_to_failure: None,
                mean_time_to_repair: None,
                longest_life: None,
                lifetimes: None,
                replacement: None,
                name: None,
            })
        };
        let mut nodes = Vec::new();
        for words in text.split(',') {
            let wrong = || ParseError::new("cluster", words, expected).at("--cluster");
            nodes.push(group(words.trim()).ok_or_else(wrong)?);
        }
        let file = File {
            nodes,
            network: None,
            restart: None,
            checkpoint: None,
            packing: false,
            shared_links: false,
        };
        build(&file, "--cluster", &no_file)
    }

    /// A cluster file that names no other file.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed file, or one that describes an impossible cluster.
    pub fn from_file(text: &str, place: &str) -> Result<Cluster, InputError> {
        Cluster::from_files(text, place, &no_file)
    }

    /// A cluster file; `read_file` reads the lifetimes that it names.
    ///
    /// # Errors
    ///
    /// Returns an error for a malformed file, or one that describes an impossible cluster.
    pub fn from_files(text: &str, place: &str, read_file: ReadFile) -> Result<Cluster, InputError> {
        build(&parse::document(text, place)?, place, read_file)
    }

    /// The JSON schema of a cluster file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(File).to_value()
    }

    /// Devices, of all types together.
    pub fn devices(&self) -> u32 {
        self.view.devices(None)
    }
}

fn no_file(name: &str) -> Result<String, InputError> {
    Err(InputError::new("cluster", format!("the lifetimes in `{name}` are not read here"))
        .hint("write them as points:TIME=SHARE,…"))
}

fn build(file: &File, place: &str, read_file: ReadFile) -> Result<Cluster, InputError> {
    let mut cluster = Cluster { checkpoint_s: file.checkpoint.map(Seconds::get), ..Cluster::default() };
    let sum =
        |of: fn(&Group) -> u64| file.nodes.iter().fold(0_u64, |sum, group| sum.saturating_add(of(group)));
    let devices = sum(|group| u64::from(group.count) * u64::from(group.devices));
    if devices == 0 || devices.max(sum(|group| u64::from(group.count))) > DEVICES_MAX {
        return Err(InputError::new(place, format!("a cluster of {devices} devices"))
            .hint(format!("a cluster has 1 to {DEVICES_MAX} devices, and no more nodes than that")));
    }
    if cluster.checkpoint_s.is_some_and(|s| s.is_nan() || s <= 0.0) {
        return Err(InputError::new(place, "`checkpoint` is not a time").hint("write for example \"10min\""));
    }
    for (number, group) in file.nodes.iter().enumerate() {
        let place = format!("{place}: group {} of nodes", number + 1);
        add(&mut cluster, group, &place, read_file)?;
    }
    if let Some(network) = &file.network {
        cluster.view.link = Some(network.link());
        cluster.view.local_link = network.local_link();
    }
    cluster.view.restart_s = file.restart.map_or(0.0, Seconds::get);
    cluster.view.packs = file.packing;
    cluster.shared_links = file.shared_links;
    Ok(cluster)
}

fn add(cluster: &mut Cluster, group: &Group, place: &str, read_file: ReadFile) -> Result<(), InputError> {
    if group.device.is_empty() {
        return Err(InputError::new(place, "a type of device has a name"));
    }
    let types = &mut cluster.view.device_types;
    let known = types.iter().position(|name| *name == group.device);
    let index = known.unwrap_or_else(|| {
        types.push(group.device.clone());
        types.len() - 1
    });
    let device_type = u16::try_from(index).map_err(|_| InputError::new(place, "too many types of device"))?;
    if let Some(speed) = group.speed {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(ParseError::out_of_range("speed", speed, "a number above 0").at(place));
        }
        let other = cluster.device_speeds.insert(group.device.clone(), speed);
        if other.is_some_and(|other| other != speed) {
            return Err(InputError::new(place, format!("`{}` has two speeds", group.device)));
        }
    }
    if let Some(Bytes(memory)) = group.memory {
        let each = memory / u64::from(group.devices.max(1));
        if each == 0 {
            return Err(InputError::new(place, "its devices have no memory")
                .hint("write for example memory = \"64GiB\""));
        }
        let other = cluster.device_memory.insert(group.device.clone(), each);
        if other.is_some_and(|other| other != each) {
            let what = format!("a `{}` has {} here, and another memory before", group.device, Bytes(each));
            return Err(InputError::new(place, what).hint("give devices with another memory another name"));
        }
    }
    let outage = match &group.lifetimes {
        Some(words) => Some(Outage::Revocations(Arc::new(revocations(group, words, place, read_file)?))),
        None => failures(group, place)?.map(Outage::Failures),
    };
    let node = Node { device_type, devices: group.devices, free: group.devices, up: true };
    for _ in 0..group.count {
        cluster.view.nodes.push(node);
        cluster.outages.push(outage.clone());
    }
    Ok(())
}

/// How long the transient nodes of a group live.
fn revocations(
    group: &Group,
    words: &str,
    place: &str,
    read_file: ReadFile,
) -> Result<Revocations, InputError> {
    let others = [group.mean_time_to_failure, group.mean_time_to_repair, group.longest_life];
    if others.iter().any(Option::is_some) {
        return Err(InputError::new(place, "`lifetimes` and times to failure say twice when nodes go")
            .hint("leave out mean_time_to_failure, mean_time_to_repair and longest_life"));
    }
    let law = match words.parse::<LawSpec>().map_err(|error| error.at(format!("{place}: lifetimes")))? {
        LawSpec::Law(law) => law,
        LawSpec::Samples(file) => samples(&read_file(&file)?, &file)?,
    };
    let replacement_s = group.replacement.map_or(0.0, Seconds::get);
    if replacement_s > LONGEST_S {
        let expected = format!("a time up to {LONGEST_S:e} s");
        return Err(
            ParseError::out_of_range("replacement", format!("{replacement_s:e} s"), expected).at(place)
        );
    }
    let name = group.name.clone().unwrap_or_else(|| group.device.clone());
    Ok(Revocations { name, law, replacement_s })
}

fn failures(group: &Group, place: &str) -> Result<Option<Failures>, InputError> {
    if group.replacement.is_some() {
        return Err(InputError::new(place, "a time of replacement, and nothing that is replaced").hint(
            "add lifetimes, for example \"exponential:15h\"; nodes that fail have mean_time_to_repair",
        ));
    }
    let positive = |time: Option<Seconds>, name: &str| match time.map(Seconds::get) {
        Some(time_s) if !(time_s > 0.0 && time_s <= LONGEST_S) => {
            let expected = format!("a time above 0 and up to {LONGEST_S:e} s");
            Err(ParseError::out_of_range(name, format!("{time_s:e} s"), expected).at(place))
        }
        other => Ok(other),
    };
    let up_s = positive(group.mean_time_to_failure, "mean_time_to_failure")?;
    let longest_up_s = positive(group.longest_life, "longest_life")?;
    let down_s = positive(group.mean_time_to_repair, "mean_time_to_repair")?;
    if up_s.is_none() && longest_up_s.is_none() {
        return match down_s {
            Some(_) => Err(InputError::new(place, "a time to repair, and nothing that fails")
                .hint("add mean_time_to_failure")),
            None => Ok(None),
        };
    }
    let Some(mean_down_s) = down_s else {
        return Err(InputError::new(place, "nodes go down and nothing says for how long")
            .hint("add mean_time_to_repair"));
    };
    Ok(Some(Failures { mean_up_s: up_s.unwrap_or(f64::MAX), longest_up_s, mean_down_s }))
}
