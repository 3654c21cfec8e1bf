//! The program `bellwether-bench`: measures `bellwether` on this machine, beside what bounds it and what others reach.
//!
//! Every verb here runs the real thing: processes of the command `bellwether` that lies beside this program (or that the
//! variable `BELLWETHER` names), on loopback, in a folder of their own that is removed at the end. Nothing of this is part
//! of the command itself.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_core::job::WorkerRange;
use bellwether_core::units::Bytes;
use clap::{Args, Parser, Subcommand, ValueEnum};

use allreduce::member::MemberOptions;
use failure::Failure;
use printer::Printer;
use report::Report;

mod allreduce;
mod asynchronous;
mod autoscale;
mod chaos;
mod coordinator;
mod crash;
mod failure;
mod folder;
mod hang;
mod jobs;
mod joiner;
mod memory;
mod namespaces;
mod overhead;
mod parameters;
mod plain;
mod printer;
mod programs;
mod published;
mod report;
mod resize;
mod revocations;
mod scaling;
mod serve;
mod statistics;
mod straggler;
mod sync;
mod training;
mod trial;

/// Training allocates and frees a tensor per operation: the plain loops do so as the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the command `bellwether` on this machine.
#[derive(Debug, Parser)]
#[command(name = "bellwether-bench", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// All-reduce between processes, beside plain TCP
    Allreduce(AllreduceArguments),
    /// Time from the death of a worker, or of the coordinator, to the next committed step
    Crash(CrashArguments),
    /// What growing and shrinking cost those who stay
    Resize(ResizeArguments),
    /// What elasticity costs per step when nothing changes
    Overhead(OverheadArguments),
    /// Examples per second of real models, beside a plain loop over the same model
    Training(TrainingArguments),
    /// Peak memory of a worker, beside what its vectors need
    Memory(MemoryArguments),
    /// Training on servers that vanish as a law says, beside what that law lets expect
    Revocations(RevocationsArguments),
    /// Where autoscaling settles on a device that gains nothing beyond some workers, and what finding it costs
    Autoscale(AutoscaleArguments),
    /// Time from the moment at which a worker turns slow until another has taken its place
    Straggler(StragglerArguments),
    /// Time until a gradient, a link or a session that hangs is noticed, and until training goes on; false alarms
    Hang(hang::HangArguments),
    /// Throughput predicted from one worker's profile, beside that of up to 8 workers behind shaped links (needs root)
    Scaling(ScalingArguments),
    /// A parameter server under its workers, without and with a replica, beside plain TCP
    Parameters(parameters::ParametersArguments),
    /// Training by different protocols: accuracy, time beside what its formula says, and what is done about a straggler
    Sync(sync::SyncArguments),
    /// The same of asynchronous training through parameter servers (needs root)
    Asynchronous(asynchronous::AsynchronousArguments),
    /// A daemon: its decisions and times beside the simulator's, kills, and answers under load
    Serve(serve::ServeArguments),
    /// Random faults on real runs: same bits, clean audit, no hang, nothing left over
    Chaos(chaos::ChaosArguments),
    /// One process of `allreduce`
    #[command(hide = true)]
    AllreduceMember(MemberOptions),
    /// One process of `parameters`
    #[command(hide = true)]
    ParametersMember(MemberOptions),
    /// One process of a plain loop, which nothing can join or leave
    #[command(hide = true)]
    PlainMember(PlainArguments),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
}

