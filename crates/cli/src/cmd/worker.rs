//! `bellwether worker`: joins a run.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use bellwether_core::job::Job;
use bellwether_core::units::Seconds;
use bellwether_core::{InputError, ParseError};
use bellwether_runtime::inference;
use bellwether_runtime::notice::{Listening, Source};
use bellwether_runtime::worker::{Options, Stages, WorkerError, run};
use bellwether_runtime::workload::Workload;
use bellwether_workloads::{Flip, Pace};
use clap::Args;

use crate::applied::Purpose;
use crate::colour::When;
use crate::failure::Failure;
use crate::join::{JoinArguments, Joining};
use crate::printer::Printer;
use crate::session;
use bellwether_session::gpus::{Gpus, Place};
use bellwether_session::script;

#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) join: JoinArguments,
    /// Compute as if the device had this part of its speed, from some time on if SPEED@TIME
    #[arg(long, value_name = "SPEED[@TIME]")]
    pub(crate) speed: Option<Pace>,
    /// Compute one virtual node of one step wrong, by one bit, to try what `verify_every` finds
    #[arg(long, value_name = "STEP:NODE[:once]")]
    pub(crate) flip_bit: Option<Flip>,
    /// Who says that this server will be taken away: none, or any of gce, ec2, sigterm, gce=URL, ec2=URL
    #[arg(long, value_name = "SOURCE,…", default_value = "none", value_parser = notices)]
    pub(crate) notices: Notices,
    /// Time between two questions to each of them
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = notice_interval)]
    pub(crate) notice_interval: Seconds,
    /// Start a worker of a script on each of these GPUs: `all`, or numbers with commas between
    #[arg(long, value_name = "all|N,…", requires = "script")]
    pub(crate) gpus: Option<Gpus>,
    /// Command line of a script whose job this is, after `--`: PYTHON SCRIPT.py ARGUMENTS; it becomes the worker
    #[arg(last = true, value_name = "PYTHON SCRIPT.py")]
    pub(crate) script: Vec<OsString>,
    /// Number that the coordinator gave to a worker it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) worker_id: u64,
    /// Join an inference (`bellwether infer`) instead of a run
    #[arg(long)]
    pub(crate) infer: bool,
}

/// Sources of the provider's notices.
#[derive(Debug, Clone)]
pub(crate) struct Notices(pub(crate) Vec<Source>);

fn notices(text: &str) -> Result<Notices, ParseError> {
    match text {
        "none" => Ok(Notices(Vec::new())),
        _ => text.split(',').map(str::parse).collect::<Result<_, _>>().map(Notices),
    }
}

fn notice_interval(text: &str) -> Result<Seconds, ParseError> {
    let interval: Seconds = text.parse()?;
    // The shortest notice is of half a minute.
    if !(0.1..=30.0).contains(&interval.get()) {
        return Err(ParseError::out_of_range("interval", text, "a time from 100ms to 30s"));
    }
    Ok(interval)
}

pub(crate) fn worker(arguments: WorkerArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let joining = arguments.join.joining(arguments.worker_id)?;
    // What a coordinator's own workers say is in its log.
    let by_hand = joining.number == 0;
    if !arguments.script.is_empty() {
        return run_script(&arguments, &joining);
    }
    if arguments.infer {
        let options = inference::worker::Options {
            coordinator: joining.coordinator.now(),
            token: arguments.join.token()?,
            worker: joining.number,
        };
        return infer(&options, arguments.speed);
    }
    let options = Options {
        token: arguments.join.token()?,
        coordinator: joining.coordinator.clone(),
        worker: joining.number,
        listen: joining.listen,
        orphan_timeout: Duration::from_secs_f64(arguments.join.orphan_timeout.get()),
        notices: Listening {
            sources: arguments.notices.0,
            interval: Duration::from_secs_f64(arguments.notice_interval.get()),
            log: |line| Printer::new(When::default()).note(line),
        },
        leashed: None,
    };
    let build = |job: &Job, _: &Stages<'_>| -> Result<Box<dyn Workload>, InputError> {
        if by_hand {
            printer.note(format_args!("joined the run of `{}` at {}", job.name, joining.coordinator.now()));
        }
        let workload = session::build(job)?;
        let workload = match arguments.speed {
            Some(pace) => bellwether_workloads::paced(workload, pace),
            None => workload,
        };
        Ok(match arguments.flip_bit {
            Some(flip) => bellwether_workloads::flipped(workload, flip, job.seed),
            None => workload,
        })
    };
    let result = run(options, build);
    if result.is_ok() && by_hand {
        printer.note("left the run: it has ended, or it goes on without this worker");
    }
    ended(result)
}

