//! `asynchronous`: predicts the throughput of training through parameter servers from a profile of one worker, and
//! measures it beside, on hosts of our own with shaped links.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use bellwether_core::job::{Order, WorkerRange};
use bellwether_core::plan::TransmissionOrder;
use bellwether_core::prediction::{Link, Prediction, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_core::record::UnitRecord;
use bellwether_core::units::Bytes;
use bellwether_model::predict::ProfileModel;
use serde_json::json;

use super::namespaces::{self, Guard, Namespaces, Queues, address};
use super::report::{Report, Row};
use super::scaling::{self, busy_share, processor_time};
use super::statistics::{largest, mean, median};
use super::trial::Trial;
use super::{OutputArguments, published};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use crate::programs::bellwether;

/// Virtual nodes: updates of a step, and the most workers.
const VIRTUAL_NODES: u32 = 8;

/// Updates of each worker that do not count.
const SETTLING: u64 = 3;

/// Share of the machine's time beyond which it, and not the links, is measured.
const BUSY: f64 = 0.7;

/// What was set before anything was measured: of the fine-grained model at every point and on average, and of the
/// queueing model at every point.
const WORST: f64 = 0.10;
const MEAN: f64 = 0.05;
const QUEUEING: f64 = 0.15;

/// Orders whose predictions differ by less are not told apart: about what repeated measurements differ by.
const TELLING: f64 = 0.04;

/// The first host has the coordinator, so that what it says does not use a server's link.
const COORDINATOR: u32 = 0;

#[derive(Debug, clap::Args)]
pub(super) struct AsynchronousArguments {
    /// Rates of the links, as `tc` writes them, each with the numbers of workers to try
    #[arg(long, value_name = "RATE:MIN..MAX,…", value_delimiter = ',', value_parser = scaling::point,
          default_value = "100mbit:1..8,1gbit:1..2")]
    points: Vec<(String, WorkerRange)>,
    /// Numbers of servers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    servers: Vec<u32>,
    /// Transmission orders to try
    #[arg(
        long,
        value_name = "ORDER,…",
        value_delimiter = ',',
        default_value = "fifo,window:256KiB,priority"
    )]
    orders: Vec<Order>,
    /// Milliseconds that one update is computed
    #[arg(long, value_name = "MS", default_value_t = 400)]
    step_ms: u64,
    /// Relative spread of that time
    #[arg(long, value_name = "SHARE", default_value_t = 0.15)]
    spread: f64,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value = "2MiB")]
    parameters: Bytes,
    /// Layers: tensors that are needed and done one after another
    #[arg(long, value_name = "N", default_value_t = 4)]
    layers: u32,
    /// Updates of the profile
    #[arg(long, value_name = "N", default_value_t = 150)]
    updates: u64,
    /// Runs of each point
    #[arg(long, value_name = "N", default_value_t = 3)]
    repetitions: u32,
    /// Seconds of each that count
    #[arg(long, value_name = "SECONDS", default_value_t = 25.0)]
    seconds: f64,
    /// All packets that wait for a link wait in one queue, instead of one for each other host
    #[arg(long)]
    one_queue: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl AsynchronousArguments {
    fn job(&self, servers: u32, order: Order) -> String {
        let AsynchronousArguments { step_ms, spread, parameters, layers, .. } = self;
        format!(
            "name = \"bench\"\nseed = 1\nsteps = 1000000\nworkers = 1\n\
             [model]\nkind = \"synthetic\"\nstep_time = \"{step_ms}ms\"\nspread = {spread}\n\
             parameters = \"{parameters}\"\nlayers = {layers}\n\
             [data]\nkind = \"indices\"\nsamples = 1000000\n\
             [batch]\nsize = {VIRTUAL_NODES}\nvirtual_nodes = {VIRTUAL_NODES}\n\
             [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.001\n\
             [sync]\npolicy = \"asp\"\nservers = {servers}\norder = \"{order}\"\n"
        )
    }

    fn transmission(&self, order: Order) -> TransmissionOrder {
        match order {
            Order::Fifo => TransmissionOrder::Fifo,
            Order::Window(window_bytes) => TransmissionOrder::RoundRobin { window_bytes },
            Order::Priority => TransmissionOrder::Priority((0..self.layers).collect()),
        }
    }

    fn most_servers(&self) -> u32 {
        self.servers.iter().copied().max().unwrap_or(1)
    }

    /// The host of a worker.
    fn worker(&self, number: u32) -> u32 {
        1 + self.most_servers() + number
    }

    fn check(&self) -> Result<(), Failure> {
        for (_, WorkerRange { min, max }) in &self.points {
            if *min == 0 || *max > VIRTUAL_NODES {
                let what = format!("{min}..{max}: choose from 1 to {VIRTUAL_NODES} workers");
                return Err(Failure::at("--points", what));
            }
        }
        if self.servers.contains(&0) || self.most_servers() > 16 {
            return Err(Failure::at("--servers", "choose from 1 to 16 servers"));
        }
        Ok(())
    }
}

