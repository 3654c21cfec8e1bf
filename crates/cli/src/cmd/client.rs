//! The verbs that speak to a daemon: `submit`, `jobs`, `job`, `logs`, `suspend`, `resume`, `cancel` and `policy`, and what
//! `scale`, `stop` and `watch` do with a job that a daemon serves.

use std::path::PathBuf;

use clap::Args;

use crate::args::StateArguments;

mod change;
mod daemon;
mod events;
mod follow;
mod job;
mod jobs;
mod logs;
mod submit;
mod words;

pub(crate) use change::{Act, ActArguments, PolicyArguments, ScaleArguments, act, policy, scale};
pub(crate) use daemon::Daemon;
pub(crate) use job::job;
pub(crate) use jobs::{JobsArguments, jobs};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use submit::{SubmitArguments, submit};

pub(super) use follow::{stop, watch};

/// Which daemon is asked, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct DaemonArguments {
    /// Address of the daemon [default: $BELLWETHER_SERVER, or the daemon of the state directory]
    #[arg(long, value_name = "http://HOST:PORT", conflicts_with = "state_dir")]
    pub(crate) server: Option<String>,
    /// File with the token of the daemon at --server [default: $BELLWETHER_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
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
