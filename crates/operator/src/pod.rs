//! The programs inside pods. They know the operator by its URL, the job by its uid and token, and nothing of Kubernetes.
//!
//! - *coordinator*: leads the run, keeps the operator's copy of its folder up to date, and makes the folder anew from
//!   the copy where it is lost.
//! - *worker*, *server*: join the run, wherever its coordinator is at the moment.
//! - *group*: one of a set of pods that run a user's own script together.
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
mod member;
mod news;
mod patience;
mod settings;
mod signals;

pub use coordinator::{CoordinatorArgs, EXIT_REPLACED};
pub use ending::Final;
pub use group::{Backend, GroupArgs};
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
}

/// Runs one of these programs to its end.
pub fn run(command: &PodCommand) -> ExitCode {
    let ended = Settings::from_environment().and_then(|settings| match command {
        PodCommand::Coordinator(arguments) => coordinator::run(arguments, settings),
        PodCommand::Worker(arguments) => member::worker(arguments, &settings),
        PodCommand::Server(arguments) => member::server(arguments, &settings),
        PodCommand::Group(arguments) => group::run(arguments, settings),
    });
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
