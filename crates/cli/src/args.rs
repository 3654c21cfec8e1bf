//! What a user may type.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_core::job::{Reduce, SyncPolicy, WorkerRange};
use bellwether_core::prediction::Protocol;
use bellwether_core::units::{Bytes, BytesPerSecond, Seconds};
use bellwether_runtime::notice::Source;
use bellwether_workloads::{Flip, Pace};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::client;

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
    Run(Box<RunArguments>),
    /// Measure a job on one worker, for `predict` and `plan`
    Profile(ProfileArguments),
    /// Predict the throughput of other configurations from a profile
    Predict(PredictArguments),
    /// Choose the machines for a job from a price catalogue, by deadline and budget
    Plan(crate::cmd::plan::PlanArguments),
    /// Find out, by training a recurring job again and again, how it is trained best
    Tune(crate::cmd::tune::TuneArguments),
    /// Run a trace of jobs on a simulated cluster under any scheduling policies
    Simulate(crate::cmd::simulate::SimulateArguments),
    /// Show where a GPU puts the thread blocks of kernels that run side by side, and what that costs them
    Place(crate::cmd::place::PlaceArguments),
    /// Explain the scheduling policies
    Policies(crate::cmd::policies::PoliciesArguments),
    /// Describe a trace of jobs, or draw one from a generator
    Trace(crate::cmd::trace::TraceArguments),
    /// Find out whether datacenters should share, how much, and who pays whom
    Federate(crate::cmd::federate::FederateArguments),
    /// Share this machine among many jobs under any policy, with an HTTP API and a dashboard
    Serve(crate::cmd::serve::ServeArguments),
    /// Learn the size of the job on standard input, for a daemon
    #[command(hide = true)]
    Describe(DescribeArguments),
    /// Join a run as a worker
    Worker(WorkerArguments),
    /// Join a run as a parameter server
    Server(ServerArguments),
    /// Give jobs to a daemon (`bellwether serve`), which runs them as its policy says
    Submit(client::SubmitArguments),
    /// List a daemon's jobs and the runs in the state directory
    Jobs(client::JobsArguments),
    /// Tell all that a daemon knows of a job, with the last decisions about it
    Job(client::ServedArguments),
    /// Print what happened in a daemon's job and what its processes said
    Logs(client::LogsArguments),
    /// Let a daemon's jobs wait, each with a checkpoint
    Suspend(client::ActArguments),
    /// Let suspended jobs run again
    Resume(client::ActArguments),
    /// End a daemon's jobs
    Cancel(client::ActArguments),
    /// Print an address that opens a daemon's dashboard in a browser, once
    Dashboard(client::DashboardArguments),
    /// Show or change the policy by which a daemon decides
    Policy(client::PolicyArguments),
    /// Change the number of workers of a job
    Scale(client::ScaleArguments),
    /// Stop a run; it leaves a checkpoint
    Stop(client::ServedArguments),
    /// Follow a job
    Watch(client::ServedArguments),
    /// Prove from a run's journal that each sample was in exactly one committed step
    Audit(JobArguments),
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
    /// Train as this plan says: its number of workers, its protocols and servers, its order of transmission
    #[arg(long, value_name = "PLAN.json", conflicts_with = "resume")]
    pub(crate) plan: Option<PathBuf>,
    /// Change the number of workers at these steps, exactly
    #[arg(long, value_name = "STEP:N,…", value_delimiter = ',', value_parser = resize)]
    pub(crate) resize: Vec<(u64, u32)>,
    /// Let updates cover this many steps of the job's batch from these steps on, whatever is measured (mode `goodput`)
    #[arg(long, value_name = "STEP:FACTOR,…", value_delimiter = ',', value_parser = resize)]
    pub(crate) batch_schedule: Vec<(u64, u32)>,
    /// Set a key of the job file, for example optimizer.learning_rate=0.05
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// Train this many steps, whatever the job file says
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Go on with a run that was stopped, failed, or whose coordinator died
    #[arg(long, value_name = "RUN", conflicts_with_all = ["job", "set", "steps", "batch_schedule"])]
    pub(crate) resume: Option<String>,
    /// Go on with a run though data or kernels are not those that it was trained with so far; the result is that of
    /// neither, and the journal says so
    #[arg(long, requires = "resume")]
    pub(crate) accept_other_data: bool,
    /// Encrypt nothing between the machines of this run, for this reason, which the journal keeps; who may join is still
    /// proved by the token, and whoever is on the way reads and changes the rest
    #[arg(long, value_name = "REASON", conflicts_with = "resume", value_parser = reason)]
    pub(crate) plain_transport: Option<String>,
    /// Address of the control plane; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Start no workers here: all join by hand with `bellwether worker`
    #[arg(long)]
    pub(crate) no_spawn: bool,
    /// Let the workers compute at these speeds, in the order in which they start; with a time (0.5@20s) one turns slow
    /// then, which nobody is told, or never returns (hang@20s computes, block@20s waits for ever)
    #[arg(long, value_name = "SPEED[@TIME],…", value_delimiter = ',', conflicts_with = "no_spawn")]
    pub(crate) worker_speed: Vec<Pace>,
    /// Let all workers compute at this part of their speed, those that start later too
    #[arg(long, value_name = "SPEED", conflicts_with_all = ["no_spawn", "worker_speed"])]
    pub(crate) speed: Option<Pace>,
    /// Let this worker compute one virtual node of one step wrong, by one bit, to try what `verify_every` finds; `:once`
    /// the first time only
    #[arg(long, value_name = "WORKER:STEP:NODE[:once]", value_parser = planted, conflicts_with = "no_spawn")]
    pub(crate) flip_bit: Option<(u64, Flip)>,
    #[command(flatten)]
    pub(crate) revocation: crate::cmd::run::revocations::RevocationArguments,
    #[command(flatten)]
    pub(crate) steer: crate::cmd::run::SteerArguments,
    /// Silence after which a worker counts as lost (a broken connection counts at once)
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) heartbeat_timeout: Seconds,
    /// Replace a worker that hangs even if nobody could go on without it; the run goes back to its last checkpoint
    #[arg(long)]
    pub(crate) replace_lone_worker: bool,
    /// How long committed steps that only lost workers hold wait for these, before the run goes back to its checkpoint
    #[arg(long, value_name = "TIME", default_value = "4s")]
    pub(crate) grace: Seconds,
    /// How long the workers hold the state when the checkpoint of the last step cannot be written; then the run fails
    #[arg(long, value_name = "TIME", default_value = "5min")]
    pub(crate) last_checkpoint_wait: Seconds,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArguments {
    /// The job file
    #[arg(required_unless_present = "import", value_name = "JOB.toml")]
    pub(crate) job: Option<PathBuf>,
    /// Read a trace of the PyTorch or TensorFlow profiler instead
    #[arg(long, value_name = "TRACE.json[.gz]", conflicts_with = "job")]
    pub(crate) import: Option<PathBuf>,
    /// Where the profile is written [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Steps to measure, after warm-up, on one worker and again on two; of asynchronous training updates, on one worker
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) steps: u64,
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
}

