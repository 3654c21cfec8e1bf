//! The verbs that speak to a daemon: `submit`, `jobs`, `job`, `logs`, `suspend`, `resume`, `cancel`, `policy` and
//! `dashboard`, and what `scale`, `stop` and `watch` do with a job that a daemon serves.

mod args;
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

pub(crate) use args::ServedArguments;
pub(crate) use change::{Act, ActArguments, PolicyArguments, ScaleArguments, act, policy, scale};
pub(crate) use dashboard::{DashboardArguments, dashboard};
pub(crate) use follow::{stop, watch};
pub(crate) use job::job;
pub(crate) use jobs::{JobsArguments, jobs};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use submit::{SubmitArguments, submit};
