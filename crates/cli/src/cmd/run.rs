//! `bellwether run`: trains a job.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::plan::Plan;
use bellwether_core::record::{Mismatch, RunFailure, RunOutcome, Summary};
use bellwether_render::summary;
use bellwether_runtime::coordinator::CoordinatorError;
use bellwether_runtime::ending::EndSignal;
use bellwether_session::script::{Lead, Trained};
use bellwether_session::slurm::is_own;
use bellwether_session::{Program, Progress, RunError, Session, Spawn, Timeouts};

use crate::elsewhere::{self, Elsewhere};
use crate::failure::Failure;
use crate::job::{Opened, read_plan};
use crate::options::{Format, StateArguments};
use crate::outlook;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir, read_token};
use crate::session::{build_of, program_of};

mod args;
mod detach;
mod job;
mod paces;
mod provision;
mod revocations;
mod show;
mod steer;

pub(crate) use args::RunArguments;

/// What `bellwether resume` does with a run that was started by hand.
pub(crate) fn resume(run: &str, state: StateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let arguments = args::resuming(run)?;
    self::run(RunArguments { state, ..arguments }, printer)
}

pub(crate) fn run(arguments: RunArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let state_dir = StateDir::find(arguments.state.state_dir.clone())?;
    let resumed = arguments.resume.as_deref().map(|name| state_dir.run(name)).transpose()?;
    if let Some(run) = resumed.as_ref().filter(|run| run.is_served() && !arguments.served) {
        let hint = format!("`bellwether resume {}` lets the daemon go on with it", run.name);
        return Err(InputError::new(&run.name, "this is a daemon's job").hint(hint).into());
    }
    if arguments.detach {
        return detach::detach(&state_dir, resumed.as_ref(), arguments.state.format, printer);
    }
    let plan = arguments.plan.as_deref().map(read_plan).transpose()?;
    let opened = match &resumed {
        Some(run) => crate::job::stored(run, arguments.output())?,
        None => job::read(&arguments, plan.as_ref())?,
    };
    let machines = provision::machines(&arguments, plan.as_ref(), resumed.as_ref(), &state_dir)?;
    let Elsewhere { spawn, listen, room } = match &machines {
        Some(machines) => {
            let program = worker_program(&arguments, opened.trained.as_ref())?;
            provision::place(machines, (arguments.listen, resumed.as_ref()), program)?
        }
        None => place(&arguments, opened.trained.as_ref(), resumed.as_ref(), printer)?,
    };
    let usual =
        machines.as_ref().map_or(opened.job.workers, |machines| provision::range(machines, &opened.job));
    let range = elsewhere::within(arguments.workers.unwrap_or(usual), room)?;
    let (build, initial_weights) = (build_of(opened.trained.as_ref()), opened.initial_weights());
    let Opened { job, lead, .. } = opened;
    let mut session = Session::builder(job)
        .workload(build)
        .initial_weights(initial_weights)
        .state_dir(state_dir)
        .schedule(arguments.resize.clone())
        .speeds(paces::known(&arguments.worker_speed))
        .spawn(spawn)
        .choose_start()
        .timeouts(timeouts(&arguments));
    if arguments.workers.is_some() || room.is_some() || machines.is_some() {
        session = session.workers(range);
    }
    if let Some(workers) = machines.as_ref().map(provision::start) {
        session = session.start(workers.clamp(range.min, range.max));
    }
    if let Some(lead) = &lead {
        session = session.led_by(lead.watch());
    }
    session.check()?;
    arguments.steer.check(range)?;
    session = arguments.steer.steer(session)?;
    if let Some(vanishing) = arguments.revocation.vanishing()? {
        session = session.revocations(vanishing);
    }
    session = asked(session, &arguments, (resumed, plan), listen)?;
    if arguments.dry_run {
        outlook::print(&session.outlook()?, arguments.state.format, printer);
        return Ok(ExitCode::SUCCESS);
    }
    train(session, lead, &arguments, printer)
}

