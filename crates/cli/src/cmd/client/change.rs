//! `bellwether stop`, `resume`, `cancel`, `policy` and `scale`.

use std::path::Path;
use std::process::ExitCode;
use std::slice::from_ref;

use bellwether_client::Act;
use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_render::json_line;
use bellwether_runtime::inference;
use bellwether_runtime::run_dir::RunDir;
use bellwether_sched::registry::Registry;
use bellwether_serve::api::body::{Limits, Workers};
use bellwether_serve::snapshot::JobState;
use clap::Args;
use serde_json::{Value, json};

use super::args::{DaemonArguments, JobArguments};
use super::connect;
use super::submit::weight;
use super::target::{Places, Target, ours};
use super::words;
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
    pub(crate) job: JobArguments,
    /// Workers wanted from now on; of a daemon's job also a range, within which its policy chooses
    #[arg(long, value_name = "N|MIN..MAX", required_unless_present = "priority")]
    pub(crate) workers: Option<WorkerRange>,
    /// Its share against those of others from now on, of a daemon's job
    #[arg(long, value_name = "W", value_parser = weight)]
    pub(crate) priority: Option<f64>,
}

/// What came of it.
enum Done {
    /// Its daemon did it.
    Served(Box<JobState>),
    /// The coordinator of a run by hand, or this process, did it and says so.
    ByHand { run: String, message: String },
    /// A run by hand that this process is to take up.
    Resumes(String),
}

/// What is left to do.
pub(crate) enum Left {
    /// Nothing.
    Nothing(ExitCode),
    /// This run is to be taken up by this process.
    Resume(String),
}

pub(crate) fn act(act: Act, arguments: &ActArguments, printer: &Printer) -> Result<Left, Failure> {
    let places = Places::of(&arguments.daemon, &arguments.jobs, printer)?;
    let table = arguments.daemon.state.format == Format::Table;
    let (mut values, mut failure) = (Vec::<Value>::new(), None);
    for name in &arguments.jobs {
        match one(act, name, &places, printer) {
            Ok(Done::Resumes(run)) if arguments.jobs.len() == 1 => return Ok(Left::Resume(run)),
            Ok(Done::Resumes(run)) => complain(&mut failure, alone_in_front(&run), printer),
            Ok(done) if table => printer.out(match done {
                Done::Served(job) => told(&job),
                Done::ByHand { message, .. } | Done::Resumes(message) => message,
            }),
            Ok(Done::Served(job)) => values.push(json!(job)),
            Ok(Done::ByHand { run, message }) => values.push(json!({ "run": run, "message": message })),
            // The others are asked for all the same.
            Err(trouble) => complain(&mut failure, trouble, printer),
        }
    }
    if !values.is_empty() {
        printer.out(json_line(&values));
    }
    failure.map_or(Ok(Left::Nothing(ExitCode::SUCCESS)), Err)
}

/// Keeps the last failure for the exit code, and shows those before.
fn complain(failure: &mut Option<Failure>, next: Failure, printer: &Printer) {
    if let Some(failure) = failure.replace(next) {
        printer.error(&failure);
    }
}

fn alone_in_front(run: &str) -> Failure {
    let error =
        InputError::new(run, "a run that was started by hand goes on in the foreground, one at a time");
    error.hint(format!("`bellwether resume {run}`, or `bellwether run --resume {run} --detach`")).into()
}

/// Does it with one job.
fn one(act: Act, name: &str, places: &Places<'_>, printer: &Printer) -> Result<Done, Failure> {
    let target = match &places.daemon {
        Some(daemon) => {
            let ask = |name: &str| daemon.act(act, name);
            match ask(name) {
                Ok(job) => Target::Served(Box::new(job)),
                Err(error) => places.without(error, name, printer, ask)?,
            }
        }
        None => Target::ByHand(places.run(name)?),
    };
    let run = match target {
        Target::Served(job) => return Ok(Done::Served(job)),
        // What stands still by hand, the next daemon takes for suspended.
        Target::ByHand(run) if act == Act::Suspend => run,
        Target::ByHand(run) => ours(run)?,
    };
    match act {
        Act::Suspend => Ok(Done::ByHand { message: by_hand::stop(&run)?, run: run.name }),
        Act::Resume => Ok(Done::Resumes(name.to_owned())),
        Act::Cancel => {
            let hint = format!(
                "`bellwether stop {0}` stops it with a checkpoint, `bellwether rm {0}` removes what is stopped",
                run.name
            );
            Err(InputError::new(run.name, "no daemon serves this job: it was started by hand")
                .hint(hint)
                .into())
        }
    }
}

fn told(job: &JobState) -> String {
    format!("{} is {}", job.name, job.state.name())
}

pub(crate) fn policy(arguments: &PolicyArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = connect::find(&arguments.daemon, printer)?;
    let policy = match &arguments.policy {
        Some(policy) => daemon.set_policy(policy)?,
        None => daemon.policy()?,
    };
    if arguments.daemon.state.format == Format::Json {
        printer.out(json!({ "policy": policy }));
        return Ok(ExitCode::SUCCESS);
    }
    let name = policy.split(':').next().unwrap_or(&policy);
    match Registry::built_in().find(name) {
        Some(about) => printer.out(format_args!("{policy}: {}\n    bad when {}", about.idea, about.bad_when)),
        None => printer.out(policy),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn scale(arguments: &ScaleArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let ScaleArguments { job: JobArguments { job: asked, daemon: where_to }, workers, priority } = arguments;
    let format = where_to.state.format;
    if asked.ends_with(".infer") && Path::new(asked).is_dir() {
        let (Some(workers), None) = (workers.filter(|workers| workers.min == workers.max), priority) else {
            return Err(alone("--workers", "an inference has one number of workers"));
        };
        let message = inference::coordinator::scale(&RunDir::at(asked), workers.max)?;
        match format {
            Format::Json => printer.out(json!({ "run": asked, "message": message })),
            Format::Table => printer.out(message),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let places = Places::of(where_to, from_ref(asked), printer)?;
    let run = match places.find(asked, printer)? {
        Target::Served(job) => {
            let limits = Limits { workers: workers.map(Workers), weight: *priority };
            let job = connect::find(where_to, printer)?.limit(&job.name, &limits)?;
            match format {
                Format::Json => printer.out(json_line(&job)),
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
        Target::ByHand(run) => run,
    };
    let message = match (workers, priority) {
        (Some(workers), None) if workers.min == workers.max => by_hand::scale(&run, workers.max)?,
        (_, Some(_)) => return Err(alone("--priority", "a run by hand has no others beside it")),
        _ => return Err(alone("--workers", "a run by hand has one number of workers")),
    };
    match format {
        Format::Json => printer.out(json!({ "run": run.name, "message": message })),
        Format::Table => printer.out(message),
    }
    Ok(ExitCode::SUCCESS)
}

fn alone(flag: &str, what: &str) -> Failure {
    InputError::new(flag, what)
        .hint("write --workers N; only a daemon chooses within a range, or by priority")
        .into()
}
