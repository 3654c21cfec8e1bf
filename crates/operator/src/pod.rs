//! The programs inside pods. They know the operator by its URL, the job by its uid and token, and nothing of
//! Kubernetes.
//!
//! - *coordinator*: leads the run, keeps the operator's copy of its folder up to date, and makes the folder again from
//!   the copy where it is lost.
//! - *worker*, *server*: join the run, wherever its coordinator is at the moment.
//! - *group*: one of a set of pods that run a user's own script together.
//! - *install*: brings these programs into containers of other images.
//!
//! All that they are told is in their environment, see [`Settings`].

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

mod child;
mod coordinator;
mod ending;
mod group;
mod install;
mod member;
mod news;
mod patience;
mod settings;
mod signals;

pub use coordinator::CoordinatorArgs;
pub use ending::Final;
pub use group::{Backend, GroupArgs};
pub use install::InstallArgs;
pub use member::{ServerArgs, WorkerArgs};
pub use settings::Settings;

/// The exit code of a program that was not told what it needs.
const EXIT_USAGE: u8 = 2;

/// A program inside a pod.
#[derive(Debug, Subcommand)]
pub enum PodCommand {
    /// Lead the job's run
    Coordinator(CoordinatorArgs),
    /// Join the run as a worker
    Worker(WorkerArgs),
    /// Join the run as a parameter server
    Server(ServerArgs),
    /// Run a user's own command on all pods of a set together
    Group(GroupArgs),
    /// Bring these programs into a folder that containers of other images share
    Install(InstallArgs),
}

/// Runs one of these programs to its end.
pub fn run(command: &PodCommand) -> ExitCode {
    let told = Settings::from_environment;
    let ended = match command {
        PodCommand::Coordinator(arguments) => told().and_then(|told| coordinator::run(arguments, told)),
        PodCommand::Worker(arguments) => told().and_then(|told| member::worker(arguments, &told)),
        PodCommand::Server(arguments) => told().and_then(|told| member::server(arguments, &told)),
        PodCommand::Group(arguments) => told().and_then(|told| group::run(arguments, &told)),
        PodCommand::Install(arguments) => install::run(arguments),
    };
    ended.unwrap_or_else(|error| {
        say(format_args!("error: {error:#}"));
        ExitCode::from(EXIT_USAGE)
    })
}

/// Says something to those who read the pod's log.
fn say(what: impl fmt::Display) {
    // A log that cannot be written has no reader.
    let _ = writeln!(std::io::stderr().lock(), "{what}");
}
