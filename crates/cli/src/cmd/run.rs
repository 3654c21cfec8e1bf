//! `bellwether run`: trains a job.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_core::record::{Mismatch, RunFailure, RunOutcome, Summary};
use bellwether_runtime::coordinator::{self, CoordinatorError, Director, Options, Spawn};
use bellwether_runtime::journal::RunHistory;

use crate::failure::Failure;
use crate::job;
use crate::options::{Format, reachable};
use crate::printer::Printer;
use crate::processes::{server_spawner, spawner};
use crate::runs::{RunDir, StateDir};
use choose::Announce;
use revocations::Provider;

mod args;
mod autoscale;
mod batch;
mod choose;
mod compare;
mod memberships;
mod planned;
mod revocations;
mod show;
mod speed;
mod steer;
mod stragglers;
mod synchronise;
mod windows;

pub(crate) use args::RunArguments;

pub(crate) fn run(arguments: RunArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let state_dir = StateDir::find(arguments.state.state_dir.clone())?;
    let resumed = arguments.resume.as_deref().map(|name| state_dir.run(name)).transpose()?;
    let plan = arguments.plan.as_deref().map(planned::read).transpose()?;
    let job = match (&resumed, &arguments.job) {
        (Some(run), _) => run.job()?,
        (None, Some(path)) => job_to_run(path, &arguments, plan.as_ref())?,
        (None, None) => return Err(Failure::at("run", "no job file is named")),
    };
    let range = arguments.workers.unwrap_or(job.workers);
    check_workers(&job, range, &arguments.resize)?;
    arguments.steer.check(range)?;
    let Outset { workers, schedule, first_step } = outset(range, resumed.as_ref(), &arguments, printer)?;
    let provider = arguments.revocation.provider()?;
    let trainee = job::describe(&job)?;
    // A run that is taken up again, or has a schedule, begins as it was told.
    let (start, price) = (arguments.steer.autoscale.start_workers, arguments.steer.autoscale.price);
    let told = resumed.is_some() || !schedule.is_empty() || arguments.no_spawn || start.is_some();
    let choose = || choose::choose(&job, &trainee, workers, price, printer);
    let planned = (!told && workers.min < workers.max).then(choose).transpose()?;
    let initial = planned.as_ref().map_or(start.unwrap_or(workers.initial()), |planned| planned.workers);
    let speeds = speed::known(&job, initial, &arguments.worker_speed)?;
    let bytes = 4 * (trainee.layout.parameter_count() + trainee.layout.state_count()) as u64;
    let listen = listen_at(arguments.listen, resumed.as_ref())?;
    let run = resumed.map_or_else(|| state_dir.create(&job, arguments.plain_transport.is_some()), Ok)?;
    keep_small_files(&run, &schedule, printer)?;
    let mut directors: Vec<Box<dyn Director>> = planned.iter().map(Announce::director).collect();
    directors.extend(provider.as_ref().map(Provider::director).into_iter().chain(batch::director(&job)));
    directors.extend(arguments.steer.directors(&job, range, &run, &speeds)?);
    let setup = synchronise::setup(&job, &trainee, &state_dir)?;
    directors.extend(setup.map(synchronise::director));
    let (spawn, spawn_server) = spawners(&run, &arguments)?.unzip();
    let options = Options {
        spawn_server,
        synchronisation: synchronise::synchronisation(&job, &trainee, setup.as_ref(), plan.as_ref())?,
        run: run.name.clone(),
        folder: run.path.clone(),
        token: run.token()?,
        data_listen: SocketAddr::new(listen.ip(), 0),
        max_workers: workers.max,
        workers: initial,
        listen,
        schedule,
        spawn,
        trainee: Some(trainee),
        speeds,
        director: steer::together(directors),
        heartbeat_timeout: Duration::from_secs_f64(arguments.heartbeat_timeout.get()),
        grace: Duration::from_secs_f64(arguments.grace.get()),
        last_checkpoint_wait: Duration::from_secs_f64(arguments.last_checkpoint_wait.get()),
        accept_other_data: arguments.accept_other_data,
        plain_transport: arguments.plain_transport.clone(),
        expected_step_s: planned.as_ref().map(|planned| job.batch.size as f64 / planned.examples_per_s),
        replaces_alone: arguments.replace_lone_worker,
        measure_link: false,
        job: job.clone(),
    };
    let mut show = show::Show::new(printer, &run, &arguments);
    let ended = coordinator::run(options, &mut |seen| show.see(seen));
    let (mut summary, outcome) = ended.map_err(|e| explain(e, &run))?;
    show.end();
    let learnt = compare::learn(&run, &job, bytes, first_step, arguments.no_spawn);
    summary.predictions =
        learnt.as_ref().map_or(Vec::new(), |learnt| compare::comparisons(learnt, job.batch.size));
    summary.planned = planned;
    summary.revocations = provider.map(|provider| provider.report(&job, &summary, learnt.as_ref(), price));
    summary.decisions = steer::decisions(&run);
    report(&summary, arguments.state.format, printer);
    Ok(conclude(&summary, &outcome, printer))
}

