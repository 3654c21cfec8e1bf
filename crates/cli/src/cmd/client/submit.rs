//! `bellwether submit`: gives jobs to a daemon.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_client::{Client, ClientError};
use bellwether_core::deadline::Deadline;
use bellwether_core::job::{SyncPolicy, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_core::{InputError, ParseError};
use bellwether_render::json_line;
use bellwether_render::table::facts;
use bellwether_serve::api::body::{self, Pods, Submit, Workers};
use bellwether_serve::provision::Provision;
use bellwether_serve::secret::Secret;
use bellwether_serve::snapshot::JobState;
use bellwether_session::machines::ProviderKind;
use bellwether_session::{Session, apply_plan};
use clap::Args;

use known::Known;

use super::args::DaemonArguments;
use super::{connect, follow, words};
use crate::failure::Failure;
use crate::job::{self, Opened, Purpose, ScriptArguments};
use crate::options::{Format, assignment, provider};
use crate::outlook;
use crate::printer::Printer;
use crate::runs::StateDir;
use crate::session::build_of;

mod known;

#[derive(Debug, Args)]
pub(crate) struct SubmitArguments {
    /// The job files, or Python scripts that declare their jobs
    #[arg(required = true, value_name = "JOB.toml|SCRIPT.py")]
    pub(crate) jobs: Vec<PathBuf>,
    /// Name of the job [default: the job file's, and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Its share against those of others; the policy `priority` puts the highest first
    #[arg(long, value_name = "W", default_value_t = 1.0, value_parser = weight)]
    pub(crate) priority: f64,
    /// Its queue, where the daemon's slots are divided (`bellwether queues` lists them) [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// By when it should be done: within a time, or at a moment such as 2026-11-21T18:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<Deadline>,
    /// Numbers of workers that it may have [default: the job file's]
    #[arg(long, value_name = "N|MIN..MAX", conflicts_with_all = ["min", "max"])]
    pub(crate) workers: Option<WorkerRange>,
    /// What was measured of the job before: a profile, a fitted model, or a run by name or folder; the daemon's first
    /// decisions about it rest on that
    #[arg(long, value_name = "PROFILE.json|FITTED.json|RUN")]
    pub(crate) profile: Option<PathBuf>,
    /// Who may wait for whom: bsp, asp, ssp:K, gossip, local:H; of several, the job's first start decides, by its
    /// profile [default: the job file's]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    pub(crate) protocols: Vec<SyncPolicy>,
    /// Parameter servers that it may have; of several numbers, its first start decides, by its profile [default: the
    /// job file's]
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) servers: Option<WorkerRange>,
    /// Train on machines of the job's own, which this plan chose, instead of the daemon's slots
    #[arg(long, value_name = "PLAN.json", requires = "provision",
        conflicts_with_all = ["workers", "min", "max", "deadline", "profile", "protocols", "servers", "profile_first", "queue"])]
    pub(crate) plan: Option<PathBuf>,
    /// Who gives those machines: the daemon obtains them at once, and gives them back when the job stops or ends
    #[arg(long, value_name = "here|slurm|kubernetes|skypilot", value_parser = provider, requires = "plan")]
    pub(crate) provision: Option<ProviderKind>,
    /// Address and port of the daemon's machine where those machines find the job's coordinator
    #[arg(long, value_name = "ADDRESS:PORT", requires = "provision")]
    pub(crate) listen: Option<SocketAddr>,
    /// Let the daemon profile each job before it trains, on one slot, for about a minute
    #[arg(long, conflicts_with = "profile")]
    pub(crate) profile_first: bool,
    /// Optimizer steps, instead of the job file's length
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Fewest workers that it may have [default: the job file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) min: Option<u32>,
    /// Most workers that it may have [default: the job file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max: Option<u32>,
    /// Set a key of the job file, for example optimizer.learning_rate=0.05
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// Submit each job this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Tell how far they are until all have ended; exit code 1 when one failed or was cancelled
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Show what would be submitted and its size; submit nothing
    #[arg(long, conflicts_with = "follow")]
    pub(crate) dry_run: bool,
    /// Image of its pods on Kubernetes, which holds what a script imports [default: the operator's own]
    #[arg(long, value_name = "IMAGE", requires = "kubernetes")]
    pub(crate) image: Option<String>,
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

pub(super) fn weight(text: &str) -> Result<f64, ParseError> {
    let weight: f64 = text.parse().map_err(|_| ParseError::new("weight", text, "a number above 0"))?;
    if weight.is_finite() && weight > 0.0 {
        Ok(weight)
    } else {
        Err(ParseError::out_of_range("weight", text, "a number above 0"))
    }
}

