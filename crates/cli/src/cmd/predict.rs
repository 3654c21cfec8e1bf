//! `bellwether predict`: throughput of any configuration from the profile of one worker.

use std::fs;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, Link, Protocol, StepModel, Validity,
};
use bellwether_core::profile::Profile;
use bellwether_model::event::{self, Outcome, Setting, TransmissionOrder};
use bellwether_model::predict::ProfileModel;
use serde::Serialize;

use crate::args::{Fidelity, PredictArguments};
use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

mod plot;
mod show;

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
    /// Throughput over that of as many lone workers.
    efficiency: f64,
    /// Whether this is the last number of workers that is worth its last worker.
    knee: bool,
    validity: Validity,
    model: &'static str,
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
    let question = Question { arguments, model: &model, link: link(arguments, &model)? };
    let counts = question.counts()?;
    let mut rows = Vec::with_capacity(counts.len());
    for workers in &counts {
        rows.push(question.row(*workers)?);
    }
    mark_knee(&mut rows, &question)?;
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&rows, &model.profile().job)?.as_bytes())?;
    }
    if let Some(path) = &arguments.trace {
        let workers = counts.last().copied().unwrap_or(1);
        files::write_whole(path, question.trace(workers)?.as_bytes())?;
    }
    printer.out(show::render(&rows, arguments.format));
    Ok(ExitCode::SUCCESS)
}

/// The link as it was asked for, or as it was measured.
fn link(arguments: &PredictArguments, model: &ProfileModel) -> Result<Link, Failure> {
    let measured = model.profile().network;
    let bandwidth = arguments.bandwidth.map(|b| b.get()).or(measured.map(|n| n.bandwidth_bytes_per_s));
    let latency = arguments.latency.map(|l| l.get()).or(measured.map(|n| n.latency_s));
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
}

