//! `scaling`: predicts the throughput of 1, 2, … workers from a profile, and measures it beside, on
//! hosts of our own with shaped links.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use bellwether_core::ParseError;
use bellwether_core::job::WorkerRange;
use bellwether_core::prediction::{Configuration, Link, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_core::units::Bytes;
use bellwether_model::predict::ProfileModel;
use clap::Args;
use serde_json::json;

use super::jobs::{ENDLESS, Synthetic};
use super::namespaces::{self, Guard, Namespaces, Queues, address};
use super::report::{Report, Row};
use super::statistics::{largest, mean, median};
use super::trial::Trial;
use super::{OutputArguments, published};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use crate::programs::bellwether;

#[derive(Debug, Args)]
pub(super) struct ScalingArguments {
    /// Rates of the links, as `tc` writes them, each with the numbers of workers to try
    #[arg(long, value_name = "RATE:MIN..MAX,…", value_delimiter = ',', value_parser = point,
          default_value = "100mbit:1..8,1gbit:1..2")]
    points: Vec<(String, WorkerRange)>,
    /// Milliseconds that one of the 8 virtual nodes takes
    #[arg(long, value_name = "MS", default_value_t = 50)]
    step_ms: u64,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value_t = PARAMETERS)]
    parameters: Bytes,
    /// Who waits for whom: `bsp`, or `local:H`, of which a measurement has whole rounds
    #[arg(long, value_name = "PROTOCOL", value_parser = together, default_value = "bsp")]
    policy: Protocol,
    /// Measurements of each point
    #[arg(long, value_name = "N", default_value_t = 5)]
    windows: u32,
    /// Steps of each measurement
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Virtual nodes: the most workers that can share them.
const VIRTUAL_NODES: u32 = 8;

/// Steps after a newcomer that do not count.
const SETTLING_STEPS: u64 = 4;

/// Share of the machine's time beyond which it, and not the links, is measured.
const BUSY: f64 = 0.7;

/// What was set before anything was measured: at every point, and on average.
const WORST: f64 = 0.10;
const MEAN: f64 = 0.05;

pub(super) fn measure(arguments: &ScalingArguments, printer: &Printer) -> Result<Report, Failure> {
    if let Some(why) = namespaces::missing() {
        return Err(Failure::at("scaling", format!("skipped: {why}")));
    }
    let job = Synthetic {
        step_ms: arguments.step_ms,
        parameters: arguments.parameters,
        virtual_nodes: VIRTUAL_NODES,
        steps: ENDLESS,
        adam: false,
    };
    let text = format!("{}[sync]\npolicy = \"{}\"\n", job.text(), arguments.policy);
    let settings = json!({
        "step_ms": arguments.step_ms, "parameters_bytes": arguments.parameters.0, "virtual_nodes": VIRTUAL_NODES,
        "points": arguments.points.iter().map(|(rate, workers)| format!("{rate}:{workers}")).collect::<Vec<_>>(),
        "policy": arguments.policy, "windows": arguments.windows, "steps_per_window": arguments.steps,
    });
    let mut report = Report::begin("scaling", settings, published::SCALING);
    let mut errors = Vec::new();
    for (rate, workers) in &arguments.points {
        let most = workers.max;
        if workers.min == 0 || most > VIRTUAL_NODES {
            let what = format!("{workers}: choose from 1 to {VIRTUAL_NODES} workers");
            return Err(Failure::at("--points", what));
        }
        let hosts = Namespaces::create(most.max(2), rate, Queues::One)?;
        printer.note(format_args!("{rate}: a profile from one worker and a link"));
        let profile = profiled(&hosts, &text)?;
        printer.note(format_args!("{rate}: {workers} workers"));
        errors.extend(points(&mut report, &hosts, (rate, *workers), &text, profile, arguments)?);
    }
    if !errors.is_empty() {
        report.at_most("largest error of a point that counts", "", largest(&errors), WORST);
        report.at_most("mean error of the points that count", "", mean(&errors), MEAN);
    }
    report.note(
        "Each host is a network namespace whose link is shaped in both directions by a token bucket. The profile has \
         the steps of one worker and a bulk measurement of one link; the prediction knows nothing else. A window's \
         throughput is its samples over the time of its steps; measured is the median window. A point during which \
         the machine was busier than the limit is shown and does not count.",
    );
    Ok(report)
}

/// Runs `bellwether profile` between the first two hosts.
fn profiled(hosts: &Namespaces, text: &str) -> Result<Profile, Failure> {
    let folder = Folder::new("bench")?;
    let (file, output) = (folder.write("job.toml", text)?, folder.path().join("profile.json"));
    let mut command = bellwether()?;
    command.arg("profile").arg(file).args(["--steps", "30", "--peer-by-hand", "--listen"]);
    command.arg(format!("{}:0", address(0))).arg("-o").arg(&output);
    let child = hosts.inside(0, &command).stderr(Stdio::piped()).spawn();
    let mut child = Guard(child.map_err(|e| Failure::at("bellwether profile", e))?);
    let said = child.0.stderr.take().ok_or_else(|| Failure::at("bellwether profile", "has no stderr"))?;
    let (mut heard, mut peer) = (String::new(), None);
    for line in BufReader::new(said).lines() {
        let line = line.map_err(|e| Failure::at("bellwether profile", e))?;
        if let Some((_, invitation)) = line.split_once("bellwether worker ") {
            let words: Vec<&str> = invitation.split(' ').collect();
            let after = |flag: &str| {
                let place = words.iter().position(|word| *word == flag);
                place.and_then(|place| words.get(place + 1)).copied().unwrap_or_default()
            };
            peer = Some(hosts.join(1, "worker", (after("--join"), after("--token-file")))?);
        }
        heard.push_str(&line);
        heard.push('\n');
    }
    let ended = child.0.wait().map_err(|e| Failure::at("bellwether profile", e))?;
    drop(peer);
    if !ended.success() {
        return Err(Failure::at("bellwether profile", heard.trim()));
    }
    let text = std::fs::read_to_string(&output).map_err(|e| Failure::at("profile.json", e))?;
    Ok(Profile::read(&text, "profile.json")?)
}

