//! Pods of workers and parameter servers: they join the run wherever its coordinator is at the moment.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_runtime::channel::Token;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::ending::EndSignal;
use bellwether_runtime::private;
use bellwether_runtime::run_dir::Ticket;
use bellwether_session::gpus::{Gpus, Place};
use bellwether_session::script::Script;
use clap::Args;

use super::child::Children;
use super::{Settings, news, say, signals};

/// Time between two looks at the processes, and at whether the coordinator answers.
const LOOK: Duration = Duration::from_millis(50);

/// The file that says where the coordinator is.
const TICKET: &str = "coordinator.json";

/// The program of a worker's pod; its environment says all.
#[derive(Debug, Args)]
pub struct WorkerArgs {}

/// The program of a parameter server's pod; its environment says all.
#[derive(Debug, Args)]
pub struct ServerArgs {}

#[derive(Debug)]
enum Happening {
    Signal(EndSignal),
    /// The coordinator is here now, and the ticket says so.
    Coordinator(SocketAddr),
}

/// Runs the pod's workers until they have ended.
///
/// # Errors
///
/// What keeps them from beginning.
pub(super) fn worker(_: &WorkerArgs, settings: &Settings) -> Result<ExitCode> {
    let script = Script::of(&*settings.job()?)?;
    let places = match settings.slots {
        1 => vec![None],
        slots => places(slots),
    };
    join(settings, |ticket| {
        let start = |place: &Option<Place>| {
            let mut command = command(settings, "worker", ticket)?;
            if let Some(script) = &script {
                // As a worker of a cluster's job is started: the command becomes the script.
                command.arg("--").args(script.command_line()).envs(&script.environment);
            }
            command.envs(place.iter().flat_map(Place::environment));
            spawn(settings, command)
        };
        places.iter().map(start).collect()
    })
}

/// Runs the pod's parameter server until it has ended.
///
/// # Errors
///
/// What keeps it from beginning.
pub(super) fn server(_: &ServerArgs, settings: &Settings) -> Result<ExitCode> {
    join(settings, |ticket| Ok(vec![spawn(settings, command(settings, "server", ticket)?)?]))
}

/// A place for each process of the pod: a GPU of its own, as far as there are any.
fn places(slots: u32) -> Vec<Option<Place>> {
    let gpus = Gpus::of_machine();
    (0..slots).map(|_| gpus.place()).collect()
}

/// Waits for the coordinator, starts processes that are told by a ticket where it is, and keeps the ticket up to date.
fn join(settings: &Settings, start: impl FnOnce(&Path) -> Result<Vec<Child>>) -> Result<ExitCode> {
    let (tell, happenings) = channel();
    let signal = tell.clone();
    signals::listen(move |heard| drop(signal.send(Happening::Signal(heard))))?;
    private::folder(&settings.state).with_context(|| settings.state.display().to_string())?;
    let ticket = settings.state.join(TICKET);
    let file = ticket.clone();
    let mut written = None;
    news::follow(settings.client()?, move |wish| {
        let Some(coordinator) = wish.coordinator.filter(|now| Some(*now) != written) else { return true };
        // The number 0 asks the coordinator for one.
        match (Ticket { join: coordinator.to_string(), number: 0 }).write(&file) {
            Ok(()) => written = Some(coordinator),
            Err(error) => say(format_args!("{}: {error}", file.display())),
        }
        tell.send(Happening::Coordinator(coordinator)).is_ok()
    })?;
    if let Some(signal) = wait_for_coordinator(&happenings, &settings.secrets().token()?) {
        return Ok(ExitCode::from(signal.exit_code()));
    }
    let mut children = Children::new(start(&ticket)?);
    loop {
        if let Ok(Happening::Signal(_)) = happenings.recv_timeout(LOOK) {
            // They leave at the next boundary.
            children.terminate();
        }
        if let Some(code) = children.ended()? {
            return Ok(code);
        }
    }
}

/// Waits until the coordinator answers: a worker that has not joined yet waits for it for a moment only. Returns the
/// signal that came first, if one did.
fn wait_for_coordinator(happenings: &Receiver<Happening>, token: &Token) -> Option<EndSignal> {
    let mut coordinator = None;
    loop {
        match happenings.recv_timeout(LOOK) {
            Ok(Happening::Signal(signal)) => return Some(signal),
            Ok(Happening::Coordinator(address)) => coordinator = Some(address),
            Err(_) => {}
        }
        // A connection alone would be one of a stranger, which the run's journal tells.
        let answers = |address: SocketAddr| {
            Control::connect(&address.to_string(), token).and_then(|mut control| control.status()).is_ok()
        };
        if coordinator.is_some_and(answers) {
            return None;
        }
    }
}

/// The command line of a worker or a server, without what is behind `--`.
fn command(settings: &Settings, verb: &str, ticket: &Path) -> Result<Command> {
    let mut command = Command::new(&settings.command);
    command.arg(verb).arg("--ticket").arg(ticket).arg("--token-file").arg(settings.secrets().token_file());
    command.arg(OsString::from(format!("--listen={}", SocketAddr::new(settings.address()?, 0))));
    if let Some(orphan) = settings.orphan {
        command.arg(format!("--orphan-timeout={}s", orphan.as_secs_f64()));
    }
    command.stdin(Stdio::null());
    Ok(command)
}

fn spawn(settings: &Settings, mut command: Command) -> Result<Child> {
    command.spawn().with_context(|| format!("`{}` cannot be started", settings.command.display()))
}