/// Applies a model until there are no more rows.
fn infer(options: &inference::worker::Options, pace: Option<Pace>) -> Result<ExitCode, Failure> {
    let build = |job: &Job, description: &str| -> Result<Box<dyn Workload>, InputError> {
        let workload = Purpose::read(description)?.workload(job)?;
        Ok(match pace {
            Some(pace) => bellwether_workloads::paced(workload, pace),
            None => workload,
        })
    };
    ended(inference::worker::run(options, build))
}

fn ended(result: Result<(), WorkerError>) -> Result<ExitCode, Failure> {
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(WorkerError::Refused(why)) => Err(InputError::new("this worker was refused", why).into()),
        Err(error @ WorkerError::Orphaned(_)) => Err(Failure::No(error.to_string())),
        Err(error) => Err(Failure::at("worker", error)),
    }
}

/// Becomes the script's process in the role of a worker: it keeps this one's number.
fn run_script(arguments: &WorkerArguments, joining: &Joining) -> Result<ExitCode, Failure> {
    let only_built_in =
        [("--speed", arguments.speed.is_some()), ("--flip-bit", arguments.flip_bit.is_some())];
    if let Some((option, _)) = only_built_in.iter().find(|(_, given)| *given) {
        let error = InputError::new(*option, "only built-in models can compute otherwise than they do");
        return Err(error.hint("leave it out: a script computes as it says").into());
    }
    let file = &arguments.join.token_file;
    let token_file = std::path::absolute(file).map_err(|e| Failure::at(file.display().to_string(), e))?;
    let options = script::WorkerOptions {
        join: joining.coordinator.now(),
        ticket: joining.ticket.clone(),
        token_file,
        worker: joining.number,
        listen: joining.listen.to_string(),
        orphan_timeout_s: arguments.join.orphan_timeout.get(),
        notices: arguments.notices.0.iter().map(Source::word).collect(),
        notice_interval_s: arguments.notice_interval.get(),
        infer: arguments.infer,
    };
    let command = || {
        let mut command = Command::new(&arguments.script[0]);
        command.args(&arguments.script[1..]).envs(options.environment());
        script::prepare(&mut command);
        command
    };
    let Some(gpus) = &arguments.gpus else {
        return Err(not_started(arguments, &command().exec()));
    };
    let places: Vec<Place> = gpus.names().iter().filter_map(|_| gpus.place()).collect();
    if places.is_empty() {
        let error = InputError::new("--gpus", "this machine shows no GPU (there is no /dev/nvidia0)");
        return Err(error.hint("leave it out: one worker computes on the processor").into());
    }
    on_each(&places, command).map_err(|error| not_started(arguments, &error))
}

fn not_started(arguments: &WorkerArguments, error: &std::io::Error) -> Failure {
    let place = arguments.script[0].to_string_lossy().into_owned();
    InputError::new(place, format!("it cannot be started: {error}"))
        .hint("write `-- PYTHON SCRIPT.py`")
        .into()
}

/// Starts a worker at each place, and waits for all of them; the first that failed gives the exit code.
fn on_each(places: &[Place], command: impl Fn() -> Command) -> std::io::Result<ExitCode> {
    let mut workers: Vec<Child> = Vec::new();
    for place in places {
        match command().envs(place.environment()).spawn() {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                // They are of one command line: if one cannot be started, none is left.
                workers.iter_mut().for_each(|worker| drop(worker.kill()));
                return Err(error);
            }
        }
    }
    let mut code = ExitCode::SUCCESS;
    for worker in &mut workers {
        let ended = worker.wait()?;
        if !ended.success() && code == ExitCode::SUCCESS {
            code = ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
    }
    Ok(code)
}