/// The session with what else the command line says of it.
fn asked(
    mut session: Session,
    arguments: &RunArguments,
    (resumed, plan): (Option<RunDir>, Option<Plan>),
    listen: Option<SocketAddr>,
) -> Result<Session, Failure> {
    if let Some(run) = resumed {
        session = session.resume(run);
    }
    if let Some(url) = arguments.resume_from.clone() {
        session = session.resume_from(url);
    }
    if let Some(plan) = plan.filter(|_| arguments.resume.is_none()) {
        session = session.plan(plan);
    }
    if let Some(address) = arguments.listen.or(listen) {
        session = session.listen(address);
    }
    if arguments.accept_other_data {
        session = session.accept_other_data();
    }
    if let Some(reason) = arguments.plain_transport.clone() {
        session = session.plain_transport(reason);
    }
    if let Some(file) = &arguments.token_file {
        session = session.token(read_token(file)?);
    }
    if arguments.replace_lone_worker {
        session = session.replace_lone_worker();
    }
    Ok(session)
}

/// Runs the session, and the script that leads it, to their ends.
fn train(
    session: Session,
    mut lead: Option<Lead>,
    arguments: &RunArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let mut show = show::Show::new(printer, arguments);
    let watch = lead.as_ref().map(Lead::watch);
    let (summary, outcome) = session.run(&mut |seen| {
        if let (Progress::Begins(run), Some(lead)) = (&seen, &mut lead) {
            lead.follow(run);
        }
        show.see(seen);
    })?;
    // What the script does after its training comes before the result.
    let led = lead.map_or(Ok(()), Lead::wait);
    report(&summary, arguments.state.format, printer);
    let code = conclude(&summary, &outcome, show.signal(), printer);
    let was_missed = watch.is_some_and(|watch| watch.was_missed());
    match led {
        Err(error) if outcome == RunOutcome::Finished || was_missed => Err(Failure::No(error.to_string())),
        Ok(()) if was_missed => Ok(ExitCode::from(1)),
        _ => Ok(code),
    }
}

fn timeouts(arguments: &RunArguments) -> Timeouts {
    Timeouts {
        heartbeat: Duration::from_secs_f64(arguments.heartbeat_timeout.get()),
        grace: Duration::from_secs_f64(arguments.grace.get()),
        last_checkpoint: Duration::from_secs_f64(arguments.last_checkpoint_wait.get()),
    }
}

/// How and where workers and servers are started, unless all join by hand.
fn place(
    arguments: &RunArguments,
    trained: Option<&Trained>,
    resumed: Option<&RunDir>,
    printer: &Printer,
) -> Result<Elsewhere, Failure> {
    if arguments.no_spawn {
        return Ok(Elsewhere { spawn: Spawn::ByHand, listen: None, room: None });
    }
    // Workers look for the next coordinator where the last one was, unless that was another machine.
    let stays = |run: &RunDir| run.endpoint().is_some_and(|last| is_own(last.control.ip()));
    let moves = arguments.listen.is_none() && !resumed.is_some_and(stays);
    let elsewhere =
        arguments.elsewhere.place(worker_program(arguments, trained)?, resumed, moves, printer)?;
    if let Some(run) = resumed.filter(|_| !matches!(elsewhere.spawn, Spawn::Slurm(..))) {
        run.forget_cluster_jobs()?;
    }
    Ok(elsewhere)
}

/// The program whose processes are workers, each with what the command line says of it.
fn worker_program(arguments: &RunArguments, trained: Option<&Trained>) -> Result<Program, Failure> {
    let (paces, all, flip) = (paces::relative(&arguments.worker_speed), arguments.speed, arguments.flip_bit);
    // Each computes at its pace; those that have none of their own at that of all.
    let more = move |worker| {
        let pace = paces::of(&paces, worker).or(all).map(|pace| format!("--speed={pace}"));
        let flip = flip.filter(|(who, _)| *who == worker).map(|(_, flip)| format!("--flip-bit={flip}"));
        pace.into_iter().chain(flip).collect()
    };
    Ok(program_of(trained)?.arguments(more))
}

