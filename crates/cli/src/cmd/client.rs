//! The verbs that speak to a daemon: `submit`, `jobs`, `job`, `logs`, `suspend`, `resume`, `cancel`, `policy` and
//! `dashboard`, and what `scale`, `stop` and `watch` do with a job that a daemon serves.

use std::path::PathBuf;

use clap::Args;

use crate::options::StateArguments;

mod change;
mod daemon;
mod dashboard;
mod events;
mod follow;
mod job;
mod jobs;
mod logs;
mod place;
mod socket;
mod submit;
mod tls;
mod words;

pub(crate) use change::{Act, ActArguments, PolicyArguments, ScaleArguments, act, policy, scale};
pub(crate) use dashboard::{DashboardArguments, dashboard};
pub(crate) use job::job;
pub(crate) use jobs::{JobsArguments, jobs};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use submit::{SubmitArguments, submit};

pub(super) use follow::{stop, watch};

/// Which daemon is asked, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct DaemonArguments {
    /// Address of the daemon [default: $BELLWETHER_SERVER, or that of --connection, or the daemon of the state directory]
    #[arg(long, value_name = "unix:PATH|https://HOST:PORT", conflicts_with = "state_dir")]
    pub(crate) server: Option<String>,
    /// Send the token over plain HTTP: only where somebody else encrypts all the way to the daemon
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Copy of the file `.serve/connection.json` of a daemon elsewhere [default: $BELLWETHER_CONNECTION]
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) connection: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

/// A job of a daemon, or a run by hand.
#[derive(Debug, Args)]
pub(crate) struct ServedArguments {
    /// Name of the job
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}
