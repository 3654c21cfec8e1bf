//! Arguments that all verbs share that speak to a daemon.

use std::path::PathBuf;

use clap::Args;

use crate::options::StateArguments;

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
    /// Jobs of a Kubernetes cluster instead: those of the kubeconfig's context
    #[arg(long, conflicts_with_all = ["server", "plain_http", "connection", "state_dir"])]
    pub(crate) kubernetes: bool,
    /// Namespace of the jobs on Kubernetes [default: that of the context]
    #[arg(long, value_name = "NAMESPACE", requires = "kubernetes")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

/// A job, started by hand or by a daemon.
#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// Name of the job; of a run by hand also that of its job file, for the newest, or its folder
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}
