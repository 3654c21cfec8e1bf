//! Throughput of any configuration from the profile of one worker.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::job::{Reduce, SyncPolicy, WorkerRange};
use bellwether_core::prediction::{Link, Protocol};
use bellwether_core::profile::Profile;
use bellwether_core::units::{Bytes, BytesPerSecond, Seconds};
use bellwether_core::{InputError, ParseError};
use bellwether_model::predict::{
    Answer, DeviceSpec, DeviceSpeed, Fidelity, ProfileModel, Question, QuestionError, RunAnswer, RunQuestion,
    SendOrder,
};

use crate::network::{self, Network};
use crate::options::Options;

/// Numbers of virtual nodes that may make one update.
pub const NODES_PER_UPDATE: std::ops::RangeInclusive<u64> = 1..=1_000_000;
/// Numbers of parameter servers.
pub const SERVERS: std::ops::RangeInclusive<u64> = 0..=10_000;
/// Sizes of a batch.
pub const BATCH: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;
/// Steps of a whole run.
pub const STEPS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000_000;

/// What predictions are made from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The file of a profile.
    Profile(PathBuf),
    /// The description of a network that was never run, and a table of measured networks in place of the built-in one.
    Network(Network, Option<PathBuf>),
}

impl Source {
    fn of(options: &mut Options) -> Result<Source, InputError> {
        options.exclusive(&["profile", "network"])?;
        // Each is taken, also one that is there and not given.
        let (network, known) = (options.parsed("network", str::parse)?, options.text("known"));
        let profile = options.text("profile");
        match (network, known, profile) {
            (Some(network), known, _) => Ok(Source::Network(network, known.map(PathBuf::from))),
            (None, Some(_), _) => Err(InputError::new("--known", "it is of no use without --network")),
            (None, None, Some(profile)) => Ok(Source::Profile(profile.into())),
            (None, None, None) => Err(InputError::new("profile", "it is not given")),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// Of what.
    pub source: Source,
    /// Numbers of workers; `None`: up to 64, or as many as there are virtual nodes.
    pub workers: Option<WorkerRange>,
    /// Who waits for whom.
    pub protocol: Protocol,
    /// The protocols of a whole run, in turn.
    pub sync: Option<SyncPolicy>,
    /// Steps of the whole run, if one is asked for.
    pub steps: Option<u64>,
    /// Time for which each switch stalls the run.
    pub switch_time: Option<Seconds>,
    /// Where gradients are summed in synchronous training; `None`: as `servers` says.
    pub reduce: Option<Reduce>,
    /// Virtual nodes whose gradients make one update through servers.
    pub nodes_per_update: u32,
    /// Parameter servers; `None`: as many as the protocol needs.
    pub servers: Option<u32>,
    /// Bandwidth of each link; `None`: as measured.
    pub bandwidth: Option<BytesPerSecond>,
    /// Latency of a link; `None`: as measured.
    pub latency: Option<Seconds>,
    /// The workers' devices; empty: the profiled one.
    pub devices: Vec<DeviceSpec>,
    /// Samples per step; `None`: as profiled.
    pub batch: Option<u64>,
    /// How closely to look.
    pub fidelity: Fidelity,
    /// The order in which parts are sent.
    pub order: SendOrder,
    /// Seed of the fine model's draws.
    pub seed: u64,
}

impl Request {
    /// The request with these options.
    ///
    /// # Errors
    ///
    /// An option that is unknown, or whose value cannot be read.
    pub fn of(mut options: Options) -> Result<Request, InputError> {
        options.exclusive(&["protocol", "sync", "switch_at"])?;
        let source = Source::of(&mut options)?;
        let devices = options.list("device");
        let device = |text: &String| device(text).map_err(|error| error.at("--device"));
        let sync = options.parsed("sync", str::parse)?;
        let request = Request {
            source,
            workers: options.parsed("workers", str::parse)?,
            protocol: options.parsed("protocol", str::parse)?.unwrap_or(Protocol::Bsp),
            sync: sync.or(options.parsed("switch_at", switch)?),
            steps: options.whole("steps", STEPS)?,
            switch_time: options.parsed("switch_time", str::parse)?,
            reduce: options.parsed("reduce", reduce)?,
            nodes_per_update: options.whole("nodes_per_update", NODES_PER_UPDATE)?.unwrap_or(1),
            servers: options.whole("servers", SERVERS)?,
            bandwidth: options.parsed("bandwidth", str::parse)?,
            latency: options.parsed("latency", str::parse)?,
            devices: devices.iter().map(device).collect::<Result<_, _>>()?,
            batch: options.whole("batch", BATCH)?,
            fidelity: options.parsed("model", fidelity)?.unwrap_or(Fidelity::Auto),
            order: options.parsed("order", order)?.unwrap_or(SendOrder::Fifo),
            seed: options.whole("seed", 0..=u64::MAX)?.unwrap_or(0),
        };
        options.end()?;
        Ok(request)
    }

    /// The model of the profile, with the devices that were named.
    ///
    /// # Errors
    ///
    /// A profile that cannot be read or used; one of a device that is of another job.
    pub fn model(&self) -> Result<ProfileModel, InputError> {
        let mut model = match &self.source {
            Source::Profile(file) => profiled(file)?,
            Source::Network(network, known) => estimated(network, known.as_deref())?,
        };
        for DeviceSpec { name, speed, .. } in &self.devices {
            model = match speed {
                DeviceSpeed::Relative(speed) => model.with_device(name, *speed)?,
                DeviceSpeed::Profiled(file) => {
                    let profile = read_profile(file.as_ref())?;
                    let place = |error: InputError| InputError { place: file.clone(), ..error };
                    model.with_profile(name, profile).map_err(place)?
                }
            };
        }
        Ok(model)
    }

    /// What is asked of the model.
    ///
    /// # Errors
    ///
    /// A link that was neither said nor measured.
    pub fn question<'a>(&'a self, model: &'a ProfileModel) -> Result<Question<'a>, InputError> {
        let link = self.link(model)?;
        // Of one measured type of device it is the question of its own profile.
        let (model, devices) = match &self.devices[..] {
            [only] if only.count.is_none() && model.is_measured(&only.name) => {
                (model.on(&only.name), &[][..])
            }
            devices => (model, devices),
        };
        Ok(Question {
            model,
            link,
            protocol: self.protocol,
            servers: self.servers,
            reduce: self.reduce,
            devices,
            batch: self.batch,
            nodes_per_update: self.nodes_per_update,
            fidelity: self.fidelity,
            order: self.order,
            seed: self.seed,
        })
    }

    /// The answer for each number of workers, with the knee marked. `watch` hears how many there are of all.
    ///
    /// # Errors
    ///
    /// Options that contradict each other; a model that refuses.
    pub fn throughput(
        &self,
        question: &Question<'_>,
        watch: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Answer>, InputError> {
        question.check(false).map_err(on_command_line)?;
        let counts = question.counts(self.workers).map_err(on_command_line)?;
        let mut answers = Vec::with_capacity(counts.len());
        for (number, workers) in counts.iter().enumerate() {
            watch(number, counts.len());
            answers.push(question.answer(*workers).map_err(on_command_line)?);
        }
        question.mark_knee(&mut answers).map_err(on_command_line)?;
        Ok(answers)
    }

    /// The whole run for each number of workers.
    ///
    /// # Errors
    ///
    /// Options that contradict each other; a model that refuses.
    pub fn whole_run(&self, question: &RunQuestion<'_>) -> Result<Vec<RunAnswer>, InputError> {
        question.answers(self.workers).map_err(on_command_line)
    }

    /// The question of a whole run of `steps` steps.
    pub fn over<'a>(&self, question: Question<'a>, steps: u64) -> RunQuestion<'a> {
        let switch_s = self.switch_time.map_or(0.0, Seconds::get);
        RunQuestion { question, steps, policy: self.sync.clone(), switch_s }
    }

    /// The link as it was asked for, or as it was measured.
    fn link(&self, model: &ProfileModel) -> Result<Link, InputError> {
        let measured = model.measured_link(self.devices.iter().map(|device| device.name.as_str()));
        let bandwidth = self.bandwidth.map(|b| b.get()).or(measured.map(|l| l.bandwidth_bytes_per_s));
        let latency = self.latency.map(|l| l.get()).or(measured.map(|l| l.latency_s));
        match bandwidth {
            Some(bandwidth_bytes_per_s) => {
                Ok(Link { bandwidth_bytes_per_s, latency_s: latency.unwrap_or(0.0) })
            }
            None => Err(InputError::new("--bandwidth", "the profile has no measured link")
                .hint("say how fast a link is, for example --bandwidth 10Gbps --latency 50us")),
        }
    }
}

/// The profile in a file.
///
/// # Errors
///
/// A file that cannot be read, or does not hold a profile.
pub fn read_profile(path: &Path) -> Result<Profile, InputError> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the profile cannot be read: {e}"))
            .hint("`bellwether profile JOB.toml -o FILE` makes one")
    })?;
    Profile::read(&text, &place)
}

