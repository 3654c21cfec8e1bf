//! `bellwether suspend`, `resume`, `cancel`, `policy`, and `scale` of a served job.

use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_sched::policy::CATALOGUE;
use bellwether_serve::snapshot::JobState;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use ureq::http::Method;

use super::args::{DaemonArguments, ServedArguments};
use super::daemon::{self, Daemon};
use super::submit::weight;
use super::{follow, words};
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct ActArguments {
    /// Names of the jobs
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    /// The policy that shall decide from now on, for example srtf or las2d:3600 [default: show the one that decides]
    #[arg(value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleArguments {
    #[command(flatten)]
    pub(crate) served: ServedArguments,
    /// Workers wanted from now on; of a served job also a range, within which its policy chooses
    #[arg(long, value_name = "N|MIN..MAX", required_unless_present = "priority")]
    pub(crate) workers: Option<WorkerRange>,
    /// Its share against those of others from now on, of a served job
    #[arg(long, value_name = "W", value_parser = weight)]
    pub(crate) priority: Option<f64>,
}

/// What is done with jobs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// It waits until it is resumed.
    Suspend,
    /// It may run again.
    Resume,
    /// It ends.
    Cancel,
}

pub(crate) fn act(act: Act, arguments: &ActArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = Daemon::find(&arguments.daemon, printer)?;
    let rest = match act {
        Act::Suspend => "/suspend",
        Act::Resume => "/resume",
        Act::Cancel => "/cancel",
    };
    let table = arguments.daemon.state.format == Format::Table;
    let (mut changed, mut failure) = (Vec::new(), None);
    for name in &arguments.jobs {
        match daemon.of_job(&Method::POST, name, rest, None) {
            Ok(job) => {
                if table {
                    printer.out(told(&job));
                }
                changed.push(job);
            }
            // The others are asked for all the same.
            Err(trouble) => {
                if let Some(failure) = failure.replace(Failure::from(trouble)) {
                    printer.error(&failure);
                }
            }
        }
    }
    if !table && !changed.is_empty() {
        printer.out(daemon::json(&changed)?);
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn told(job: &JobState) -> String {
    format!("{} is {}", job.name, job.state.name())
}

/// The policy that decides.
#[derive(Debug, Deserialize)]
struct Chosen {
    policy: String,
}

pub(crate) fn policy(arguments: &PolicyArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = Daemon::find(&arguments.daemon, printer)?;
    let Chosen { policy } = match &arguments.policy {
        Some(policy) => daemon.send(&Method::PUT, "/v1/policy", Some(&json!({ "policy": policy })))?,
        None => daemon.get("/v1/policy")?,
    };
    if arguments.daemon.state.format == Format::Json {
        printer.out(json!({ "policy": policy }));
        return Ok(ExitCode::SUCCESS);
    }
    let name = policy.split(':').next().unwrap_or(&policy);
    match CATALOGUE.iter().find(|about| about.name == name) {
        Some(about) => printer.out(format_args!("{policy}: {}\n    bad when {}", about.idea, about.bad_when)),
        None => printer.out(policy),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn scale(arguments: &ScaleArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let ScaleArguments { served, workers, priority } = arguments;
    if let Some((daemon, job)) = follow::served(served, printer)? {
        let mut limits = json!({});
        if let Some(workers) = workers {
            limits["workers"] = json!(workers);
        }
        if let Some(weight) = priority {
            limits["weight"] = json!(weight);
        }
        let job = daemon.of_job(&Method::PATCH, &job.name, "", Some(&limits))?;
        match served.daemon.state.format {
            Format::Json => printer.out(daemon::json(&job)?),
            Format::Table => printer.out(format_args!(
                "{} may have {} workers, priority {}; the policy gives it {}",
                job.name,
                words::limits(&job),
                job.weight,
                job.target_workers
            )),
        }
        return Ok(ExitCode::SUCCESS);
    }
    match (workers, priority) {
        (Some(workers), None) if workers.min == workers.max => {
            by_hand::scale(&served.job, &served.daemon.state, workers.max, printer)
        }
        (_, Some(_)) => Err(alone("--priority", "a run by hand has no others beside it")),
        _ => Err(alone("--workers", "a run by hand has one number of workers")),
    }
}

fn alone(flag: &str, what: &str) -> Failure {
    InputError::new(flag, what)
        .hint("write --workers N; only a daemon chooses within a range, or by priority")
        .into()
}