impl Question<'_> {
    /// Numbers of workers to answer for.
    fn counts(&self) -> Result<Vec<u32>, Failure> {
        let mixed = self.arguments.device.iter().filter_map(|d| d.count).sum::<u32>();
        if mixed > 0 {
            return Ok(vec![mixed]);
        }
        let range = self.arguments.workers;
        let most = match (self.synchronous(), self.model.shares_batch()) {
            (true, true) => self.model.profile().virtual_nodes,
            _ => u32::MAX,
        };
        if range.is_some_and(|range| range.min > most) {
            let what =
                format!("the job has {most} virtual nodes, so at most {most} workers can share its batch");
            return Err(InputError::new("--workers", what)
                .hint("raise batch.virtual_nodes in the job file and profile it again")
                .into());
        }
        let (least, up_to) = range.map_or((1, 64), |range| (range.min, range.max));
        Ok((least..=up_to.min(most)).collect())
    }

    fn synchronous(&self) -> bool {
        self.arguments.protocol == Protocol::Bsp
    }

    fn configuration(&self, workers: u32) -> Configuration {
        let arguments = self.arguments;
        let mut configuration = self.model.configuration(workers, self.link);
        let own = &self.model.profile().device;
        let devices = &arguments.device;
        if devices.iter().any(|device| device.count.is_some()) {
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
        configuration.protocol = arguments.protocol;
        configuration.servers = arguments.servers.unwrap_or(u32::from(self.needs_servers()));
        let profiled = self.model.profile().batch;
        let each = !self.synchronous() || !self.model.shares_batch();
        configuration.batch = match arguments.batch {
            Some(batch) if self.synchronous() => batch,
            Some(batch) => batch * u64::from(workers),
            None if each => profiled * u64::from(workers),
            None => profiled,
        };
        configuration
    }

    fn needs_servers(&self) -> bool {
        matches!(self.arguments.protocol, Protocol::Asp | Protocol::Ssp(_))
    }

    /// Whether the fine-grained model answers.
    fn fine(&self) -> Result<bool, Failure> {
        let through_servers = self.needs_servers() || self.arguments.servers.is_some_and(|s| s > 0);
        let only_fine = matches!(self.arguments.protocol, Protocol::Ssp(_));
        match self.arguments.model {
            Fidelity::Coarse => Ok(false),
            Fidelity::Fine if !through_servers || self.arguments.protocol == Protocol::Gossip => Err(
                InputError::new("--model", "the fine-grained model is of training through parameter servers")
                    .hint("add --servers 1, or leave --model out")
                    .into(),
            ),
            Fidelity::Fine => Ok(true),
            Fidelity::Auto => Ok(only_fine),
        }
    }

    fn row(&self, workers: u32) -> Result<Row, Failure> {
        let configuration = self.configuration(workers);
        if self.fine()? {
            return self.fine_row(workers, &configuration);
        }
        let job = self.model.job();
        let prediction = self.model.predict(&job, &configuration).map_err(|why| self.refusal(&why))?;
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
            model: "coarse",
        })
    }

    fn refusal(&self, why: &str) -> Failure {
        let hint = match self.arguments.protocol {
            Protocol::Ssp(_) => "leave --model out, or say --model fine",
            _ => "",
        };
        InputError::new("predict", why).hint(hint).into()
    }

    fn fine_row(&self, workers: u32, configuration: &Configuration) -> Result<Row, Failure> {
        let outcome = self.simulate(workers, configuration, 0)?;
        let extrapolated = self.model.profile().network.is_none() || self.arguments.bandwidth.is_some();
        let validity = match extrapolated {
            true => Validity::Extrapolated("a link that was not measured".into()),
            false => Validity::Interpolated,
        };
        Ok(Row {
            workers,
            examples_per_s: outcome.examples_per_s,
            low: outcome.low,
            high: outcome.high,
            step_s: outcome.step_s,
            bottleneck: outcome.bottleneck(),
            efficiency: f64::NAN,
            knee: false,
            validity,
            model: "fine",
        })
    }

    fn simulate(
        &self,
        workers: u32,
        configuration: &Configuration,
        trace_rows: usize,
    ) -> Result<Outcome, Failure> {
        let speed = |name: &str| {
            let known = self.arguments.device.iter().find(|device| device.name == name);
            known.map_or(1.0, |device| device.speed)
        };
        let per_worker = configuration.batch as f64 / f64::from(workers);
        let factor = self.model.profile().batch as f64 / per_worker;
        let setting = Setting {
            workers,
            servers: configuration.servers,
            server_link_bytes_per_s: self.link.bandwidth_bytes_per_s,
            worker_link_bytes_per_s: self.link.bandwidth_bytes_per_s,
            latency_s: self.link.latency_s,
            protocol: configuration.protocol,
            order: self.order()?,
            // A smaller batch is computed faster, as by a faster device.
            speeds: configuration.devices.iter().map(|group| speed(&group.device) * factor).collect(),
            seed: self.arguments.seed,
            trace_rows,
            ..Setting::default()
        };
        let mut outcome = event::simulate(self.model.profile(), &setting)?;
        for value in [&mut outcome.examples_per_s, &mut outcome.low, &mut outcome.high] {
            *value /= factor;
        }
        Ok(outcome)
    }

    fn order(&self) -> Result<TransmissionOrder, Failure> {
        let profile = self.model.profile();
        Ok(match self.arguments.order {
            crate::args::Order::Fifo => TransmissionOrder::Fifo,
            crate::args::Order::RoundRobin(bytes) => TransmissionOrder::RoundRobin { window_bytes: bytes.0 },
            crate::args::Order::Tic => TransmissionOrder::Priority(event::priority::tic(profile)?),
            crate::args::Order::Tac => {
                TransmissionOrder::Priority(event::priority::tac(profile, self.link.bandwidth_bytes_per_s)?)
            }
        })
    }

    /// The synthetic execution trace of `workers`.
    fn trace(&self, workers: u32) -> Result<String, Failure> {
        let mut configuration = self.configuration(workers);
        if configuration.servers == 0 {
            return Err(InputError::new("--trace", "only training through parameter servers has a trace")
                .hint("add --servers 1")
                .into());
        }
        configuration.servers = configuration.servers.max(1);
        let outcome = self.simulate(workers, &configuration, TRACE_ROWS)?;
        Ok(event::trace::chrome_json(self.model.profile(), &outcome.trace))
    }
}

/// Efficiency against the lone worker, and the knee: the last number of workers whose last one is worth it.
fn mark_knee(rows: &mut [Row], question: &Question<'_>) -> Result<(), Failure> {
    let alone = match rows.first() {
        Some(first) if first.workers == 1 => first.examples_per_s,
        Some(_) if question.arguments.device.iter().all(|device| device.count.is_none()) => {
            question.row(1)?.examples_per_s
        }
        Some(first) => first.examples_per_s / f64::from(first.workers),
        None => return Ok(()),
    };
    let mut knee = 0;
    for index in 0..rows.len() {
        rows[index].efficiency = rows[index].examples_per_s / (alone * f64::from(rows[index].workers));
        if index > 0 && knee == index - 1 {
            let gained = rows[index].examples_per_s - rows[index - 1].examples_per_s;
            let added = f64::from(rows[index].workers - rows[index - 1].workers);
            if gained >= KNEE_EFFICIENCY * alone * added {
                knee = index;
            }
        }
    }
    rows[knee].knee = true;
    Ok(())
}