#[derive(Debug, Args)]
pub(crate) struct PredictArguments {
    /// The profile, made by `bellwether profile`
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: PathBuf,
    /// Numbers of workers to answer for [default: 1..64, or as many as there are virtual nodes]
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) workers: Option<WorkerRange>,
    /// Who waits for whom: bsp, asp, ssp:K or gossip
    #[arg(long, value_name = "PROTOCOL", default_value_t = Protocol::Bsp)]
    pub(crate) protocol: Protocol,
    /// A whole run whose protocol may change: a protocol, switch:SHARE[:PROTOCOL], or a table as in the job file
    /// ({switch_at = 0.0625}); how long it is say --steps
    #[arg(long, value_name = "POLICY", conflicts_with = "protocol", requires = "steps")]
    pub(crate) sync: Option<SyncPolicy>,
    /// A whole run that is synchronous for this share of the steps and asynchronous after it
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["protocol", "sync"], requires = "steps", value_parser = switch)]
    pub(crate) switch_at: Option<SyncPolicy>,
    /// Steps of the whole run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) steps: Option<u64>,
    /// Time for which each switch stalls the run
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) switch_time: Seconds,
    /// Where gradients are summed while all wait for all: all-reduce or servers [default: servers if --servers says so]
    #[arg(long, value_name = "WHERE", value_parser = reduce)]
    pub(crate) reduce: Option<Reduce>,
    /// Virtual nodes whose gradients make one update through servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes_per_update: u32,
    /// Parameter servers [default: 0 for bsp and gossip, else 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) servers: Option<u32>,
    /// Bandwidth of each worker's and server's link, in each direction [default: as measured]
    #[arg(long, value_name = "RATE")]
    pub(crate) bandwidth: Option<BytesPerSecond>,
    /// Latency of a link [default: as measured]
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<Seconds>,
    /// A device and its speed relative to the profiled one; with counts, the workers are exactly these
    #[arg(long, value_name = "NAME=SPEED[:COUNT]", value_parser = device)]
    pub(crate) device: Vec<Device>,
    /// Samples per step: of all workers together where they wait for each other, else of each update
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) batch: Option<u64>,
    /// How closely to look: auto takes the coarse model wherever there is one
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) model: Fidelity,
    /// Order in which parts are sent, for the fine-grained model: fifo, round-robin:BYTES, tic or tac
    #[arg(long, value_name = "ORDER", default_value = "fifo", value_parser = order)]
    pub(crate) order: Order,
    /// Seed of the fine-grained model's random draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: TableFormat,
    /// Draw throughput over workers
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Write the execution that the fine-grained model imagines for the most workers, for Perfetto or Chrome
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
}

