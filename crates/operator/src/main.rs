//! The program `bellwether-operator`: it works in a cluster, and inside the pods of its jobs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command line of its own")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use bellwether_core::knowledge::Knowledge;
use bellwether_operator::client::{self, ClientArguments};
use bellwether_operator::nodes::SlotRule;
use bellwether_operator::operator::{self, Options};
use bellwether_operator::pod::{self, PodCommand};
use bellwether_serve::daemon::view::check_listen;
use clap::{Args, Parser, Subcommand};

/// Trains elastic jobs on Kubernetes
#[derive(Debug, Parser)]
#[command(name = "bellwether-operator", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the custom resource definitions
    Crd(CrdArguments),
    /// Look after the elastic jobs of a cluster
    Run(Box<RunArguments>),
    /// Answer `bellwether … --kubernetes`; only that command needs it
    Client(ClientArguments),
    /// Do a pod's work; only the operator's own pods need it
    #[command(subcommand)]
    Pod(PodCommand),
}

#[derive(Debug, Args)]
struct CrdArguments {
    /// Leave the CEL rules out: servers before 1.25 refuse them when they are applied server-side
    #[arg(long)]
    without_rules: bool,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Its own namespace, which holds its Lease and its key
    #[arg(long, default_value = "bellwether-system")]
    namespace: String,
    /// Who it is, among several operators
    #[arg(long)]
    identity: Option<String>,
    /// Folder of its ledger, and of the copies of runs' folders
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bellwether-operator")]
    state_dir: PathBuf,
    /// The image with Bellwether's programs, for pods whose template names none
    #[arg(long, default_value = "bellwether:latest")]
    image: String,
    /// Where pods reach this operator
    #[arg(long, value_name = "URL", default_value = "http://bellwether-operator.bellwether-system.svc:8080")]
    url: String,
    /// Address on which pods reach it
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8081")]
    listen_metrics: SocketAddr,
    /// Address of loopback at which the dashboard is, for those who forward the port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8082")]
    listen_dashboard: SocketAddr,
    /// The policy that decides from now on
    #[arg(long)]
    policy: Option<String>,
    /// What policies are told of a job's remaining work: expected (from how jobs of its kind ended so far) or nominal
    /// (all that it declares) [default: as before; expected in the beginning]
    #[arg(long, value_name = "KNOWLEDGE", value_parser = Knowledge::of_live_jobs)]
    remaining: Option<Knowledge>,
    /// The resource by which GPUs are counted
    #[arg(long, default_value = "nvidia.com/gpu")]
    gpu_resource: String,
    /// Processors of a slot on nodes without GPUs, where no node has any; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    processors_per_slot: f64,
    /// Keys of taints that jobs tolerate: nodes with others take no pods
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    tolerate: Vec<String>,
    /// The command that loads data of jobs
    #[arg(long, value_name = "PROGRAM", default_value = "bellwether")]
    command: PathBuf,
}

fn main() -> ExitCode {
    match dispatch(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Crd(CrdArguments { without_rules }) => {
            let text = bellwether_operator::crd::crds(!without_rules);
            match std::io::stdout().write_all(text.as_bytes()) {
                // Who reads has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written.context("the definitions cannot be printed")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Pod(command) => Ok(pod::run(&command)),
        Verb::Run(arguments) => {
            event_loop()?.block_on(run(*arguments))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Client(arguments) => {
            let event_loop = event_loop()?;
            let ended = event_loop.block_on(client::run(&arguments, asked_to_end()));
            // A name that is still looked up would hold up the command that waits for this.
            event_loop.shutdown_background();
            Ok(ended?)
        }
    }
}

fn event_loop() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("no event loop")
}

async fn run(arguments: RunArguments) -> Result<()> {
    check_listen(arguments.listen_dashboard).context("--listen-dashboard")?;
    let client = kube::Client::try_default().await.context("Kubernetes cannot be found")?;
    let mut slots = SlotRule { processors: arguments.processors_per_slot, ..SlotRule::default() };
    slots.tolerated = arguments.tolerate.into_iter().chain([arguments.gpu_resource.clone()]).collect();
    slots.gpu = arguments.gpu_resource;
    let identity = arguments.identity.or_else(|| std::env::var("HOSTNAME").ok());
    let options = Options {
        client,
        namespace: arguments.namespace,
        identity: identity.unwrap_or_else(|| format!("process-{}", std::process::id())),
        folder: arguments.state_dir,
        image: arguments.image,
        url: arguments.url,
        listen: arguments.listen,
        listen_metrics: arguments.listen_metrics,
        listen_dashboard: arguments.listen_dashboard,
        policy: arguments.policy,
        remaining: arguments.remaining,
        slots,
        program: arguments.command,
        log: Arc::new(|what| eprintln!("{what}")),
    };
    let work = operator::run(options);
    tokio::select! {
        ended = work => ended,
        () = asked_to_end() => Ok(()),
    }
}

/// SIGINT or SIGTERM: the jobs go on, and the next operator takes them over.
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Where the system does not let us listen, a signal ends it as it ends any process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
