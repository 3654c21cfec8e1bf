//! `bellwether trace`: what a trace is like, and traces that are drawn from a generator.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_render as render;
use bellwether_sim::trace::{Format as TraceFormat, ReadOptions};
use bellwether_sim::workload;
use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::files;
use crate::options::Format;
use crate::printer::Printer;
use crate::traces;

mod show;

#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    verb: TraceVerb,
}

#[derive(Debug, Subcommand)]
enum TraceVerb {
    /// Describe a trace: sizes, durations, load, and the law by which jobs arrive
    Describe(DescribeArguments),
    /// Draw a trace from a generator file
    Generate(GenerateArguments),
}

#[derive(Debug, Args)]
struct DescribeArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Format of the trace [default: recognised from its header]
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<TraceFormat>,
    /// Devices of the cluster that its load is a share of
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,
    /// Write a generator file that draws such traces
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Args)]
struct GenerateArguments {
    /// The generator file
    #[arg(value_name = "FILE.toml")]
    workload: PathBuf,
    /// Decides every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw this many jobs, whatever the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Draw arrivals to this load of the file's devices, whatever the file says
    #[arg(long, value_name = "LOAD")]
    load: Option<f64>,
    /// Where the trace is written [default: stdout]
    #[arg(short, long, value_name = "FILE.csv")]
    output: Option<PathBuf>,
}

pub(crate) fn trace(arguments: &TraceArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match &arguments.verb {
        TraceVerb::Describe(arguments) => describe(arguments, printer),
        TraceVerb::Generate(arguments) => generate(arguments, printer),
    }
}

fn describe(arguments: &DescribeArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.output {
        files::check_folder(path)?;
    }
    let options = ReadOptions { place: arguments.trace.display().to_string(), ..ReadOptions::default() };
    let trace = traces::read_trace(&arguments.trace, arguments.trace_format, &options)?;
    traces::remarks(&trace, &options.place, printer);
    let description = workload::describe(&trace, arguments.gpus);
    if let Some(path) = &arguments.output {
        files::write_whole(path, description.workload().to_toml().as_bytes())?;
    }
    printer.out(match arguments.format {
        Format::Table => show::table(&description, trace.format),
        Format::Json => render::json(&description),
    });
    Ok(ExitCode::SUCCESS)
}

fn generate(arguments: &GenerateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let mut workload = traces::read_workload(&arguments.workload)?;
    if let Some(jobs) = arguments.jobs {
        (workload.jobs, workload.horizon) = (Some(jobs), None);
    }
    workload.load = arguments.load.or(workload.load);
    let trace = workload::generate(&workload, arguments.seed, &[])?;
    let text = workload::write_csv(&trace.entries, &trace.device_types);
    match &arguments.output {
        Some(path) => {
            files::check_folder(path)?;
            files::write_whole(path, text.as_bytes())?;
            printer.note(format_args!("{} jobs are in {}", trace.entries.len(), path.display()));
        }
        None => printer.out(text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}
