//! `bellwether serve`: many jobs share this machine under any policy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bellwether::serve::{Simulated, machine_of};
use bellwether_core::InputError;
use bellwether_core::knowledge::Knowledge;
use bellwether_core::units::{Bytes, Seconds};
use bellwether_sched::registry::Registry;
use bellwether_serve::daemon::{self, Daemon, DaemonError, Protection};
use bellwether_serve::engine::EngineError;
use bellwether_serve::ledger::Damage;
use bellwether_serve::loading::LoadLimits;
use bellwether_serve::machine::{Machine, SlurmJobs};
use bellwether_serve::runner::cluster;
use bellwether_session::reachable;
use bellwether_session::slurm::{Slurm, Submit};
use bellwether_sim::cluster::Cluster;
use clap::{Args, ValueEnum};

use crate::elsewhere;
use crate::failure::Failure;
use crate::files;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::StateDir;

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The policy that decides, with options after a colon (`bellwether policies` explains them) [default: as before,
    /// at first fair]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// Slots for workers: a number, nodes x slots such as 2x2:fast,2x2:slow, or a cluster file (TOML) [default: as before,
    /// at first one for each core]
    #[arg(long, value_name = "N|CLUSTER")]
    pub(crate) slots: Option<String>,
    /// Divide the slots among queues as this file says (TOML; `bellwether schema queues`) [default: as before, at first
    /// not]
    #[arg(long, value_name = "QUEUES.toml")]
    pub(crate) queues: Option<PathBuf>,
    /// Where jobs run: on this machine, or on the nodes of a Slurm partition, as jobs that Slurm starts [default: as
    /// before, at first here]
    #[arg(long, value_enum, conflicts_with = "slots")]
    pub(crate) on: Option<On>,
    /// The partition whose nodes are dealt out
    #[arg(long, value_name = "NAME", requires = "on")]
    pub(crate) partition: Option<String>,
    /// Processors of a slot, on nodes without GPUs; where there are GPUs, each is a slot
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) processors_per_slot: Option<u32>,
    /// An option of sbatch for each worker's job, passed on untouched: --sbatch=--account=research
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, requires = "on")]
    pub(crate) sbatch: Vec<String>,
    /// The beginning of each job's script: #SBATCH lines, passed on untouched, and commands such as `module load`
    #[arg(long, value_name = "FILE", requires = "on")]
    pub(crate) sbatch_script: Option<PathBuf>,
    /// Where the HTTP API listens [default: where it was, or a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Speak HTTPS, with a certificate of the daemon's own [default: on addresses that are not loopback]
    #[arg(long, conflicts_with = "plain_http")]
    pub(crate) https: bool,
    /// Speak HTTPS with the certificate, and those of who signed it, in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "plain_http")]
    pub(crate) certificate: Option<PathBuf>,
    /// The private key of --certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Take the token over plain HTTP: only where somebody else encrypts all the way, such as a proxy in front of it
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Folder of the jobs' runs and of the daemon's own files
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Seconds of the clock that policies see in a real second, for policies that wait for hours
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// How often a job is tried again after its processes failed
    #[arg(long, value_name = "N", default_value_t = daemon::RETRIES)]
    pub(crate) retries: u32,
    /// What policies are told of a job's remaining work: expected (from how jobs of its kind ended so far) or nominal
    /// (all that it declares) [default: as before; expected in the beginning]
    #[arg(long, value_name = "KNOWLEDGE", value_parser = Knowledge::of_live_jobs)]
    pub(crate) remaining: Option<Knowledge>,
    /// Length from which on the daemon compacts its ledger: what follows from the lines takes their place, and they
    /// move to ledger.jsonl.before
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(daemon::COMPACT_AT_BYTES))]
    pub(crate) compact_at: Bytes,
    /// Memory that loading a submitted job's data may take; larger files are refused
    #[arg(long, value_name = "SIZE", default_value = "8GiB")]
    pub(crate) load_memory: Bytes,
    /// Time that it may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) load_timeout: Seconds,
    /// How the address is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    Here,
    Slurm,
}

/// The nodes of a partition as slots.
fn partition(arguments: &ServeArguments) -> Result<Option<Machine>, Failure> {
    if arguments.on != Some(On::Slurm) {
        let options = [
            ("--partition", arguments.partition.is_some()),
            ("--processors-per-slot", arguments.processors_per_slot.is_some()),
            ("--sbatch", !arguments.sbatch.is_empty()),
            ("--sbatch-script", arguments.sbatch_script.is_some()),
        ];
        if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
            let error =
                InputError::new(*option, "jobs are processes of this machine, and no jobs of Slurm's");
            return Err(error.hint("say --on slurm").into());
        }
        return Ok(None);
    }
    let Some(partition) = arguments.partition.clone() else {
        let error = InputError::new("--on slurm", "which nodes are to be dealt out is not said");
        return Err(error.hint("name a partition: --partition NAME; `sinfo` lists them").into());
    };
    let script = elsewhere::script_in(arguments.sbatch_script.as_deref())?;
    let jobs = SlurmJobs { partition, options: arguments.sbatch.clone(), script, ..SlurmJobs::default() };
    let machine = cluster::machine(jobs, arguments.processors_per_slot.unwrap_or(1))?;
    if let Some(SlurmJobs { options, script, .. }) = machine.slurm.clone() {
        Slurm::new(Submit { options, script }).check()?;
    }
    Ok(Some(machine))
}