pub(crate) fn submit(arguments: &SubmitArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if arguments.name.is_some() && (arguments.jobs.len() > 1 || arguments.count > 1) {
        let error = InputError::new("--name", "several jobs cannot have one name");
        return Err(error.hint("leave it out: each job gets the name of its file and a number").into());
    }
    if arguments.listen.is_some_and(|address| address.port() != 0)
        && (arguments.jobs.len() > 1 || arguments.count > 1)
    {
        let error = InputError::new("--listen", "several jobs cannot listen at one address");
        return Err(error.hint("submit them one by one, each with a port of its own").into());
    }
    // All are read before one is sent.
    let plan = arguments.plan.as_deref().map(job::read_plan).transpose()?;
    let mut jobs = Vec::new();
    for path in &arguments.jobs {
        jobs.push(read(path, arguments, plan.as_ref())?);
    }
    let deadline_s = arguments.deadline.map(|deadline| deadline.left_s(words::now_s()));
    let deadline_s = deadline_s.transpose().map_err(|why| InputError::new("--deadline", why))?;
    if arguments.dry_run && arguments.daemon.kubernetes {
        return manifests(&jobs, arguments, deadline_s, printer);
    }
    if arguments.dry_run {
        return dry_run(&jobs, arguments, printer);
    }
    let known = arguments.profile.as_deref().map(|path| known::read(path, arguments)).transpose()?;
    let daemon = connect::find(&arguments.daemon, printer)?;
    let table = arguments.daemon.state.format == Format::Table;
    let mut accepted: Vec<JobState> = Vec::new();
    let mut wrong = None;
    let each = jobs.iter().flat_map(|job| (0..arguments.count).map(move |_| job));
    for job in each {
        match send(&daemon, job, arguments, deadline_s, known.as_ref()) {
            Ok(job) => {
                if table {
                    printer.out(told(&job));
                }
                accepted.push(job);
            }
            Err(failure) => {
                wrong = Some(failure);
                break;
            }
        }
    }
    if let Some(failure) = wrong {
        // They are accepted, whatever happened after them.
        if !table && !accepted.is_empty() {
            printer.out(json_line(&accepted));
        }
        if !accepted.is_empty() {
            printer.note(format_args!("{} accepted before this:", count(accepted.len())));
        }
        return Err(failure);
    }
    if arguments.follow {
        return to_the_end(arguments, &accepted, printer);
    }
    if !table {
        printer.out(json_line(&accepted));
    }
    Ok(ExitCode::SUCCESS)
}

/// A job that was read.
struct Read<'p> {
    path: &'p Path,
    opened: Opened,
    /// What its pods need, where it is to have any.
    pods: Option<Pods>,
    plan: Option<&'p Plan>,
}

/// Reads a job, with what the command line and a plan say instead.
fn read<'p>(
    path: &'p Path,
    arguments: &SubmitArguments,
    plan: Option<&'p Plan>,
) -> Result<Read<'p>, Failure> {
    let (mut opened, pods) = open(path, arguments)?;
    if let Some(steps) = arguments.steps {
        opened = opened
            .edit(|job| (job.steps, job.epochs) = (Some(steps), None))
            .map_err(|error| InputError { place: format!("--{}", error.place), ..error })?;
    }
    if let Some(plan) = plan {
        opened.job = apply_plan(plan, opened.job, None)?;
    }
    Ok(Read { path, opened, pods, plan })
}

/// Reads a job, and what its pods need.
fn open(path: &Path, arguments: &SubmitArguments) -> Result<(Opened, Option<Pods>), Failure> {
    if !arguments.daemon.kubernetes {
        return Ok((job::open(path, &arguments.script, &arguments.set, Purpose::Declare)?, None));
    }
    let (job, script) = job::for_pods(path, &arguments.script, &arguments.set)?;
    let pods = Pods { image: arguments.image.clone(), script };
    Ok((Opened { job, trained: None, lead: None }, Some(pods)))
}