#[derive(Debug, Args)]
struct OutputArguments {
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
struct AllreduceArguments {
    /// Number of processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: u32,
    /// Sizes of the vectors, multiples of 4 bytes [default: 4 B to 256 MiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size)]
    bytes: Vec<Bytes>,
    /// Seconds to spend on each size
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds_per_size: f64,
    /// Leave PyTorch's gloo out even where Python has it
    #[arg(long)]
    no_gloo: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct CrashArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4")]
    workers: Vec<u32>,
    /// Workers to kill per case
    #[arg(long, value_name = "N", default_value_t = 20)]
    kills: u32,
    /// Coordinators to kill per number of workers
    #[arg(long, value_name = "N", default_value_t = 10)]
    coordinator_kills: u32,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct ResizeArguments {
    /// Numbers of workers to double and to come back to
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4")]
    workers: Vec<u32>,
    /// How often each change is made
    #[arg(long, value_name = "N", default_value_t = 10)]
    repetitions: u32,
    /// Newcomers to kill in each stage of joining
    #[arg(long, value_name = "N", default_value_t = 5)]
    kills: u32,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct OverheadArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    workers: Vec<u32>,
    /// Alternations between the runtime and the plain loop
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Steps of each
    #[arg(long, value_name = "N", default_value_t = 250)]
    steps: u64,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    parameters: Bytes,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct TrainingArguments {
    /// Models to train
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', value_parser = ["mlp", "convnet", "resnet", "transformer"],
          default_value = "mlp,convnet,resnet,transformer")]
    models: Vec<String>,
    /// Alternations between the runtime and the plain loop
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Seconds that each run should train
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct MemoryArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,3")]
    workers: Vec<u32>,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    parameters: Bytes,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct RevocationsArguments {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: u32,
    /// Runs of each case, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 600)]
    steps: u64,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct ScalingArguments {
    /// Rates of the links, as `tc` writes them, each with the numbers of workers to try
    #[arg(long, value_name = "RATE:MIN..MAX,…", value_delimiter = ',', value_parser = scaling::point,
          default_value = "100mbit:1..8,1gbit:1..2")]
    points: Vec<(String, WorkerRange)>,
    /// Milliseconds that one of the 8 virtual nodes takes
    #[arg(long, value_name = "MS", default_value_t = 50)]
    step_ms: u64,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value_t = scaling::PARAMETERS)]
    parameters: Bytes,
    /// Measurements of each point
    #[arg(long, value_name = "N", default_value_t = 5)]
    windows: u32,
    /// Steps of each measurement
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: u64,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct AutoscaleArguments {
    /// Heuristics to try [default: all]
    #[arg(long, value_name = "HEURISTIC,…", value_delimiter = ',')]
    heuristics: Vec<String>,
    /// Runs of each heuristic, from one worker and again from the most
    #[arg(long, value_name = "N", default_value_t = 3)]
    trials: u32,
    /// Virtual nodes; one worker fewer is the most, and half of an even number is as quick
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=64))]
    virtual_nodes: u32,
    /// Milliseconds that a virtual node takes
    #[arg(long, value_name = "MS", default_value_t = 20)]
    step_ms: u64,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct StragglerArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "3,4")]
    workers: Vec<u32>,
    /// What is left of the straggler's speed
    #[arg(long, value_name = "SPEED", default_value_t = 0.5)]
    speed: f64,
    /// Stragglers of each number of workers
    #[arg(long, value_name = "N", default_value_t = 10)]
    trials: u32,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct PlainArguments {
    /// The job file
    #[arg(long)]
    job: PathBuf,
    /// Where the members meet and leave their samples
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    workers: u32,
}

/// A size with a unit; a bare number counts bytes.
fn size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    text.parse::<u64>().map_or_else(|_| text.parse(), |bytes| Ok(Bytes(bytes)))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // As in the command: bits and times depend on the number of threads in a kernel.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    match bench(arguments.what, &Printer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            Printer.note(format_args!("error: {failure}"));
            ExitCode::from(2)
        }
    }
}

fn bench(what: What, printer: &Printer) -> Result<(), Failure> {
    let (report, output) = match what {
        What::Allreduce(arguments) => (allreduce::measure(&arguments, printer)?, arguments.output),
        What::Crash(arguments) => (crash::measure(&arguments, printer)?, arguments.output),
        What::Resize(arguments) => (resize::measure(&arguments, printer)?, arguments.output),
        What::Overhead(arguments) => (overhead::measure(&arguments, printer)?, arguments.output),
        What::Training(arguments) => (training::measure(&arguments, printer)?, arguments.output),
        What::Memory(arguments) => (memory::measure(&arguments, printer)?, arguments.output),
        What::Revocations(arguments) => (revocations::measure(&arguments, printer)?, arguments.output),
        What::Scaling(arguments) => (scaling::measure(&arguments, printer)?, arguments.output),
        What::Asynchronous(arguments) => (asynchronous::measure(&arguments, printer)?, arguments.output),
        What::Autoscale(arguments) => (autoscale::measure(&arguments, printer)?, arguments.output),
        What::Hang(arguments) => (hang::measure(&arguments, printer)?, arguments.output),
        What::Straggler(arguments) => (straggler::measure(&arguments, printer)?, arguments.output),
        What::Parameters(arguments) => (parameters::measure(&arguments, printer)?, arguments.output),
        What::Sync(arguments) => (sync::measure(&arguments, printer)?, arguments.output),
        What::Serve(arguments) => (serve::measure(&arguments, printer)?, arguments.output),
        What::Chaos(arguments) => (chaos::measure(&arguments, printer)?, arguments.output),
        What::AllreduceMember(options) => {
            return allreduce::member::member(&options).map_err(|e| Failure::at("allreduce-member", e));
        }
        What::ParametersMember(options) => {
            return parameters::member::member(&options).map_err(|e| Failure::at("parameters-member", e));
        }
        What::PlainMember(arguments) => return plain::member(&arguments),
    };
    print(report, output.format, printer);
    Ok(())
}

fn print(report: Report, format: Format, printer: &Printer) {
    match format {
        Format::Json => printer.out(report.finish()),
        Format::Table => printer.out(report.table()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_no_unit() {
        assert_eq!(size("4"), Ok(Bytes(4)));
        assert_eq!(size(" 16KiB"), Ok(Bytes(16 << 10)));
        assert!(size("many").is_err());
    }
}
