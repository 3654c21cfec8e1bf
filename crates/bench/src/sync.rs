//! `sync`: what it does to a job's accuracy and time who waits for whom.

use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::Report;
use super::trial::{Outcome, Trial};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

mod accuracy;
mod stragglers;
mod tasks;
mod time;

/// Workers of every run, each with a virtual node.
const WORKERS: u32 = 8;

#[derive(Debug, Args)]
pub(super) struct SyncArguments {
    /// What to measure
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = ["accuracy", "rules", "time", "stragglers", "stragglers-accuracy"],
          default_value = "accuracy,rules,time,stragglers,stragglers-accuracy")]
    parts: Vec<String>,
    /// What is learnt where accuracy is measured
    #[arg(long, value_name = "TASK,…", value_delimiter = ',', value_parser = ["digits", "teacher"],
          default_value = "digits,teacher")]
    tasks: Vec<String>,
    /// Runs of each case of accuracy, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=100))]
    seeds: u64,
    /// Runs of each case of time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Steps of a run on the synthetic device
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(64..))]
    steps: u64,
    /// What is left of a worker's speed where accuracy is measured: most of the time it sleeps, so that two
    /// cores do for all
    #[arg(long, value_name = "SPEED", default_value_t = 0.05)]
    pace: f64,
    /// What becomes of the momentum in asynchronous steps, where accuracy is measured
    #[arg(long, value_name = "RULE", value_parser = ["keep", "scale", "zero"], default_value = "keep")]
    momentum: String,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &SyncArguments, printer: &Printer) -> Result<Report, Failure> {
    let SyncArguments { parts, tasks, seeds, rounds, steps, pace, momentum, .. } = arguments;
    let settings = json!({
        "parts": parts, "tasks": tasks, "seeds": seeds, "rounds": rounds, "steps": steps, "pace": pace, "momentum": momentum,
        "workers": WORKERS, "virtual_nodes": WORKERS, "nodes_per_update": 1,
    });
    let mut report = Report::begin("sync", settings, &[]);
    for part in parts {
        match part.as_str() {
            "accuracy" => accuracy::measure(arguments, &mut report, printer)?,
            "rules" => accuracy::rules(arguments, &mut report, printer)?,
            "time" => time::measure(arguments, &mut report, printer)?,
            "stragglers" => stragglers::times(arguments, &mut report, printer)?,
            _ => stragglers::accuracy(arguments, &mut report, printer)?,
        }
    }
    Ok(report)
}

/// A whole run of the job in `text`, with further options of `run`.
fn session(text: &str, options: &[String]) -> Result<Outcome, Failure> {
    let mut trial = Trial::launch_at(Folder::new("bench")?, text, WORKERS, |mut command| {
        command.args(options).arg("--replace-stragglers=0");
        command
    })?;
    trial.outcome()
}

/// The option that sets `key` of the job's table `[sync]`.
fn set(key: &str, value: &str) -> [String; 2] {
    ["--set".into(), format!("sync.{key}={value}")]
}