/// What whoever takes the run up again needs beside the job.
fn keep_small_files(run: &RunDir, schedule: &[(u64, u32)], printer: &Printer) -> Result<(), Failure> {
    run.keep_schedule(schedule)?;
    if run.renew_token()? {
        let path = run.token_file();
        let path = path.display();
        printer
            .note(format_args!("warning: {path} held no token, as after a power cut; the run has a new one"));
    }
    Ok(())
}

/// Where a run begins.
struct Outset {
    workers: WorkerRange,
    /// Scheduled changes of the number of workers.
    schedule: Vec<(u64, u32)>,
    /// Steps that are done.
    first_step: u64,
}

fn outset(
    range: WorkerRange,
    resumed: Option<&RunDir>,
    arguments: &RunArguments,
    printer: &Printer,
) -> Result<Outset, Failure> {
    let mut outset = Outset { workers: range, schedule: arguments.resize.clone(), first_step: 0 };
    let Some(run) = resumed else { return Ok(outset) };
    let history = unfinished(run)?;
    outset.first_step = history.committed();
    if outset.schedule.is_empty() && arguments.steer.autoscale.autoscale.is_none() {
        outset.schedule = run.schedule().unwrap_or_else(|why| {
            printer.note(format_args!("warning: the scheduled numbers of workers are lost: {why}"));
            Vec::new()
        });
    }
    if arguments.workers.is_some() {
        // What is asked for now overrules what the schedule said for the steps that are done.
        outset.schedule.retain(|(step, _)| *step > history.committed());
    } else if let Some(count) = history.scaled_to {
        outset.workers = WorkerRange { min: count, max: range.max.max(count) };
    }
    Ok(outset)
}

/// The exit code, and what a person should hear beside the result.
fn conclude(summary: &Summary, outcome: &RunOutcome, printer: &Printer) -> ExitCode {
    let Summary { run, run_dir, reason, .. } = summary;
    match outcome {
        RunOutcome::Finished => ExitCode::SUCCESS,
        RunOutcome::Stopped => {
            printer.note(format_args!("`bellwether run --resume {run}` goes on from here"));
            ExitCode::SUCCESS
        }
        RunOutcome::Failed(_) | RunOutcome::Broken(_) => {
            let hint = if let Some(Mismatch { wrong: None, .. }) = summary.mismatches.last() {
                format!(
                    "test the memory and the processors of these workers' machines; `bellwether run --resume {run}` goes on \
                     from before that step; with on_mismatch = \"quarantine\" and three workers the third one tells who is \
                     wrong"
                )
            } else if let RunOutcome::Failed(RunFailure::Unsaved { .. }) = outcome {
                format!(
                    "make room, then `bellwether run --resume {run}` goes on from the last checkpoint that was written; \
                     --last-checkpoint-wait says how long the workers hold the state"
                )
            } else if outcome.has_diverged() {
                "start anew with a smaller optimizer.learning_rate, or with optimizer.clip_norm; \
                 the checkpoints that were written before are kept"
                    .to_string()
            } else {
                format!("journal.jsonl and worker-*.log in {run_dir} tell more")
            };
            let failure = InputError::new(run, reason).hint(hint);
            printer.error(&failure);
            ExitCode::from(if matches!(outcome, RunOutcome::Failed(_)) { 1 } else { 3 })
        }
    }
}

/// The past of a run that is to be taken up again; a finished one is not, unless its result is nowhere.
fn unfinished(run: &RunDir) -> Result<RunHistory, Failure> {
    let history = run.history()?;
    let is_finished = history.outcome() == Some(&RunOutcome::Finished);
    if !is_finished || history.last_checkpoint().is_none_or(|path| !path.is_file()) {
        return Ok(history);
    }
    let what = format!("the run is finished: all {} steps are done", history.committed());
    let hint = "start a new one with `bellwether run JOB.toml`; --steps or --set makes it longer";
    Err(InputError::new(&run.name, what).hint(hint).into())
}

