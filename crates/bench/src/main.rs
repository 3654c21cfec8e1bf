//! The program `bellwether-bench`: measures `bellwether` on this machine, beside what bounds it and what others reach.
//!
//! Every verb here runs the real thing: processes of the command `bellwether` that lies beside this program
//! (or that the variable `BELLWETHER` names), on loopback, in a folder of their own that is removed at the
//! end. Nothing of this is part of the command itself.

use std::process::ExitCode;

use bellwether_core::ParseError;
use bellwether_core::units::Bytes;
use clap::{Args, Parser, Subcommand, ValueEnum};

use failure::Failure;
use members::MemberArguments;
use printer::Printer;
use report::Report;

mod accuracy;
mod allreduce;
mod asynchronous;
mod autoscale;
mod chaos;
mod checkpoints;
mod crash;
mod early_ends;
mod failure;
mod field_study;
mod folder;
mod hang;
mod inference;
mod jobs;
mod lines;
mod members;
mod memory;
mod namespaces;
mod nas;
mod outlook;
mod overhead;
mod parameters;
mod plain;
mod printer;
mod programs;
mod published;
mod queues;
mod report;
mod resize;
mod revocations;
mod scaling;
mod serve;
mod statistics;
mod straggler;
mod streaming;
mod sync;
mod tcp;
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
    Allreduce(allreduce::AllreduceArguments),
    /// Time from the death of a worker, or of the coordinator, to the next committed step
    Crash(crash::CrashArguments),
    /// What growing and shrinking cost those who stay
    Resize(resize::ResizeArguments),
    /// What elasticity costs per step when nothing changes
    Overhead(overhead::OverheadArguments),
    /// Examples per second of real models, beside a plain loop over the same model
    Training(training::TrainingArguments),
    /// Training on samples that stay in their files, beside the same with all of them in memory
    Streaming(streaming::StreamingArguments),
    /// Peak memory of a worker, beside what its vectors need
    Memory(memory::MemoryArguments),
    /// Training on servers that vanish as a law says, beside what that law lets expect
    Revocations(revocations::RevocationsArguments),
    /// Rows per second of a trained model, beside a plain loop; the same bytes when workers are killed
    Inference(inference::InferenceArguments),
    /// Where autoscaling settles on a device that gains nothing beyond some workers, and what finding it costs
    Autoscale(autoscale::AutoscaleArguments),
    /// Time from the moment at which a worker turns slow until another has taken its place
    Straggler(straggler::StragglerArguments),
    /// Time until a gradient, a link or a session that hangs is noticed, and until training goes on; false alarms
    Hang(hang::HangArguments),
    /// Throughput predicted from one worker's profile, beside that of up to 8 workers behind shaped links (needs root)
    Scaling(scaling::ScalingArguments),
    /// A parameter server under its workers, without and with a replica, beside plain TCP
    Parameters(parameters::ParametersArguments),
    /// Training by different protocols: accuracy, time beside what its formula says, and what is done about a straggler
    Sync(sync::SyncArguments),
    /// The same of asynchronous training through parameter servers (needs root)
    Asynchronous(asynchronous::AsynchronousArguments),
    /// A daemon: its decisions and times beside the simulator's, kills, and answers under load
    Serve(serve::ServeArguments),
    /// Policies that believe profiles, beside those that know more or less, on many simulated and some real jobs
    FieldStudy(field_study::FieldStudyArguments),
    /// What queues cost in mean completion time, and what they give to those who waited most
    Queues(queues::QueuesArguments),
    /// Whether a daemon's jobs start when it was foreseen
    Outlook(outlook::OutlookArguments),
    /// What it brings policies to know how jobs of each kind end early
    EarlyEnds(early_ends::EarlyEndsArguments),
    /// What checkpoints in slices cost: the stall, the coordinator's memory, a start on other workers
    Checkpoints(checkpoints::CheckpointsArguments),
    /// Random faults on real runs: same bits, clean audit, no hang, nothing left over
    Chaos(chaos::ChaosArguments),
    /// How well supernets rank architectures, one-shot and few-shot, beside training from scratch
    Nas(nas::NasArguments),
    /// Held-out results of models with settings of the job, such as gradients in 16 bits, beside those without
    Accuracy(accuracy::AccuracyArguments),
    /// One process of `allreduce`
    #[command(hide = true)]
    AllreduceMember(MemberArguments),
    /// One process of `parameters`
    #[command(hide = true)]
    ParametersMember(MemberArguments),
    /// One process of a plain loop, which nothing can join or leave
    #[command(hide = true)]
    PlainMember(plain::PlainArguments),
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

/// A size with a unit; a bare number counts bytes.
fn size(text: &str) -> Result<Bytes, ParseError> {
    let text = text.trim();
    text.parse::<u64>().map_or_else(|_| text.parse(), |bytes| Ok(Bytes(bytes)))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
        What::Streaming(arguments) => (streaming::measure(&arguments, printer)?, arguments.output),
        What::Memory(arguments) => (memory::measure(&arguments, printer)?, arguments.output),
        What::Revocations(arguments) => (revocations::measure(&arguments, printer)?, arguments.output),
        What::Scaling(arguments) => (scaling::measure(&arguments, printer)?, arguments.output),
        What::Asynchronous(arguments) => (asynchronous::measure(&arguments, printer)?, arguments.output),
        What::Autoscale(arguments) => (autoscale::measure(&arguments, printer)?, arguments.output),
        What::Hang(arguments) => (hang::measure(&arguments, printer)?, arguments.output),
        What::Inference(arguments) => (inference::measure(&arguments, printer)?, arguments.output),
        What::Straggler(arguments) => (straggler::measure(&arguments, printer)?, arguments.output),
        What::Parameters(arguments) => (parameters::measure(&arguments, printer)?, arguments.output),
        What::Sync(arguments) => (sync::measure(&arguments, printer)?, arguments.output),
        What::Serve(arguments) => (serve::measure(&arguments, printer)?, arguments.output),
        What::Queues(arguments) => (queues::measure(&arguments, printer)?, arguments.output),
        What::FieldStudy(arguments) => (field_study::measure(&arguments, printer)?, arguments.output),
        What::EarlyEnds(arguments) => (early_ends::measure(&arguments, printer)?, arguments.output),
        What::Outlook(arguments) => (outlook::measure(&arguments, printer)?, arguments.output),
        What::Checkpoints(arguments) => (checkpoints::measure(&arguments, printer)?, arguments.output),
        What::Chaos(arguments) => (chaos::measure(&arguments, printer)?, arguments.output),
        What::Nas(arguments) => (nas::measure(&arguments, printer)?, arguments.output),
        What::Accuracy(arguments) => (accuracy::measure(&arguments, printer)?, arguments.output),
        What::AllreduceMember(arguments) => return allreduce::member(arguments),
        What::ParametersMember(arguments) => return parameters::member(arguments),
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
