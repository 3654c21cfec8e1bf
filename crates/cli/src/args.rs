//! What a user may type.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_core::job::WorkerRange;
use bellwether_core::units::Seconds;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Trains deep-learning models elastically: workers join, leave and die, the result stays the same.
#[derive(Debug, Parser)]
#[command(name = "bellwether", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Train a job on this machine, and on machines that join by hand
    Run(RunArguments),
    /// Join a run as a worker
    Worker(WorkerArguments),
    /// List the runs in the state directory
    Jobs(StateArguments),
    /// Change the number of workers of a running job
    Scale(ScaleArguments),
    /// Stop a running job; it leaves a checkpoint
    Stop(JobArguments),
    /// Follow a running job
    Watch(JobArguments),
    /// Prove from a run's journal that each sample was in exactly one committed step
    Audit(JobArguments),
    /// Measure this program on this machine
    Bench(crate::cmd::bench::BenchArguments),
    /// Print the JSON schema of a file format
    Schema(SchemaArguments),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
}

/// Where runs are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StateArguments {
    /// Folder of the runs [default: $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The job file
    #[arg(required_unless_present = "resume", value_name = "JOB.toml")]
    pub(crate) job: Option<PathBuf>,
    /// Number of workers, or a range within which it may be chosen
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) workers: Option<WorkerRange>,
    /// Change the number of workers at these steps, exactly
    #[arg(long, value_name = "STEP:N,…", value_delimiter = ',', value_parser = resize)]
    pub(crate) resize: Vec<(u64, u32)>,
    /// Set a key of the job file, for example optimizer.learning_rate=0.05
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// Train this many steps, whatever the job file says
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Go on with a run that was stopped, failed, or whose coordinator died
    #[arg(long, value_name = "RUN", conflicts_with_all = ["job", "set", "steps"])]
    pub(crate) resume: Option<String>,
    /// Address of the control plane; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Start no workers here: all join by hand with `bellwether worker`
    #[arg(long)]
    pub(crate) no_spawn: bool,
    /// Silence after which a worker counts as lost (a broken connection counts at once)
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) heartbeat_timeout: Seconds,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// The coordinator of the run
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: String,
    /// File with the run's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Address on which other workers reach this one; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// How long to keep the state and wait when the coordinator is gone
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub(crate) orphan_timeout: Seconds,
    /// Number that the coordinator gave to a worker it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) worker_id: u64,
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// Name of the run, or of the job (its newest run)
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleArguments {
    #[command(flatten)]
    pub(crate) job: JobArguments,
    /// Workers wanted from now on
    #[arg(long, value_name = "N")]
    pub(crate) workers: u32,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Which format
    #[arg(value_enum)]
    pub(crate) format: SchemaKind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaKind {
    /// The job file
    Job,
}

fn resize(text: &str) -> Result<(u64, u32), String> {
    let wrong = || format!("`{text}` is not STEP:N, for example 20:4");
    let (step, workers) = text.split_once(':').ok_or_else(wrong)?;
    let (step, workers) =
        (step.trim().parse().map_err(|_| wrong())?, workers.trim().parse().map_err(|_| wrong())?);
    if step == 0 || workers == 0 {
        return Err(format!("`{text}`: the step and the number of workers are at least 1"));
    }
    Ok((step, workers))
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}