/// The model of the profile in a file.
///
/// # Errors
///
/// A file that cannot be read, or does not hold a profile.
pub fn profiled(path: &Path) -> Result<ProfileModel, InputError> {
    let place = path.display().to_string();
    ProfileModel::new(read_profile(path)?)
        .map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })
}

/// The model of a network that was never run, by what is known of others.
fn estimated(network: &Network, known: Option<&Path>) -> Result<ProfileModel, InputError> {
    let estimate = network::estimate(network, &network::known(known)?)?;
    ProfileModel::new(network::profile(network, &estimate))
}

/// The error of a question, whose place is an option of the command.
pub fn on_command_line(error: QuestionError) -> InputError {
    match error {
        QuestionError::Option(error) => InputError { place: format!("--{}", error.place), ..error },
        QuestionError::Model(error) => error,
    }
}

/// `NAME=SPEED` or `NAME=PROFILE.json`, either with `:COUNT`.
///
/// # Errors
///
/// Another text.
pub fn device(text: &str) -> Result<DeviceSpec, ParseError> {
    let expected = "NAME=SPEED or NAME=PROFILE.json, with :COUNT or without, for example p100=2.3, k80=1:4 or k80=k80.json:4";
    let wrong = || ParseError::new("device", text, expected);
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (what, count) = match rest.rsplit_once(':') {
        Some((what, count)) => (what, Some(count.parse().map_err(|_| wrong())?)),
        None => (rest, None),
    };
    let speed = match what.parse() {
        Ok(speed) => DeviceSpeed::Relative(speed),
        Err(_) if Path::new(what).extension().is_some_and(|extension| extension == "json") => {
            DeviceSpeed::Profiled(what.into())
        }
        Err(_) => return Err(wrong()),
    };
    let computes = match speed {
        DeviceSpeed::Relative(speed) => speed.is_finite() && speed > 0.0,
        DeviceSpeed::Profiled(_) => true,
    };
    if name.is_empty() || !computes || count.is_some_and(|c: u32| c > 100_000) {
        return Err(wrong());
    }
    Ok(DeviceSpec { name: name.into(), speed, count })
}