/// What is predicted and measured.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    rate: &'a str,
    servers: u32,
    order: Order,
    workers: u32,
}

/// What came out of a point.
struct Outcome {
    fine: f64,
    queueing: f64,
    measured: f64,
    counts: bool,
}

pub(super) fn measure(arguments: &AsynchronousArguments, printer: &Printer) -> Result<Report, Failure> {
    if let Some(why) = namespaces::missing() {
        return Err(Failure::at("asynchronous", format!("skipped: {why}")));
    }
    arguments.check()?;
    let mut report = Report::begin("asynchronous", settings(arguments), published::SCALING);
    // Orders of the same case, to be compared.
    let mut cases: BTreeMap<String, Vec<Outcome>> = BTreeMap::new();
    for (rate, workers) in &arguments.points {
        let queues = if arguments.one_queue { Queues::One } else { Queues::Each };
        let hosts = Namespaces::create(arguments.worker(workers.max), rate, queues)?;
        printer.note(format_args!("{rate}: a profile from one worker and one server"));
        let model = ProfileModel::new(profiled(&hosts, arguments)?)?;
        report.row(profile_row(rate, model.profile())?);
        for servers in arguments.servers.iter().copied() {
            for workers in workers.min..=workers.max {
                for order in arguments.orders.iter().copied() {
                    let point = Point { rate, servers, order, workers };
                    printer.note(format_args!("{rate}: {workers} workers, {servers} servers, {order}"));
                    let (row, outcome) = point.try_out(&hosts, &model, arguments)?;
                    report.row(row);
                    cases.entry(format!("{rate} {servers} {workers}")).or_default().push(outcome);
                }
            }
        }
    }
    let counted: Vec<&Outcome> = cases.values().flatten().filter(|outcome| outcome.counts).collect();
    if !counted.is_empty() {
        let errors = |of: fn(&Outcome) -> f64| -> Vec<f64> {
            counted.iter().map(|outcome| (of(outcome) / outcome.measured - 1.0).abs()).collect()
        };
        let (fine, queueing) = (errors(|outcome| outcome.fine), errors(|outcome| outcome.queueing));
        report.at_most("fine-grained model: largest error of a point that counts", "", largest(&fine), WORST);
        report.at_most("fine-grained model: mean error", "", mean(&fine), MEAN);
        report.at_most("queueing model: largest error", "", largest(&queueing), QUEUEING);
    }
    let (told, right) = orders(cases.values());
    if told > 0 {
        let share = right as f64 / told as f64;
        let name = format!("pairs of orders that are measured in the predicted order, of {told}");
        report.bar(name, share, 1.0, told == right);
    }
    report.note(
        "Each host is a network namespace whose link is shaped in both directions; unless told otherwise each other host \
         has a queue of its own at a link, and they are served in turns. The coordinator has a host of its own. The \
         profile has the updates of one worker through one server, a bulk measurement of one link, and the server's time \
         to apply; the predictions know nothing else. Measured is the median run; a run's throughput is that of its \
         workers together, each the updates that it did over the time from its first to its last. A point during which \
         the machine was busier than the limit is shown and does not count.",
    );
    Ok(report)
}

fn settings(arguments: &AsynchronousArguments) -> serde_json::Value {
    let AsynchronousArguments { step_ms, spread, parameters, layers, updates, repetitions, seconds, .. } =
        arguments;
    json!({
        "points": arguments.points.iter().map(|(rate, workers)| format!("{rate}:{workers}")).collect::<Vec<_>>(),
        "servers": arguments.servers,
        "orders": arguments.orders.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "step_ms": step_ms, "spread": spread, "parameters_bytes": parameters.0, "layers": layers,
        "profile_updates": updates, "repetitions": repetitions, "seconds": seconds,
        "queues": if arguments.one_queue { "one" } else { "one for each other host" },
    })
}