/// The exit code, which names the signal that stopped the run, and what a person should hear beside the result.
fn conclude(
    summary: &Summary,
    outcome: &RunOutcome,
    signal: Option<EndSignal>,
    printer: &Printer,
) -> ExitCode {
    let Summary { run, run_dir, .. } = summary;
    match outcome {
        RunOutcome::Finished => ExitCode::SUCCESS,
        RunOutcome::Stopped => {
            printer.note(format_args!("`bellwether resume {run}` goes on from here"));
            signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signal.exit_code()))
        }
        RunOutcome::Failed(_) | RunOutcome::Broken(_) => {
            let hint = if let Some(Mismatch { wrong: None, .. }) = summary.mismatches.last() {
                format!(
                    "test the memory and the processors of these workers' machines; `bellwether resume {run}` goes on \
                     from before that step; with on_mismatch = \"quarantine\" and three workers the third one tells who is \
                     wrong"
                )
            } else if let RunOutcome::Failed(RunFailure::Unsaved { .. }) = outcome {
                format!(
                    "make room, then `bellwether resume {run}` goes on from the last checkpoint that was written; \
                     --last-checkpoint-wait says how long the workers hold the state"
                )
            } else if outcome.has_diverged() {
                "start a new run with a smaller optimizer.learning_rate, or with optimizer.clip_norm; \
                 the checkpoints that were written before are kept"
                    .to_string()
            } else {
                format!("journal.jsonl and worker-*.log in {run_dir} tell more")
            };
            let failure = InputError::new(run, outcome.reason()).hint(hint);
            printer.error(&failure);
            ExitCode::from(if matches!(outcome, RunOutcome::Failed(_)) { 1 } else { 3 })
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Input(error) => error.into(),
            RunError::Option(error) => InputError { place: format!("--{}", error.place), ..error }.into(),
            RunError::Finished { run, steps } => {
                let what = format!("the run is finished, after {steps} steps");
                let hint = "`bellwether show` shows its result; `bellwether run JOB.toml` starts a new one, and --steps or \
                            --set makes it longer";
                InputError::new(run, what).hint(hint).into()
            }
            RunError::Slower(what) => {
                let hint = "leave the slow ones out (--workers, --worker-speed), or raise batch.virtual_nodes, so that they \
                            can have a smaller part";
                Failure::No(InputError::new("--worker-speed", what).hint(hint).to_string())
            }
            RunError::RunDir(error) => error.into(),
            RunError::Coordinator { run, source } => explain(&source, &run),
        }
    }
}

fn explain(error: &CoordinatorError, run: &RunDir) -> Failure {
    let place = run.name.clone();
    let hint = match error {
        CoordinatorError::Busy(_) => format!("`bellwether watch {place}` shows it"),
        CoordinatorError::Checkpoint(_) => {
            "remove the checkpoints that cannot be used; without any, the run begins again from its seed".into()
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
        CoordinatorError::OtherWorkload => "the script must build the same in every process: it must not depend on the \
                                            worker, the time or chance"
            .into(),
        CoordinatorError::Store(source) => source.hint().into(),
        CoordinatorError::NoSlices => {
            "use checkpoint.folder, on a file system that outlives the host, or a plan whose workers all wait for all".into()
        }
        CoordinatorError::System { .. } | CoordinatorError::RunDir { .. } => String::new(),
    };
    InputError::new(place, error.to_string()).hint(hint).into()
}

fn report(summary: &Summary, format: Format, printer: &Printer) {
    match format {
        Format::Json => printer.out(serde_json::to_string(summary).unwrap_or_default()),
        Format::Table => printer.out(summary::table(summary)),
    }
}