/// Measures every number of workers; returns the errors of the points that count.
fn points(
    report: &mut Report,
    hosts: &Namespaces,
    (rate, workers): (&str, WorkerRange),
    text: &str,
    profile: Profile,
    arguments: &ScalingArguments,
) -> Result<Vec<f64>, Failure> {
    let network =
        profile.network.ok_or_else(|| Failure::at("scaling", "the profile has no measured link"))?;
    let (model, link) = (ProfileModel::new(profile)?, Link::from(network));
    let listen = format!("{}:0", address(0));
    let mut errors = Vec::new();
    for count in workers.min..=workers.max {
        let mut trial = Trial::launch_at(Folder::new("bench")?, text, count, |mut command| {
            command.args(["--no-spawn", "--listen", &listen]);
            hosts.inside(0, &command)
        })?;
        let (endpoint, token) = trial.door()?;
        let _workers = (0..count)
            .map(|host| hosts.join(host, "worker", (&endpoint, &token)))
            .collect::<Result<Vec<_>, _>>()?;
        trial.settle(count as usize, SETTLING_STEPS)?;
        let mut windows = Vec::new();
        let busy_before = processor_time();
        for _ in 0..arguments.windows {
            windows.push(window(&mut trial, arguments.steps)?);
        }
        let busy = busy_share(busy_before, processor_time());
        let measured = median(&windows);
        let predicted = model
            .predict(
                &model.job(),
                &Configuration { protocol: arguments.policy, ..model.configuration(count, link) },
            )
            .map_err(|why| Failure::at("scaling", why))?;
        let error = predicted.examples_per_s / measured - 1.0;
        let counts = busy <= BUSY;
        if counts {
            errors.push(error.abs());
        }
        report.row(
            Row::new(format!("{rate}, {count} workers"))
                .with("predicted_examples_per_s", predicted.examples_per_s)
                .with("low_examples_per_s", predicted.low)
                .with("high_examples_per_s", predicted.high)
                .with("measured_examples_per_s", measured)
                .with("error", error)
                .with("bottleneck", predicted.bottleneck.to_string())
                .with("busy", busy)
                .with("counts", counts)
                .samples("windows_examples_per_s", &windows),
        );
    }
    Ok(errors)
}

/// Samples per second of the next steps.
fn window(trial: &mut Trial, steps: u64) -> Result<f64, Failure> {
    trial.mark()?;
    let first = trial.committed();
    trial.wait("a window", |trial| (trial.committed() >= first + steps).then_some(()))?;
    let lines = trial.steps();
    let inside = lines.iter().filter(|line| (first..first + steps).contains(&line.step));
    let (steps, seconds) =
        inside.fold((0, 0.0), |(steps, seconds), line| (steps + line.steps(), seconds + line.duration_s));
    Ok(f64::from(VIRTUAL_NODES) * steps as f64 / seconds)
}

/// Busy and total time of all processors since the machine started, in ticks.
pub(super) fn processor_time() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let total: f64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3).unwrap_or(&0.0) + ticks.get(4).unwrap_or(&0.0);
    (total - idle, total)
}

pub(super) fn busy_share(before: (f64, f64), after: (f64, f64)) -> f64 {
    (after.0 - before.0) / (after.1 - before.1).max(1.0)
}

/// A protocol by which all wait for all.
fn together(text: &str) -> Result<Protocol, ParseError> {
    let protocol: Protocol = text.parse()?;
    match protocol.waits_for_all() {
        true => Ok(protocol),
        false => Err(ParseError::new("protocol", text, "bsp, or local:H (for example local:10)")),
    }
}

/// A rate as `tc` writes it, and numbers of workers: `100mbit:1..8`.
pub(super) fn point(text: &str) -> Result<(String, WorkerRange), ParseError> {
    let wrong = || ParseError::new("point", text, "RATE:WORKERS, for example 100mbit:1..8");
    let (rate, workers) = text.split_once(':').ok_or_else(wrong)?;
    let workers = workers.parse().map_err(|_| wrong())?;
    if !rate.ends_with("bit") || !rate.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(wrong());
    }
    Ok((rate.into(), workers))
}

/// The size of the vector by default: large enough for the slow links to matter.
pub(super) const PARAMETERS: Bytes = Bytes(1 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read() {
        assert_eq!(point("100mbit:1..8"), Ok(("100mbit".into(), WorkerRange { min: 1, max: 8 })));
        assert!(point("100mbit").is_err() && point("fast:2").is_err() && point("1gbit:x").is_err());
    }

    #[test]
    fn a_machine_that_did_nothing_was_not_busy() {
        assert_eq!(busy_share((10.0, 100.0), (10.0, 300.0)), 0.0);
        assert_eq!(busy_share((10.0, 100.0), (110.0, 300.0)), 0.5);
    }
}
