//! `bellwether serve`: many jobs share this machine under any policy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_sched::policy;
use bellwether_serve::daemon::{self, Daemon, DaemonError};
use bellwether_serve::engine::EngineError;
use bellwether_serve::ledger::Task;
use bellwether_serve::machine::{DeviceType, Machine, MachineNode};
use bellwether_sim::cluster::Cluster;
use clap::Args;

use super::run::{describe, reachable};
use crate::args::Format;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::StateDir;

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The policy that decides, with options after a colon (`bellwether policies` explains them) [default: as before]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// Slots for workers: a number, nodes x slots such as 2x2:fast,2x2:slow, or a cluster file (TOML) [default: as before]
    #[arg(long, value_name = "N|CLUSTER")]
    pub(crate) slots: Option<String>,
    /// Where the HTTP API listens [default: where it was, or a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Folder of the jobs' runs and of the daemon's own files
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Seconds of the clock that policies see in a real second, for policies that wait for hours
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// How often a job is tried again after its processes failed
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) retries: u32,
    /// How the address is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

pub(crate) fn serve(arguments: ServeArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(name) = &arguments.policy {
        policy::parse(name)?;
    }
    let scale = arguments.time_scale;
    if let Some(scale) = scale.filter(|scale| !(*scale >= 1e-3 && *scale <= 1e6)) {
        let error = InputError::new("--time-scale", format!("{scale} is no factor for a clock"));
        return Err(error.hint("write a number from 0.001 to 1000000; 1 is real time").into());
    }
    if let Some(address) = arguments.listen {
        reachable("--listen", address)?;
    }
    let state_dir = StateDir::find(arguments.state_dir)?;
    let folder = state_dir.make()?;
    let machine = arguments.slots.as_deref().map(machine).transpose()?;
    let daemon = Daemon::open(daemon::Options {
        state_dir: folder,
        listen: arguments.listen,
        program: std::env::current_exe().map_err(|e| Failure::at("this program", e))?,
        machine,
        policy: arguments.policy,
        time_scale: scale,
        retries: arguments.retries,
        prepare: Box::new(move |name, job| {
            state_dir.create_named(name, job).map(|run| run.path).map_err(|failure| failure.to_string())
        }),
        describe: Arc::new(task),
    });
    let daemon = daemon.map_err(explain)?;
    announce(&daemon, arguments.format, printer);
    daemon.run().map_err(explain)?;
    printer.note("the daemon has stopped; jobs that run go on, and `bellwether serve` takes them over again");
    Ok(ExitCode::SUCCESS)
}

fn announce(daemon: &Daemon, format: Format, printer: &Printer) {
    let endpoint = daemon.endpoint();
    let (policy, slots, open) = daemon.summary();
    match format {
        Format::Json => printer.out(serde_json::json!({
            "address": endpoint.address, "url": endpoint.url, "process": endpoint.process,
            "dashboard": daemon.dashboard(), "policy": policy, "slots": slots, "jobs": open,
        })),
        Format::Table => {
            let jobs = if open == 1 { "1 job has".into() } else { format!("{open} jobs have") };
            printer.out(format_args!(
                "serving on {}: {slots} slots under {policy}, {jobs} not ended",
                endpoint.url
            ));
            printer.out(format_args!("dashboard  {}", daemon.dashboard()));
        }
    }
}

/// Learns the size of a job's task, as a worker would.
fn task(job: &Job) -> Result<Task, InputError> {
    let trainee = describe(job)?;
    let bytes = 4 * (trainee.layout.parameter_count() + trainee.layout.state_count()) as u64;
    Ok(Task { training_samples: trainee.training_samples, bytes })
}

/// The slots that the user describes.
fn machine(text: &str) -> Result<Machine, Failure> {
    if let Ok(slots) = text.trim().parse::<u32>() {
        if !(1..=10_000).contains(&slots) {
            let error = InputError::new("--slots", format!("{slots} slots")).hint("write 1 to 10000");
            return Err(error.into());
        }
        return Ok(Machine::slots(slots));
    }
    let cluster = match Path::new(text).is_file() {
        true => {
            let content = std::fs::read_to_string(text).map_err(|e| Failure::at(text, e))?;
            Cluster::from_file(&content, text)?
        }
        false => Cluster::from_words(text).map_err(|error| {
            let hint =
                "write a number, nodes x slots such as 2x2:fast,2x2:slow, or name a cluster file (TOML)";
            InputError { place: "--slots".into(), ..error }.hint(hint)
        })?,
    };
    if cluster.outages.iter().any(Option::is_some) {
        let what = "the cluster file lets nodes fail, and real ones fail by themselves";
        let hint = "leave mean_time_to_failure, mean_time_to_repair and longest_life out";
        return Err(InputError::new(text, what).hint(hint).into());
    }
    Ok(of_cluster(&cluster))
}

/// Speeds are relative to the fastest: no slot can be made faster than this machine is.
fn of_cluster(cluster: &Cluster) -> Machine {
    let view = &cluster.view;
    let speed = |name: &String| cluster.device_speeds.get(name).copied().unwrap_or(1.0);
    let fastest = view.device_types.iter().map(speed).fold(f64::MIN_POSITIVE, f64::max);
    let kind = |name: &String| DeviceType { name: name.clone(), speed: speed(name) / fastest };
    Machine {
        device_types: view.device_types.iter().map(kind).collect(),
        nodes: view
            .nodes
            .iter()
            .map(|node| MachineNode { device_type: node.device_type, devices: node.devices })
            .collect(),
        link: view.link,
        local_link: view.local_link,
        restart_s: view.restart_s,
    }
}

fn explain(error: DaemonError) -> Failure {
    match error {
        DaemonError::Input(error) | DaemonError::Engine(EngineError::Input(error)) => error.into(),
        DaemonError::Engine(EngineError::Fault(bellwether_core::policy::Fault::Broken(what))) => {
            Failure::Broken(format!(
                "{what}\n  hint: jobs that run go on; `bellwether serve --policy NAME` takes them over with another policy"
            ))
        }
        DaemonError::Engine(error) => Failure::at("serve", error),
    }
}
