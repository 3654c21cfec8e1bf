//! The arguments of `bellwether profile`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_workloads::Pace;
use clap::Args;

use crate::elsewhere::ElsewhereArguments;
use crate::job::ScriptArguments;
use crate::options::assignment;

#[derive(Debug, Args)]
pub(crate) struct ProfileArguments {
    /// The job file, or a Python script that declares its job
    #[arg(required_unless_present = "import", value_name = "JOB.toml|SCRIPT.py")]
    pub(crate) job: Option<PathBuf>,
    /// Read a trace of the PyTorch or TensorFlow profiler instead
    #[arg(long, value_name = "TRACE.json[.gz]", conflicts_with = "job")]
    pub(crate) import: Option<PathBuf>,
    /// Measurements without the profiler that belong to the trace: times of steps, bare exchanges over the cluster's
    /// link
    #[arg(long, value_name = "FILE.json", requires = "import")]
    pub(crate) apart: Option<PathBuf>,
    /// Let the script's framework record some steps by its own profiler too, in a short run after the measured one, and
    /// leave its files in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "import")]
    pub(crate) framework_trace: Option<PathBuf>,
    /// Where the profile is written [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Steps to measure, after warm-up, on one worker and again on two; of asynchronous training updates, on one worker
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) steps: u64,
    /// Measure these batches too, on one worker, in samples of a step: how long a micro-batch takes by its size
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "import")]
    pub(crate) batches: Vec<u64>,
    /// Let the workers that are started here compute at this part of their speed, as those of `run --speed`
    #[arg(long, value_name = "SPEED", conflicts_with = "import")]
    pub(crate) speed: Option<Pace>,
    /// Set a key of the job file, for example batch.size=64
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// Address at which a peer on another machine reaches this one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Start no second worker here: it joins by hand, from the machine whose link is to be measured; of asynchronous
    /// training both the worker and the server do
    #[arg(long, requires = "listen")]
    pub(crate) peer_by_hand: bool,
    #[command(flatten)]
    pub(crate) elsewhere: ElsewhereArguments,
    /// Where a profile by Slurm's jobs keeps what it needs meanwhile, a folder that the nodes see [default: that of
    /// runs]
    #[arg(long, value_name = "DIR", conflicts_with = "import")]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
}