/// A type of device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Device {
    /// Its name.
    pub(crate) name: String,
    /// Its speed, relative to the profiled device.
    pub(crate) speed: f64,
    /// How many there are.
    pub(crate) count: Option<u32>,
}

/// How closely `predict` looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fidelity {
    /// Every operation of every worker.
    Fine,
    /// Formulas over phases.
    Coarse,
    /// The coarse model wherever there is one.
    Auto,
}

/// Order in which parts are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As asked for.
    Fifo,
    /// In turns of so many bytes.
    RoundRobin(Bytes),
    /// What the most operations wait for first, whatever the times.
    Tic,
    /// The same with times.
    Tac,
}

/// How a result of many rows is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
    /// For spreadsheets.
    Csv,
}

fn device(text: &str) -> Result<Device, String> {
    let wrong = || format!("`{text}` is not NAME=SPEED or NAME=SPEED:COUNT, for example p100=2.3 or k80=1:4");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (speed, count) = match rest.split_once(':') {
        Some((speed, count)) => (speed, Some(count.parse().map_err(|_| wrong())?)),
        None => (rest, None),
    };
    let speed: f64 = speed.parse().map_err(|_| wrong())?;
    if name.is_empty() || !(speed.is_finite() && speed > 0.0) || count.is_some_and(|c: u32| c > 100_000) {
        return Err(wrong());
    }
    Ok(Device { name: name.into(), speed, count })
}

fn switch(text: &str) -> Result<SyncPolicy, String> {
    format!("switch:{text}").parse()
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why, for example --plain-transport \"the network encrypts (WireGuard)\"".into()),
        reason => Ok(reason.into()),
    }
}

fn reduce(text: &str) -> Result<Reduce, String> {
    match text {
        "all-reduce" => Ok(Reduce::AllReduce),
        "servers" => Ok(Reduce::Servers),
        _ => Err(format!("`{text}` is no place; write all-reduce or servers")),
    }
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "fifo" => Ok(Order::Fifo),
        "tic" => Ok(Order::Tic),
        "tac" => Ok(Order::Tac),
        _ => match text.strip_prefix("round-robin:").map(str::parse) {
            Some(Ok(Bytes(bytes))) if bytes > 0 => Ok(Order::RoundRobin(Bytes(bytes))),
            _ => Err(format!("`{text}` is no order; write fifo, round-robin:1MiB, tic or tac")),
        },
    }
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Memory that it may take; larger files are refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Bytes,
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
    /// Compute as if the device had this part of its speed, from some time on if SPEED@TIME
    #[arg(long, value_name = "SPEED[@TIME]")]
    pub(crate) speed: Option<Pace>,
    /// Compute one virtual node of one step wrong, by one bit, to try what `verify_every` finds
    #[arg(long, value_name = "STEP:NODE[:once]")]
    pub(crate) flip_bit: Option<Flip>,
    /// Who says that this server will be taken away: none, or any of gce, ec2, sigterm, gce=URL, ec2=URL
    #[arg(long, value_name = "SOURCE,…", default_value = "none", value_parser = notices)]
    pub(crate) notices: Notices,
    /// Time between two questions to each of them
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = notice_interval)]
    pub(crate) notice_interval: Seconds,
    /// Number that the coordinator gave to a worker it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) worker_id: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// The coordinator of the run
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) join: String,
    /// File with the run's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Address on which workers reach this server; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// How long to wait when the coordinator is gone
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub(crate) orphan_timeout: Seconds,
    /// Number that the coordinator gave to a server it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) server_id: u64,
}

/// A worker's number, and what it computes wrong.
fn planted(text: &str) -> Result<(u64, Flip), String> {
    let parsed =
        text.split_once(':').and_then(|(worker, flip)| Some((worker.parse().ok()?, flip.parse().ok()?)));
    parsed.ok_or_else(|| format!("`{text}` is not WORKER:STEP:NODE or WORKER:STEP:NODE:once, such as 2:17:3"))
}

/// Sources of the provider's notices.
#[derive(Debug, Clone)]
pub(crate) struct Notices(pub(crate) Vec<Source>);

fn notices(text: &str) -> Result<Notices, String> {
    match text {
        "none" => Ok(Notices(Vec::new())),
        _ => text.split(',').map(str::parse).collect::<Result<_, _>>().map(Notices),
    }
}

fn notice_interval(text: &str) -> Result<Seconds, String> {
    let interval: Seconds = text.parse()?;
    // The shortest notice is of half a minute.
    if !(0.1..=30.0).contains(&interval.get()) {
        return Err(format!("`{text}` is not between 100ms and 30s"));
    }
    Ok(interval)
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
pub(crate) struct SchemaArguments {
    /// Which format
    #[arg(value_enum)]
    pub(crate) format: SchemaKind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaKind {
    /// The job file
    Job,
    /// The cluster file of `simulate`
    Cluster,
    /// The price catalogue of `plan`
    Catalog,
    /// The federation of `federate`
    Federation,
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

pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}
