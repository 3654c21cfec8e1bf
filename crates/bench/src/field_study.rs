//! `field-study`: predicted throughput guides the scheduler, from end to end. Kinds of jobs are profiled; policies that
//! believe the profiles schedule many jobs, in the simulator and live, beside policies that know more or less.

mod kinds;
mod live;
mod measured;
mod simulated;

use std::process::{Command, Stdio};

use clap::Args;
use serde_json::{Value, json};

use super::OutputArguments;
use super::report::Report;
use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct FieldStudyArguments {
    /// Policies in the simulator
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "fifo,equi,hell,knee,srtf,pollux"
    )]
    policies: Vec<String>,
    /// Jobs of each trace
    #[arg(long, value_name = "N", default_value_t = 180)]
    jobs: u32,
    /// Traces, each drawn with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Slots of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 32)]
    slots: u32,
    /// Slot-seconds of jobs with one worker that arrive in a second, as a share of the slots
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    load: f64,
    /// Seconds of each run from which the truth is fitted
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    run_seconds: f64,
    /// Let a daemon run real jobs of the same kinds, too
    #[arg(long)]
    live: bool,
    /// Real jobs under each policy
    #[arg(long, value_name = "N", default_value_t = 24)]
    live_jobs: u32,
    /// Policies of the daemon
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "hell,equi")]
    live_policies: Vec<String>,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &FieldStudyArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "policies": arguments.policies, "jobs": arguments.jobs, "kinds": kinds::KINDS.len(), "seeds": arguments.seeds,
        "slots": arguments.slots, "load": arguments.load, "run_seconds": arguments.run_seconds,
        "live": arguments.live, "live_jobs": arguments.live_jobs, "live_policies": arguments.live_policies,
    });
    let mut report = Report::begin("field-study", settings, &[]);
    let measured = measured::measure(&mut report, arguments.run_seconds, printer)?;
    simulated::measure(&mut report, &measured, arguments, printer)?;
    if arguments.live {
        live::measure(&mut report, &measured, arguments, printer)?;
    }
    report.note(
        "Truth is what `fit` made of real runs; a belief is what policies are told. `profile`: one profile of each kind, \
         which knows nothing of these runs. `linear`: n workers are n times as fast, and a job's work counts as \
         seconds. `none`: more workers add nothing (`power:0`). Gaps are mean completion times over those with the \
         truth, less 1; least and most are those of single traces.",
    );
    Ok(report)
}

/// What a command prints, if it succeeds.
fn said(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.map_err(|e| Failure::at("bellwether", e))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Failure::at(format!("{command:?}"), String::from_utf8_lossy(&output.stderr).trim()))
}

/// The one JSON value that it prints.
fn said_json(command: &mut Command) -> Result<Value, Failure> {
    let answer = said(command)?;
    serde_json::from_slice(&answer).map_err(|e| Failure::at(format!("{command:?}"), e))
}