pub(crate) fn serve(arguments: ServeArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let registry = Registry::built_in();
    if let Some(name) = &arguments.policy {
        registry.parse(name)?;
    }
    let queues = arguments.queues.as_deref().map(files::read_queues).transpose()?;
    let scale = arguments.time_scale;
    if let Some(scale) = scale.filter(|scale| !(*scale >= 1e-3 && *scale <= 1e6)) {
        let error = InputError::new("--time-scale", format!("{scale} is not a factor for a clock"));
        return Err(error.hint("write a number from 0.001 to 1000000; 1 is real time").into());
    }
    if let Some(address) = arguments.listen {
        reachable(address)?;
    }
    let dashboard = match &arguments.state_dir {
        Some(folder) => format!("bellwether dashboard --state-dir {}", folder.display()),
        None => "bellwether dashboard".into(),
    };
    let partition = partition(&arguments)?;
    let protection = match (arguments.certificate, arguments.key) {
        (Some(certificate), Some(key)) => Protection::Https(Some((certificate, key))),
        _ if arguments.https => Protection::Https(None),
        _ if arguments.plain_http => Protection::Elsewhere,
        _ => Protection::Usual,
    };
    let state_dir = StateDir::find(arguments.state_dir)?;
    state_dir.make()?;
    let machine = match partition {
        Some(partition) => Some(partition),
        None => arguments.slots.as_deref().map(machine).transpose()?,
    };
    let notes = *printer;
    let daemon = Daemon::open(daemon::Options {
        state_dir,
        listen: arguments.listen,
        protection,
        program: std::env::current_exe().map_err(|e| Failure::at("this program", e))?,
        machine,
        policy: arguments.policy,
        queues,
        outlook: Some(Box::new(Simulated { registry: registry.clone() })),
        registry,
        time_scale: scale,
        tell: Box::new(move |what| notes.note(format_args!("note: {what}"))),
        retries: arguments.retries,
        remaining: arguments.remaining,
        compact_at: arguments.compact_at.0,
        loading: LoadLimits {
            memory: arguments.load_memory,
            patience: Duration::from_secs_f64(arguments.load_timeout.get()),
        },
    });
    let daemon = daemon.map_err(explain)?;
    if let Some(damage) = daemon.damage() {
        lament(damage, printer);
    }
    match daemon.compaction() {
        Some(Ok(compaction)) => printer.note(format_args!("the ledger was {compaction}")),
        Some(Err(why)) => printer.note(format_args!("warning: the ledger was not compacted: {why}")),
        None => {}
    }
    announce(&daemon, &dashboard, arguments.format, printer);
    daemon.run().map_err(explain)?;
    printer.note("the daemon has stopped; jobs that run go on, and `bellwether serve` takes them over again");
    Ok(ExitCode::SUCCESS)
}

/// No secret is among it: what a service prints lies in logs.
fn announce(daemon: &Daemon, dashboard: &str, format: Format, printer: &Printer) {
    let endpoint = daemon.endpoint();
    let (policy, slots, open) = daemon.summary();
    match format {
        Format::Json => printer.out(serde_json::json!({
            "address": endpoint.address, "url": endpoint.url, "process": endpoint.process,
            "policy": policy, "slots": slots, "jobs": open, "connection": daemon.connection(),
            "fingerprint": daemon.fingerprint().map(|fingerprint| fingerprint.to_string()),
        })),
        Format::Table => {
            let jobs = if open == 1 { "1 job has".into() } else { format!("{open} jobs have") };
            printer.out(format_args!(
                "serving on {}: {slots} slots under {policy}, {jobs} not ended",
                endpoint.url
            ));
            if let Some(fingerprint) = daemon.fingerprint() {
                printer.out(format_args!("certificate  {fingerprint}"));
            }
            if let Some(path) = daemon.connection() {
                printer.out(format_args!("clients elsewhere need a copy of {}", path.display()));
            }
            printer.out(format_args!("`{dashboard}` prints an address that opens the dashboard"));
        }
    }
}

/// Says what a ledger has lost, and what follows from it.
fn lament(damage: &Damage, printer: &Printer) {
    let Damage { lines, first, kept_as } = damage;
    let count = if *lines == 1 { "1 line was".into() } else { format!("{lines} lines were") };
    printer.note(format_args!(
        "warning: the ledger was damaged: {count} set aside; it is kept as it was in {kept_as}"
    ));
    for (number, what) in first {
        printer.note(format_args!("  line {number} {what}"));
    }
    printer.note(
        "  hint: all jobs leave with a checkpoint and are decided on again; look with `bellwether jobs` whether one is missing, and \
         submit it again: its run is still in its folder",
    );
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
        let hint = "leave mean_time_to_failure, mean_time_to_repair, longest_life and lifetimes out";
        return Err(InputError::new(text, what).hint(hint).into());
    }
    Ok(machine_of(&cluster))
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