fn job_to_run(path: &Path, arguments: &RunArguments, plan: Option<&Plan>) -> Result<Job, Failure> {
    let mut overrides = arguments.set.clone();
    if let Some(range) = arguments.workers {
        overrides.push(("workers".into(), format!("\"{range}\"")));
    }
    let mut job = job::read(path, &overrides).map_err(|failure| match (arguments.workers, failure) {
        (Some(_), Failure::Input(error)) if error.place.ends_with(": workers") => {
            InputError { place: "--workers".into(), ..error }.into()
        }
        (_, failure) => failure,
    })?;
    batch::fix(&mut job, &arguments.batch_schedule)?;
    plan.map_or(Ok(()), |plan| planned::apply(plan, &mut job, arguments.workers))?;
    if let Some(steps) = arguments.steps {
        (job.steps, job.epochs) = (Some(steps), None);
        job.check().map_err(|error| InputError { place: format!("--{}", error.place), ..error })?;
    }
    Ok(job)
}

/// Where to listen: as asked for, or where the workers of a run that is taken up look.
fn listen_at(asked: Option<SocketAddr>, resumed: Option<&RunDir>) -> Result<SocketAddr, InputError> {
    let before = || resumed.and_then(RunDir::endpoint).map(|endpoint| endpoint.control);
    let listen = asked.or_else(before).unwrap_or(([127, 0, 0, 1], 0).into());
    reachable("--listen", listen)?;
    Ok(listen)
}

fn check_workers(job: &Job, workers: WorkerRange, resize: &[(u64, u32)]) -> Result<(), InputError> {
    let nodes = job.batch.virtual_nodes;
    if workers.max > nodes {
        return Err(InputError::new(
            "--workers",
            format!("{} workers cannot share {nodes} virtual nodes", workers.max),
        )
        .hint(format!(
            "use at most {nodes}, or raise batch.virtual_nodes (this changes the job's identity)"
        )));
    }
    if let Some((step, count)) = resize.iter().find(|(_, count)| *count > nodes) {
        return Err(InputError::new(
            "--resize",
            format!("{step}:{count}: {count} workers cannot share {nodes} virtual nodes"),
        )
        .hint(format!("use at most {nodes}")));
    }
    if !resize.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        return Err(InputError::new("--resize", "the steps do not rise").hint("sort them, each step once"));
    }
    Ok(())
}

/// How workers and servers are started, unless all join by hand.
fn spawners(run: &RunDir, arguments: &RunArguments) -> Result<Option<(Spawn, Spawn)>, Failure> {
    if arguments.no_spawn {
        return Ok(None);
    }
    let (paces, all, flip) = (speed::relative(&arguments.worker_speed), arguments.speed, arguments.flip_bit);
    // Each computes at its pace; those that have none of their own at that of all.
    let more = move |worker| {
        let pace = speed::of(&paces, worker).or(all).map(|pace| format!("--speed={pace}"));
        let flip = flip.filter(|(who, _)| *who == worker).map(|(_, flip)| format!("--flip-bit={flip}"));
        pace.into_iter().chain(flip).collect()
    };
    Ok(Some((spawner(run, more)?, server_spawner(run)?)))
}

fn explain(error: CoordinatorError, run: &RunDir) -> Failure {
    let place = run.name.clone();
    let hint = match &error {
        CoordinatorError::Busy(_) => format!("`bellwether watch {place}` shows it"),
        CoordinatorError::Checkpoint(_) => {
            "remove the checkpoints that cannot be used; without any, the run begins anew from its seed".into()
        }
        CoordinatorError::OtherData { .. } => {
            "put back what it was trained with; or pass --accept-other-data: the run goes on, the result is that of \
             neither, and the journal says so"
                .into()
        }
        CoordinatorError::NoReason => {
            "start a new run with --plain-transport REASON; or remove the run's token file: --resume makes another, which \
             encrypts"
                .into()
        }
        CoordinatorError::System { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => match run.endpoint() {
            Some(_) => "another program has the port where this run's workers look for it: end that program; or choose \
                        another port with --listen HOST:PORT, and the run goes on from its last checkpoint"
                .into(),
            None => "another program has the port; choose one with --listen HOST:PORT".into(),
        },
        CoordinatorError::System { .. } | CoordinatorError::RunDir { .. } => String::new(),
    };
    InputError::new(place, error.to_string()).hint(hint).into()
}

fn report(summary: &Summary, format: Format, printer: &Printer) {
    match format {
        Format::Json => printer.out(serde_json::to_string(summary).unwrap_or_default()),
        Format::Table => printer.out(show::table(summary)),
    }
}
