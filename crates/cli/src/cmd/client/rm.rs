//! `bellwether rm`: removes jobs that are not running, with their folders; on Kubernetes their objects.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_client::Client;
use bellwether_core::InputError;
use bellwether_render::words::count;
use bellwether_runtime::listing::RunView;
use bellwether_serve::snapshot::JobState;
use clap::Args;
use serde_json::json;

use super::args::DaemonArguments;
use super::connect;
use super::target::{Places, Target, ours};
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};

/// How long the coordinator of a job that has ended may take to end, and one that gives machines back.
const PATIENCE: Duration = Duration::from_secs(5);
const RELEASING_PATIENCE: Duration = Duration::from_secs(120);

/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct RmArguments {
    /// Names of the jobs: each with its folder, its journal and its checkpoints there
    #[arg(required_unless_present = "all_ended", value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// All that are finished, have failed or were cancelled
    #[arg(long, conflicts_with = "jobs")]
    pub(crate) all_ended: bool,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

pub(crate) fn rm(arguments: &RmArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let places = Places::of(&arguments.daemon, &arguments.jobs, printer)?;
    let (mut removed, mut failure) = (Vec::new(), None);
    let outcomes: Vec<Result<String, Failure>> = match (&places.daemon, arguments.all_ended) {
        (Some(daemon), _) if arguments.daemon.kubernetes => on_kubernetes(arguments, daemon)?,
        (_, true) => ended(arguments, &places)?.into_iter().map(remove).collect(),
        (_, false) => {
            let runs: Vec<_> = arguments.jobs.iter().map(|name| named(name, &places, printer)).collect();
            runs.into_iter().map(|run| run.and_then(remove)).collect()
        }
    };
    for outcome in outcomes {
        match outcome {
            Ok(name) => removed.push(name),
            // The others are removed all the same.
            Err(trouble) => {
                if let Some(failure) = failure.replace(trouble) {
                    printer.error(&failure);
                }
            }
        }
    }
    match arguments.daemon.state.format {
        Format::Json => printer.out(json!({ "removed": removed })),
        Format::Table if arguments.all_ended => {
            printer.out(format_args!("{} removed", count(removed.len(), "job")));
        }
        Format::Table => removed.iter().for_each(|name| printer.out(format_args!("{name} is removed"))),
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Deletes objects: those that were named, in whatever state they are, as `kubectl delete` does.
fn on_kubernetes(arguments: &RmArguments, daemon: &Client) -> Result<Vec<Result<String, Failure>>, Failure> {
    let names = match arguments.all_ended {
        true => {
            let ended = daemon.jobs()?.into_iter().filter(|job| job.state.has_ended());
            ended.map(|job| job.name).collect()
        }
        false => arguments.jobs.clone(),
    };
    let remove = |name: &String| Ok(daemon.remove(name).map(|job| job.name)?);
    Ok(names.iter().map(remove).collect())
}

/// All that have ended and have a folder here.
fn ended(arguments: &RmArguments, places: &Places<'_>) -> Result<Vec<RunDir>, Failure> {
    let mut ended = Vec::new();
    if let Some(daemon) = &places.daemon {
        here(daemon)?;
        let jobs = daemon.jobs()?;
        ended.extend(jobs.iter().filter(|job| job.state.has_ended()).filter_map(folder));
    }
    let by_hand = |run: &RunDir| !run.is_served() && RunView::of(run).state.has_ended();
    let runs = StateDir::find(arguments.daemon.state.state_dir.clone())?.runs();
    ended.extend(runs.into_iter().filter(by_hand));
    Ok(ended)
}

/// The folder of a daemon's job, which is there even if the job never began.
fn folder(job: &JobState) -> Option<RunDir> {
    Some(RunDir::at(&job.run_dir)).filter(|run| run.path.is_dir())
}

/// A daemon elsewhere has its folders there.
fn here(daemon: &Client) -> Result<(), Failure> {
    match connect::url(daemon) {
        None => Ok(()),
        Some(url) => {
            let error = InputError::new(url, "the folders of this daemon's jobs are on its machine");
            Err(error.hint("type `bellwether rm` there").into())
        }
    }
}

fn named(name: &str, places: &Places<'_>, printer: &Printer) -> Result<RunDir, Failure> {
    let job = match places.find(name, printer)? {
        Target::ByHand(run) => return ours(run),
        Target::Served(job) => job,
    };
    places.daemon.as_ref().map_or(Ok(()), here)?;
    if !job.state.has_ended() {
        let error = InputError::new(&job.name, format!("the job is {}", job.state.name()));
        return Err(error.hint(format!("`bellwether cancel {}` ends it", job.name)).into());
    }
    let gone = || InputError::new(&job.name, "the job is removed already");
    let run = folder(&job).ok_or_else(gone)?;
    // The coordinator of a job that has ended is about to end.
    let until = Instant::now() + if job.provider.is_some() { RELEASING_PATIENCE } else { PATIENCE };
    while Instant::now() < until && run.is_alive().unwrap_or(false) {
        std::thread::sleep(LOOK);
    }
    Ok(run)
}

/// Removes a run that is not running.
fn remove(run: RunDir) -> Result<String, Failure> {
    let name = &run.name;
    let is_alive = run.is_alive().map_err(|error| Failure::at(name, error))?;
    if !is_alive && run.has_orphans()? {
        let error = InputError::new(name, "its coordinator is gone, and its workers wait for another one");
        let hint = format!("`bellwether stop {name}` ends them, `bellwether resume {name}` goes on");
        return Err(error.hint(hint).into());
    }
    if is_alive || !run.remove()? {
        let hint = format!("`bellwether stop {name}` stops it with a checkpoint");
        return Err(InputError::new(name, "the job is running").hint(hint).into());
    }
    Ok(run.name)
}