/// Shows the objects that would be created, for `kubectl create -f -`.
fn manifests(
    jobs: &[Read<'_>],
    arguments: &SubmitArguments,
    deadline_s: Option<f64>,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let known = arguments.profile.as_deref().map(|path| known::read(path, arguments)).transpose()?;
    let daemon = connect::find(&arguments.daemon, printer)?;
    for job in jobs {
        let submission = submission(job, arguments, deadline_s, known.as_ref(), None)?;
        let manifest = daemon.manifest(&submission).map_err(|error| refused(job.path, error))?;
        printer.out(format_args!("{manifest:#}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what would be submitted, and what a daemon that runs says of it: its policy may give each job less than it
/// allows.
fn dry_run(jobs: &[Read<'_>], arguments: &SubmitArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = connect::look(&arguments.daemon, printer)?;
    let known = daemon.as_ref().zip(arguments.name.as_deref()).map(|(daemon, name)| daemon.job(name));
    if let Some(Ok(job)) = known {
        let error = InputError::new("--name", format!("the daemon has a job `{}`", job.name));
        return Err(error.hint("choose another name, or leave it out").into());
    }
    for Read { opened, .. } in jobs {
        let job = &opened.job;
        let range = workers(job.workers, arguments)?.unwrap_or(job.workers);
        let session =
            Session::builder(job.clone()).workload(build_of(opened.trained.as_ref())).workers(range);
        let session = match &arguments.daemon.state.state_dir {
            Some(folder) => session.state_dir(StateDir::find(Some(folder.clone()))?),
            None => session,
        };
        outlook::print(&session.outlook()?, arguments.daemon.state.format, printer);
    }
    match daemon.map(|daemon| daemon.cluster()) {
        Some(Ok(cluster)) => printer.note(outlook::daemon(&cluster)),
        Some(Err(error)) => printer.note(format_args!("note: {error}")),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn count(jobs: usize) -> String {
    if jobs == 1 { "1 job was".into() } else { format!("{jobs} jobs were") }
}

fn told(job: &JobState) -> String {
    let late = match (job.deadline_s, job.expected_end_s) {
        (Some(deadline_s), Some(end_s)) if end_s > deadline_s => "; it is expected to miss its deadline",
        _ => "",
    };
    format!("{} is {}{late}", job.name, job.state.name())
}

/// Sends a job. The random key makes sure that it is accepted once, however often it is sent.
fn send(
    daemon: &Client,
    job: &Read<'_>,
    arguments: &SubmitArguments,
    deadline_s: Option<f64>,
    known: Option<&Known>,
) -> Result<JobState, Failure> {
    let key = Secret::random().map_err(|error| Failure::at("random key", error))?.to_text();
    let submission = submission(job, arguments, deadline_s, known, Some(key))?;
    daemon.submit(&submission).map_err(|error| refused(job.path, error))
}

fn submission(
    Read { opened: Opened { job, .. }, pods, plan, .. }: &Read<'_>,
    arguments: &SubmitArguments,
    deadline_s: Option<f64>,
    known: Option<&Known>,
    key: Option<String>,
) -> Result<Submit, Failure> {
    Ok(Submit {
        job: Some((**job).clone()),
        name: arguments.name.clone(),
        workers: workers(job.workers, arguments)?.map(Workers),
        priority: Some(arguments.priority),
        deadline: deadline_s.map(body::Deadline),
        profile: known.and_then(Known::profile),
        rates: known.map_or_else(|| Ok(Vec::new()), |known| known.rates(job))?,
        protocols: arguments.protocols.clone(),
        servers: arguments.servers.map(Workers),
        profile_first: arguments.profile_first,
        queue: arguments.queue.clone(),
        provision: plan.zip(arguments.provision).map(|(plan, kind)| Provision {
            provider: kind.name().to_owned(),
            plan: Box::new(plan.clone()),
            listen: arguments.listen,
        }),
        pods: pods.clone().filter(|pods| *pods != Pods::default()),
        key,
        ..Submit::default()
    })
}

/// What is wrong with a job, in the words of its file.
fn refused(path: &Path, error: ClientError) -> Failure {
    match error {
        ClientError::Refused { status: 422 | 409, error } => {
            let place = error.place.trim_start_matches("body, ").trim_matches('`');
            let place = place.trim_start_matches("job.");
            InputError { place: format!("{}: {place}", path.display()), ..error }.into()
        }
        error => error.into(),
    }
}

/// The limits that were asked for here; one of them moves the other one of the job file where they contradict.
fn workers(file: WorkerRange, arguments: &SubmitArguments) -> Result<Option<WorkerRange>, InputError> {
    let range = match (arguments.min, arguments.max) {
        (None, None) => return Ok(arguments.workers),
        (Some(min), Some(max)) if min > max => {
            let what = format!("{min} workers at least and {max} at most");
            return Err(InputError::new("--min, --max", what).hint("give the smaller number to --min"));
        }
        (min, max) => WorkerRange {
            min: min.unwrap_or(file.min.min(max.unwrap_or(u32::MAX))),
            max: max.unwrap_or(file.max.max(min.unwrap_or(0))),
        },
    };
    Ok(Some(range))
}

fn to_the_end(
    arguments: &SubmitArguments,
    accepted: &[JobState],
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let names: Vec<String> = accepted.iter().map(|job| job.name.clone()).collect();
    let daemon = connect::find_patiently(&arguments.daemon, printer)?;
    let ended = daemon.follow(&names, |job| {
        if !printer.quiet {
            printer.note(words::line(job, words::now_s()));
        }
        true
    })?;
    if arguments.daemon.state.format == Format::Table {
        let now_s = words::now_s();
        let told: Vec<String> = ended.iter().map(|job| facts(&words::facts(job, now_s))).collect();
        printer.out(told.join("\n\n"));
    } else {
        printer.out(json_line(&ended));
    }
    Ok(follow::exit_code(&ended))
}
