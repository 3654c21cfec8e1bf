//! The verbs for jobs, started by hand or by a daemon: `jobs`, `show`, `logs`, `watch`, `scale`, `stop`, `resume`,
//! `cancel` and `rm`; and those for a daemon: `submit`, `policy`, `queues`, `users` and
//! `dashboard`.

mod args;
mod change;
mod connect;
mod dashboard;
mod follow;
mod jobs;
mod logs;
mod queues;
mod rm;
mod show;
mod submit;
mod target;
mod users;
mod words;

pub(crate) use args::JobArguments;
pub(crate) use bellwether_client::Act;
pub(crate) use change::{ActArguments, Left, PolicyArguments, ScaleArguments, act, policy, scale};
pub(crate) use dashboard::{DashboardArguments, dashboard};
pub(crate) use follow::watch;
pub(crate) use jobs::{JobsArguments, jobs};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use queues::{QueuesArguments, queues};
pub(crate) use rm::{RmArguments, rm};
pub(crate) use show::show;
pub(crate) use submit::{SubmitArguments, submit};
pub(crate) use users::{UsersArguments, users};