/// A policy that is synchronous for the share that `text` says.
///
/// # Errors
///
/// A text that does not name a share.
pub fn switch(text: &str) -> Result<SyncPolicy, ParseError> {
    format!("switch:{text}").parse()
}

/// Where gradients are summed.
///
/// # Errors
///
/// Another word.
pub fn reduce(text: &str) -> Result<Reduce, ParseError> {
    match text {
        "all-reduce" => Ok(Reduce::AllReduce),
        "servers" => Ok(Reduce::Servers),
        _ => Err(ParseError::one_of("place", text, ["all-reduce", "servers"])),
    }
}

/// How closely to look.
///
/// # Errors
///
/// Another word.
pub fn fidelity(text: &str) -> Result<Fidelity, ParseError> {
    match text {
        "fine" => Ok(Fidelity::Fine),
        "coarse" => Ok(Fidelity::Coarse),
        "auto" => Ok(Fidelity::Auto),
        _ => Err(ParseError::one_of("model", text, ["fine", "coarse", "auto"])),
    }
}

/// The order in which parts are sent.
///
/// # Errors
///
/// Another word.
pub fn order(text: &str) -> Result<SendOrder, ParseError> {
    match text {
        "fifo" => Ok(SendOrder::Fifo),
        "tic" => Ok(SendOrder::Tic),
        "tac" => Ok(SendOrder::Tac),
        _ => match text.strip_prefix("round-robin:").map(str::parse) {
            Some(Ok(Bytes(bytes))) if bytes > 0 => Ok(SendOrder::RoundRobin(Bytes(bytes))),
            _ => Err(ParseError::new("order", text, "fifo, round-robin:1MiB, tic or tac")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<Request, InputError> {
        Request::of(Options::read(text)?)
    }

    #[test]
    fn options_that_are_there_and_not_given_are_none() {
        let of_profile = request(r#"{"profile": "p.json", "network": null, "known": null, "workers": null}"#);
        assert!(matches!(of_profile.unwrap().source, Source::Profile(path) if path.as_os_str() == "p.json"));
        let network = "operations=1G,tensors=9,bytes=1MB,device=k80";
        let of_network =
            request(&format!(r#"{{"profile": null, "network": "{network}", "known": "k.csv"}}"#));
        assert!(matches!(of_network.unwrap().source, Source::Network(_, Some(_))));
        for (wrong, word) in [
            (r#"{"profile": null}"#, "profile"),
            (r#"{"profile": "p.json", "known": "k.csv"}"#, "--known"),
            (r#"{"profile": "p.json", "nothing": null}"#, "nothing"),
        ] {
            assert!(request(wrong).unwrap_err().to_string().contains(word), "{wrong}");
        }
    }
}