/// Of the pairs of orders that are predicted to differ: how many there are, and how many were measured so.
fn orders<'a>(cases: impl Iterator<Item = &'a Vec<Outcome>>) -> (usize, usize) {
    let (mut told, mut right) = (0, 0);
    for case in cases {
        let counted: Vec<&Outcome> = case.iter().filter(|outcome| outcome.counts).collect();
        for (place, one) in counted.iter().enumerate() {
            for other in &counted[place + 1..] {
                let predicted = (one.fine / other.fine).ln();
                if predicted.abs() > TELLING {
                    told += 1;
                    right += usize::from(predicted.signum() == (one.measured / other.measured).ln().signum());
                }
            }
        }
    }
    (told, right)
}

/// What the profile says.
fn profile_row(rate: &str, profile: &Profile) -> Result<Row, Failure> {
    let network = profile.network.ok_or_else(|| Failure::at("asynchronous", "no link was measured"))?;
    let mean_of = |values: Vec<f64>| mean(&values);
    Ok(Row::new(format!("{rate}, profile"))
        .with("link_bytes_per_s", network.bandwidth_bytes_per_s)
        .with("latency_s", network.latency_s)
        .with("update_of_one_worker_s", mean_of(profile.steps.iter().map(|step| step.step_s).collect()))
        .with("computing_s", mean_of(profile.compute_s()))
        .with("applying_s", mean_of(profile.update_s())))
}

/// Runs `bellwether profile` between three hosts.
fn profiled(hosts: &Namespaces, arguments: &AsynchronousArguments) -> Result<Profile, Failure> {
    let folder = Folder::new("bench")?;
    let file = folder.write("job.toml", arguments.job(1, Order::Fifo))?;
    let output = folder.path().join("profile.json");
    let mut command = bellwether()?;
    command.arg("profile").arg(file).args(["--steps", &arguments.updates.to_string()]);
    command
        .args(["--peer-by-hand", "--listen", &format!("{}:0", address(COORDINATOR))])
        .arg("-o")
        .arg(&output);
    let child = hosts.inside(COORDINATOR, &command).stderr(Stdio::piped()).spawn();
    let mut child = Guard(child.map_err(|e| Failure::at("bellwether profile", e))?);
    let said = child.0.stderr.take().ok_or_else(|| Failure::at("bellwether profile", "has no stderr"))?;
    let (mut heard, mut helpers) = (String::new(), Vec::new());
    for line in BufReader::new(said).lines() {
        let line = line.map_err(|e| Failure::at("bellwether profile", e))?;
        for (verb, host) in [("server", 1), ("worker", arguments.worker(0))] {
            if let Some((_, invitation)) = line.split_once(&format!("bellwether {verb} ")) {
                let words: Vec<&str> = invitation.split(' ').collect();
                let after = |flag: &str| {
                    let place = words.iter().position(|word| *word == flag);
                    place.and_then(|place| words.get(place + 1)).copied().unwrap_or_default()
                };
                helpers.push(hosts.join(host, verb, (after("--join"), after("--token-file")))?);
            }
        }
        heard.push_str(&line);
        heard.push('\n');
    }
    let ended = child.0.wait().map_err(|e| Failure::at("bellwether profile", e))?;
    drop(helpers);
    if !ended.success() {
        return Err(Failure::at("bellwether profile", heard.trim()));
    }
    let text = std::fs::read_to_string(&output).map_err(|e| Failure::at("profile.json", e))?;
    Ok(Profile::read(&text, "profile.json")?)
}

