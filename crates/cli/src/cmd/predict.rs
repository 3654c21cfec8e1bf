//! `bellwether predict`: throughput of any configuration from the profile of one worker.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::{Reduce, WorkerRange};
use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, Link, Protocol, StepModel, Validity,
};
use bellwether_core::profile::Profile;
use bellwether_model::event::{TransmissionOrder, priority};
use bellwether_model::predict::ProfileModel;
use bellwether_model::staleness;
use serde::Serialize;

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

mod args;
mod plot;
mod run;
mod show;

pub(crate) use args::PredictArguments;
use args::{Device, Fidelity, Order};

/// Numbers of workers to answer for at once: more make no table, and a mistyped one must not run for ever.
const ROWS_MAX: u32 = 4_096;

/// Rows of a trace, which a viewer still opens.
const TRACE_ROWS: usize = 200_000;

/// A marginal worker that adds less than this part of the first one's throughput is past the knee.
const KNEE_EFFICIENCY: f64 = 0.5;

/// One configuration, as it is printed.
#[derive(Debug, Clone, Serialize)]
struct Row {
    workers: u32,
    examples_per_s: f64,
    low: f64,
    high: f64,
    step_s: f64,
    bottleneck: Bottleneck,
    /// Throughput over that of the same workers each alone.
    efficiency: f64,
    /// Whether this is the last number of workers that is worth its last worker: the next one adds too little.
    knee: bool,
    validity: Validity,
    model: &'static str,
    /// Expected mean staleness of an update; absent where there is no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    staleness: Option<f64>,
}

pub(crate) fn predict(arguments: &PredictArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let place = arguments.profile.display().to_string();
    let text = fs::read_to_string(&arguments.profile).map_err(|e| {
        InputError::new(&place, format!("the profile cannot be read: {e}"))
            .hint("`bellwether profile JOB.toml -o FILE` makes one")
    })?;
    let profile = Profile::read(&text, &place)?;
    let mut model =
        ProfileModel::new(profile).map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
    for device in &arguments.device {
        model = model.with_device(&device.name, device.speed)?;
    }
    let question = Question {
        arguments,
        model: &model,
        link: link(arguments, &model)?,
        protocol: arguments.protocol,
        servers: arguments.servers,
    };
    if arguments.steps.is_some() {
        return run::predict(question, printer);
    }
    let question = question.reduced();
    question.check()?;
    let counts = question.counts()?;
    let mut rows = Vec::with_capacity(counts.len());
    let mut noted = Instant::now();
    for (number, workers) in counts.iter().enumerate() {
        if noted.elapsed() >= Duration::from_secs(1) {
            noted = Instant::now();
            printer.note(format_args!("{number} of {} predictions made", counts.len()));
        }
        rows.push(question.row(*workers)?);
    }
    mark_knee(&mut rows, &question)?;
    let trace = match (&arguments.trace, counts.last()) {
        (Some(path), Some(workers)) => Some((path, question.trace(*workers)?)),
        _ => None,
    };
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&rows, &model.profile().job)?.as_bytes())?;
    }
    if let Some((path, text)) = trace {
        files::write_whole(path, text.as_bytes())?;
    }
    printer.out(printer.marked(&show::render(&rows, arguments.format), "← knee"));
    Ok(ExitCode::SUCCESS)
}

/// The link as it was asked for, or as it was measured.
fn link(arguments: &PredictArguments, model: &ProfileModel) -> Result<Link, Failure> {
    let measured = model.profile().network.map(Link::from);
    let bandwidth = arguments.bandwidth.map(|b| b.get()).or(measured.map(|l| l.bandwidth_bytes_per_s));
    let latency = arguments.latency.map(|l| l.get()).or(measured.map(|l| l.latency_s));
    match bandwidth {
        Some(bandwidth_bytes_per_s) => Ok(Link { bandwidth_bytes_per_s, latency_s: latency.unwrap_or(0.0) }),
        None => Err(InputError::new("--bandwidth", "the profile has no measured link")
            .hint("say how fast a link is, for example --bandwidth 10Gbps --latency 50us")
            .into()),
    }
}

/// What is asked, but for the number of workers.
struct Question<'a> {
    arguments: &'a PredictArguments,
    model: &'a ProfileModel,
    link: Link,
    protocol: Protocol,
    servers: Option<u32>,
}

