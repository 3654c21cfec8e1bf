//! `bellwether place`: where a GPU puts the thread blocks of kernels that run side by side, and what that costs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::parse::document;
use bellwether_model::gpu::{self, Device, Discipline, Options, Report, TRACE_BLOCKS_MAX, Workload};
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, picture};
use crate::printer::Printer;

mod compare;
mod explain;
mod list;
mod plot;
mod show;

#[derive(Debug, Args)]
pub(crate) struct PlaceArguments {
    /// The kernels, and the streams that launch them (examples/place has some)
    #[arg(required_unless_present_any = ["compare", "list"], value_name = "WORKLOAD.toml")]
    workload: Option<PathBuf>,
    /// The device, one of --list [default with --compare: the one that the trace names]
    #[arg(long, value_name = "NAME", required_unless_present_any = ["compare", "list"])]
    gpu: Option<String>,
    /// Devices of your own, in the form of data/gpus.toml; one with the name of a built-in device replaces it
    #[arg(long, value_name = "FILE.toml")]
    gpus: Option<PathBuf>,
    /// How kernels share the device: leftover, priority, time-slice, mps or mig; several are put side by side
    /// [default: as the workload says]
    #[arg(long, value_name = "WORD,…", value_delimiter = ',')]
    discipline: Vec<Discipline>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    /// Draw the multiprocessors (SMs) over time
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
    /// Write every block for Perfetto or Chrome
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Tell why the N-th block that was placed went where it went
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    explain: Option<u64>,
    /// Score the model against a measured trace of blocks (tools/gpu-probe records one)
    #[arg(long, value_name = "TRACE.csv",
          conflicts_with_all = ["workload", "discipline", "plot", "trace", "explain", "list"])]
    compare: Option<PathBuf>,
    /// List the devices, and on what evidence their rules rest
    #[arg(long, conflicts_with_all = ["workload", "gpu", "discipline", "plot", "trace", "explain"])]
    list: bool,
}

pub(crate) fn place(arguments: &PlaceArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let devices = devices(arguments.gpus.as_deref())?;
    let text = match (&arguments.compare, &arguments.workload, &arguments.gpu) {
        (Some(path), _, name) => {
            let trace = gpu::read_timed_trace(&read(path)?, &path.display().to_string())?;
            compare::render(&gpu::score_runs(&trace, &devices, name.as_deref())?, arguments.format)
        }
        (None, Some(path), Some(name)) => {
            let device = gpu::find(&devices, name).map_err(|e| InputError { place: "--gpu".into(), ..e })?;
            run(arguments, path, device, printer)?
        }
        _ => list::render(&devices, arguments.format),
    };
    printer.out(text);
    Ok(ExitCode::SUCCESS)
}

/// The built-in devices, and the user's after them.
fn devices(own: Option<&Path>) -> Result<Vec<Device>, Failure> {
    let mut devices = gpu::built_in();
    if let Some(path) = own {
        devices.extend(gpu::read_devices(&read(path)?, &path.display().to_string())?);
    }
    Ok(devices)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|e| Failure::at(path.display().to_string(), format!("it cannot be read: {e}")))
}

/// Runs the workload under each discipline, writes the files that are wanted, and tells the rest.
fn run(
    arguments: &PlaceArguments,
    path: &Path,
    device: &Device,
    printer: &Printer,
) -> Result<String, Failure> {
    let place = path.display().to_string();
    let workload: Workload = document(&read(path)?, &place)?;
    let disciplines = match arguments.discipline.as_slice() {
        [] => &[workload.discipline],
        some => some,
    };
    check(arguments, disciplines)?;
    let options = Options { explain: arguments.explain, skip_alone: false };
    let mut reports = Vec::new();
    for discipline in disciplines {
        let outcome = gpu::run(device, &workload, *discipline, options)
            .map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
        reports.push(Report::new(device, &workload, outcome)?);
    }
    let [report] = reports.as_slice() else { return Ok(show::side_by_side(&reports, arguments.format)) };
    if let Some(number) = arguments.explain
        && report.outcome.explained.is_none()
    {
        let what = format!("there is no block {number}: {} were placed", report.outcome.blocks.len());
        return Err(InputError::new("--explain", what).hint("the first is 1").into());
    }
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(report)?.as_bytes())?;
    }
    if let Some(path) = &arguments.trace {
        let all = report.outcome.blocks.len();
        if all > TRACE_BLOCKS_MAX {
            printer.note(format_args!("the trace has the first {TRACE_BLOCKS_MAX} of {all} blocks"));
        }
        files::write_whole(path, gpu::chrome_trace(report).as_bytes())?;
    }
    Ok(show::render(report, arguments.format))
}

/// Refuses what only one outcome has, and files that could not be written in the end.
fn check(arguments: &PlaceArguments, disciplines: &[Discipline]) -> Result<(), Failure> {
    for path in [&arguments.plot, &arguments.trace].into_iter().flatten() {
        files::check_folder(path)?;
    }
    let single = [
        ("--plot", arguments.plot.is_some()),
        ("--trace", arguments.trace.is_some()),
        ("--explain", arguments.explain.is_some()),
    ];
    match single.iter().find(|(_, given)| *given) {
        Some((flag, _)) if disciplines.len() > 1 => {
            let what = format!("{} disciplines are put side by side", disciplines.len());
            Err(InputError::new(*flag, what).hint("name one --discipline").into())
        }
        _ => Ok(()),
    }
}