impl Point<'_> {
    fn try_out(
        &self,
        hosts: &Namespaces,
        model: &ProfileModel,
        arguments: &AsynchronousArguments,
    ) -> Result<(Row, Outcome), Failure> {
        let (fine, queueing) = self.predict(model, arguments)?;
        let (mut runs, mut busy) = (Vec::new(), Vec::new());
        for _ in 0..arguments.repetitions {
            let (throughput, share) = self.run(hosts, arguments)?;
            runs.push(throughput);
            busy.push(share);
        }
        let (measured, busy) = (median(&runs), largest(&busy));
        let outcome = Outcome { fine: fine.examples_per_s, queueing, measured, counts: busy <= BUSY };
        let Point { rate, servers, order, workers } = self;
        let row = Row::new(format!("{rate}, {servers} servers, {order}, {workers} workers"))
            .with("fine_examples_per_s", fine.examples_per_s)
            .with("low_examples_per_s", fine.low)
            .with("high_examples_per_s", fine.high)
            .with("queueing_examples_per_s", queueing)
            .with("measured_examples_per_s", measured)
            .with("error", outcome.fine / measured - 1.0)
            .with("queueing_error", queueing / measured - 1.0)
            .with("bottleneck", fine.bottleneck.to_string())
            .with("busy", busy)
            .with("counts", outcome.counts)
            .samples("runs_examples_per_s", &runs);
        Ok((row, outcome))
    }

    /// What the fine-grained and the queueing model say.
    fn predict(
        &self,
        model: &ProfileModel,
        arguments: &AsynchronousArguments,
    ) -> Result<(Prediction, f64), Failure> {
        let failed = |why: String| Failure::at("asynchronous", why);
        let link =
            model.profile().network.map(Link::from).ok_or_else(|| failed("no link was measured".into()))?;
        let mut configuration = model.configuration(self.workers, link);
        (configuration.protocol, configuration.servers) = (Protocol::Asp, self.servers);
        let fine = model.predict_fine(&configuration, &arguments.transmission(self.order), 0)?;
        let queueing = model.predict(&model.job(), &configuration).map_err(|why| failed(why.to_string()))?;
        Ok((fine, queueing.examples_per_s))
    }

    /// Trains for a while: examples per second, and how busy the machine was.
    fn run(&self, hosts: &Namespaces, arguments: &AsynchronousArguments) -> Result<(f64, f64), Failure> {
        let listen = format!("{}:0", address(COORDINATOR));
        let job = arguments.job(self.servers, self.order);
        let mut trial = Trial::launch_at(Folder::new("bench")?, &job, self.workers, |mut command| {
            command.args(["--no-spawn", "--listen", &listen]);
            hosts.inside(COORDINATOR, &command)
        })?;
        let (endpoint, token) = trial.door()?;
        let door = (endpoint.as_str(), token.as_str());
        let _servers = (0..self.servers)
            .map(|server| hosts.join(1 + server, "server", door))
            .collect::<Result<Vec<_>, _>>()?;
        let _workers = (0..self.workers)
            .map(|worker| hosts.join(arguments.worker(worker), "worker", door))
            .collect::<Result<Vec<_>, _>>()?;
        let settling = (SETTLING * u64::from(self.workers)).div_ceil(u64::from(VIRTUAL_NODES)) + 1;
        trial.settle(self.workers as usize, settling)?;
        trial.mark()?;
        let (first, before) = (trial.committed(), processor_time());
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        let busy = busy_share(before, processor_time());
        trial.mark()?;
        let per_step = u64::from(VIRTUAL_NODES);
        let units = first * per_step..trial.committed() * per_step;
        let done = trial.units();
        Ok((throughput(done.iter().filter(|unit| units.contains(&unit.unit))), busy))
    }
}

/// Samples per second of all workers together: of each its samples over the time that its updates took.
fn throughput<'a>(units: impl Iterator<Item = &'a UnitRecord>) -> f64 {
    let mut workers: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
    for unit in units {
        let (samples, seconds) = workers.entry(unit.worker).or_default();
        *samples += unit.samples;
        *seconds += unit.duration_s;
    }
    workers.values().map(|(samples, seconds)| *samples as f64 / seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_count_where_the_prediction_tells_them_apart() {
        let outcome = |fine, measured| Outcome { fine, queueing: 1.0, measured, counts: true };
        let case = vec![outcome(2.0, 2.1), outcome(2.01, 1.9), outcome(1.5, 1.4)];
        assert_eq!(orders([&case].into_iter()), (2, 2));
        let wrong = vec![outcome(2.0, 1.3), outcome(1.5, 1.4)];
        let busy = vec![outcome(2.0, 1.3), Outcome { counts: false, ..outcome(1.5, 1.4) }];
        assert_eq!(orders([&case, &wrong, &busy].into_iter()), (3, 2));
    }
}