impl Question<'_> {
    /// The same with the servers that `--reduce` says.
    fn reduced(mut self) -> Self {
        if self.protocol == Protocol::Bsp {
            match self.arguments.reduce {
                Some(Reduce::Servers) => self.servers = Some(self.servers.unwrap_or(1)),
                Some(Reduce::AllReduce) => self.servers = Some(0),
                None => {}
            }
        }
        self
    }

    /// Refuses flags that contradict each other, and files that could not be written in the end.
    fn check(&self) -> Result<(), Failure> {
        let arguments = self.arguments;
        let protocol = self.protocol;
        let wrong = |flag: &str, what: String, hint: &str| Err(InputError::new(flag, what).hint(hint).into());
        for path in [&arguments.plot, &arguments.trace].into_iter().flatten() {
            files::check_folder(path)?;
        }
        if arguments.reduce == Some(Reduce::Servers) && arguments.servers == Some(0) {
            return wrong(
                "--servers",
                "missing servers: gradients are summed there".into(),
                "ask for 1 or more",
            );
        }
        if self.servers == Some(0) && self.needs_servers() {
            let what = format!("missing servers: {protocol} keeps the parameters at parameter servers");
            return wrong("--servers", what, "ask for 1 or more, or for --protocol bsp or gossip");
        }
        if protocol == Protocol::Gossip && self.servers.is_some_and(|servers| servers > 0) {
            let what = "gossip has no parameter servers".into();
            return wrong("--servers", what, "leave it out, or choose --protocol asp");
        }
        if arguments.order != Order::Fifo && !self.fine()? {
            let what =
                "only the fine-grained model of training through parameter servers knows an order".into();
            return wrong("--order", what, "add --servers 1 and leave --model out");
        }
        if arguments.trace.is_some() && !self.through_servers() {
            let what = "only training through parameter servers has a trace".into();
            return wrong("--trace", what, "add --servers 1, for gossip --protocol asp");
        }
        self.check_devices()
    }

    /// Refuses devices of which it is not clear which workers have them.
    fn check_devices(&self) -> Result<(), Failure> {
        let devices = &self.arguments.device;
        let wrong = |what: String, hint: String| Err(InputError::new("--device", what).hint(hint).into());
        for (number, device) in devices.iter().enumerate() {
            let Device { name, speed, .. } = device;
            if devices[..number].iter().any(|other| other.name == *name) {
                return wrong(format!("`{name}` is named twice"), "name each device once".into());
            }
            if devices.len() > 1 && device.count.is_none() {
                let hint = format!("say how many there are of each, for example --device {name}={speed}:4");
                return wrong(format!("it is not said how many workers have `{name}`"), hint);
            }
            if device.count == Some(0) {
                return wrong(format!("0 workers have `{name}`"), "leave it out, or say how many".into());
            }
        }
        Ok(())
    }

    /// Numbers of workers to answer for.
    fn counts(&self) -> Result<Vec<u32>, Failure> {
        let wrong = |flag: &str, what: String, hint: &str| Err(InputError::new(flag, what).hint(hint).into());
        let mixed = self.mixed().then(|| self.arguments.device.iter().filter_map(|d| d.count).sum::<u32>());
        let range = match (mixed, self.arguments.workers) {
            (Some(mixed), Some(range)) if (range.min, range.max) != (mixed, mixed) => {
                let what = format!("--device names exactly {mixed} workers");
                return wrong("--workers", what, "leave it out, or leave the counts of --device out");
            }
            (Some(mixed), _) => WorkerRange { min: mixed, max: mixed },
            (None, range) => range.unwrap_or(WorkerRange { min: 1, max: 64 }),
        };
        let virtual_nodes = self.model.profile().virtual_nodes;
        let unit = self.arguments.nodes_per_update;
        let most = match (self.synchronous(), self.model.shares_batch()) {
            (true, true) if self.through_servers() => virtual_nodes.div_ceil(unit),
            (true, true) => virtual_nodes,
            _ => u32::MAX,
        };
        if range.min > most {
            let flag = if mixed.is_some() { "--device" } else { "--workers" };
            if most < virtual_nodes {
                let what = format!(
                    "a step has {most} units of {unit} virtual nodes, so at most {most} workers can share it"
                );
                return wrong(flag, what, "ask for fewer workers, or for less --nodes-per-update");
            }
            let what =
                format!("the job has {most} virtual nodes, so at most {most} workers can share its batch");
            return wrong(flag, what, "raise batch.virtual_nodes in the job file and profile it again");
        }
        let last = range.max.min(most);
        if last - range.min >= ROWS_MAX {
            let what = format!("{range} asks for more than {ROWS_MAX} predictions");
            return wrong("--workers", what, "ask for fewer numbers of workers at once");
        }
        Ok((range.min..=last).collect())
    }

    /// Whether it is said which worker has which device.
    fn mixed(&self) -> bool {
        self.arguments.device.iter().any(|device| device.count.is_some())
    }

    /// Throughput of a lone worker; of mixed devices, the mean of one of each worker's.
    fn alone(&self) -> Result<f64, Failure> {
        if !self.mixed() {
            return Ok(self.row(1)?.examples_per_s);
        }
        let (mut sum, mut workers) = (0.0, 0.0);
        for device in &self.arguments.device {
            let devices = vec![DeviceGroup { node: 0, device: device.name.clone(), count: 1 }];
            let lone = Configuration { devices, ..self.configuration(1) };
            let count = f64::from(device.count.unwrap_or(0));
            sum += count * self.answer(1, &lone)?.examples_per_s;
            workers += count;
        }
        Ok(sum / workers)
    }

    fn synchronous(&self) -> bool {
        self.protocol == Protocol::Bsp
    }

    fn configuration(&self, workers: u32) -> Configuration {
        let arguments = self.arguments;
        let mut configuration = self.model.configuration(workers, self.link);
        let own = &self.model.profile().device;
        let devices = &arguments.device;
        if self.mixed() {
            let groups = devices.iter().enumerate().map(|(node, device)| DeviceGroup {
                node: node as u32,
                device: device.name.clone(),
                count: device.count.unwrap_or(0),
            });
            // Each worker on a host of its own, as without --device.
            let spread = groups.flat_map(|g| (0..g.count).map(move |_| g.device.clone()));
            configuration.devices = spread
                .enumerate()
                .map(|(node, device)| DeviceGroup { node: node as u32, device, count: 1 })
                .collect();
        } else {
            let device = devices.last().map_or(own, |device| &device.name);
            configuration.devices.iter_mut().for_each(|group| group.device.clone_from(device));
        }
        configuration.protocol = self.protocol;
        configuration.servers = self.servers.unwrap_or(u32::from(self.needs_servers()));
        let profiled = self.model.profile().batch;
        let each = !self.synchronous() || !self.model.shares_batch();
        configuration.batch = match arguments.batch {
            Some(batch) if self.synchronous() => batch,
            Some(batch) => batch * u64::from(workers),
            None if each => profiled * u64::from(workers),
            None => profiled,
        };
        match arguments.batch {
            Some(_) => Configuration { accumulation: arguments.nodes_per_update, ..configuration },
            None => self.model.in_units(configuration, arguments.nodes_per_update),
        }
    }

    fn needs_servers(&self) -> bool {
        matches!(self.protocol, Protocol::Asp | Protocol::Ssp(_))
    }

    fn through_servers(&self) -> bool {
        self.needs_servers() || self.servers.is_some_and(|servers| servers > 0)
    }

    /// Whether the fine-grained model answers.
    fn fine(&self) -> Result<bool, Failure> {
        let through_servers = self.through_servers();
        let ordered = self.arguments.order != Order::Fifo && through_servers;
        let only_fine = ordered || matches!(self.protocol, Protocol::Ssp(_));
        match self.arguments.model {
            Fidelity::Coarse => Ok(false),
            Fidelity::Fine if !through_servers => Err(InputError::new(
                "--model",
                "the fine-grained model is of training through parameter servers",
            )
            .hint("add --servers 1, or leave --model out")
            .into()),
            Fidelity::Fine => Ok(true),
            Fidelity::Auto => Ok(only_fine),
        }
    }

    fn row(&self, workers: u32) -> Result<Row, Failure> {
        self.answer(workers, &self.configuration(workers))
    }

    fn answer(&self, workers: u32, configuration: &Configuration) -> Result<Row, Failure> {
        let (model, (prediction, staleness)) = if self.fine()? {
            ("fine", self.model.predict_staleness(configuration, &self.order()?, self.arguments.seed)?)
        } else {
            let prediction = self.model.predict(&self.model.job(), configuration);
            let staleness = staleness::expected(self.protocol, workers).filter(|_| !self.synchronous());
            ("coarse", (prediction.map_err(|why| InputError::new("predict", why.to_string()))?, staleness))
        };
        Ok(Row {
            workers,
            examples_per_s: prediction.examples_per_s,
            low: prediction.low,
            high: prediction.high,
            step_s: prediction.step_s,
            bottleneck: prediction.bottleneck,
            efficiency: f64::NAN,
            knee: false,
            validity: prediction.validity,
            model,
            staleness,
        })
    }

    fn order(&self) -> Result<TransmissionOrder, Failure> {
        let profile = self.model.profile();
        Ok(match self.arguments.order {
            Order::Fifo => TransmissionOrder::Fifo,
            Order::RoundRobin(bytes) => TransmissionOrder::RoundRobin { window_bytes: bytes.0 },
            Order::Tic => TransmissionOrder::Priority(priority::tic(profile)?),
            Order::Tac => {
                TransmissionOrder::Priority(priority::tac(profile, self.link.bandwidth_bytes_per_s)?)
            }
        })
    }

    /// The synthetic execution trace of `workers`.
    fn trace(&self, workers: u32) -> Result<String, Failure> {
        let (configuration, seed) = (self.configuration(workers), self.arguments.seed);
        Ok(self.model.trace(&configuration, &self.order()?, seed, TRACE_ROWS)?)
    }
}

/// Efficiency against lone workers, and the knee: the last number of workers whose last one is worth it. Where all
/// are worth it, the knee lies beyond them, and none is marked.
fn mark_knee(rows: &mut [Row], question: &Question<'_>) -> Result<(), Failure> {
    let alone = match rows.first() {
        Some(first) if first.workers == 1 => first.examples_per_s,
        Some(_) => question.alone()?,
        None => return Ok(()),
    };
    for row in rows.iter_mut() {
        row.efficiency = row.examples_per_s / (alone * f64::from(row.workers));
    }
    let worth_it = |pair: &[Row]| {
        let gained = pair[1].examples_per_s - pair[0].examples_per_s;
        let added = f64::from(pair[1].workers - pair[0].workers);
        gained >= KNEE_EFFICIENCY * alone * added
    };
    if let Some(knee) = rows.windows(2).position(|pair| !worth_it(pair)) {
        rows[knee].knee = true;
    }
    Ok(())
}
