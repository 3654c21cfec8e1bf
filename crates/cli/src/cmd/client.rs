//! The verbs for jobs, started by hand or by a daemon: `jobs`, `show`, `logs`, `watch`, `scale`, `stop`, `resume`,
//! `cancel` and `rm`; and those for a daemon: `submit`, `policy` and `dashboard`.

mod args;
mod change;
mod daemon;
mod dashboard;
mod events;
mod follow;
mod jobs;
mod logs;
mod place;
mod rm;
mod show;
mod socket;
mod submit;
mod target;
mod tls;
mod words;

pub(crate) use args::JobArguments;
pub(crate) use change::{Act, ActArguments, Left, PolicyArguments, ScaleArguments, act, policy, scale};
pub(crate) use dashboard::{DashboardArguments, dashboard};
pub(crate) use follow::watch;
pub(crate) use jobs::{JobsArguments, jobs};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use rm::{RmArguments, rm};
pub(crate) use show::show;
pub(crate) use submit::{SubmitArguments, submit};
