//! `bellwether plan`: the machines that one job should have, from its profile and a price catalogue.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_answers::plan::{CONFIDENCE, RUNS, Request, VirtualNodes, WORKERS, budget};
use bellwether_answers::predict::BATCH;
use bellwether_core::deadline::Deadline;
use bellwether_core::units::Dollars;
use bellwether_sched::plan;
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, of_u32, picture};
use crate::printer::Printer;

mod export;
mod kubernetes;
mod plot;
mod show;
mod skypilot;
mod slurm;
mod strategies;
mod words;
mod work;

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// The profile, made by `bellwether profile`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// What may be rented: machines with their prices (examples/plan has a catalogue; `bellwether schema catalog`)
    #[arg(long, value_name = "PRICES.toml")]
    catalog: PathBuf,
    /// When the job must end: a time from now (2h, 1h24min) or a moment (2026-11-21T18:00:00Z)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    deadline: Option<Deadline>,
    /// The most that the job may be expected to cost in dollars: 20, 20usd or '$20'
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true, value_parser = budget)]
    budget: Option<Dollars>,
    /// The probability with which the deadline must be met
    #[arg(long, value_name = "P", default_value_t = CONFIDENCE)]
    confidence: f64,
    #[command(flatten)]
    work: work::WorkArguments,
    #[command(flatten)]
    ways: strategies::WayArguments,
    /// Allow servers that their provider may take away
    #[arg(long)]
    transient: bool,
    /// Samples per step: of all workers together where they share a batch, else of each [default: as profiled]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(BATCH))]
    batch: Option<u64>,
    /// Virtual nodes that the batch is cut into: a number, or `fit` for as few as fit into the machines' memory
    /// [default: as profiled]
    #[arg(long, value_name = "N|fit", conflicts_with = "batch")]
    virtual_nodes: Option<VirtualNodes>,
    /// Most workers [default: 64, or as many as there are virtual nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(of_u32(WORKERS)))]
    max_workers: Option<u32>,
    /// Regions that may be used [default: all of the catalogue]
    #[arg(long, value_name = "REGION,…", value_delimiter = ',')]
    region: Vec<String>,
    /// Simulated runs of each configuration that matters
    #[arg(long, value_name = "N", default_value_t = plan::RUNS, value_parser = clap::value_parser!(u32).range(of_u32(RUNS)))]
    runs: u32,
    /// Seed of the simulated runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    /// Draw cost over time
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    export: export::ExportArguments,
}

pub(crate) fn plan(arguments: &PlanArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.plot {
        files::check_folder(path)?;
    }
    let found = arguments.request().answer(&mut |text| printer.note(text))?;
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&found)?.as_bytes())?;
    }
    let Some(chosen) = found.chosen() else {
        if arguments.export.wanted().is_none() {
            printer.out(show::render(&found, arguments.format));
        }
        return Err(Failure::No(show::refusal(&found)));
    };
    match arguments.export.wanted() {
        Some((target, job)) => {
            let text = export::text(target, arguments, job, &found, chosen)?;
            printer.note(&found.reason);
            printer.out(text.trim_end());
        }
        None => printer.out(printer.marked(&show::render(&found, arguments.format), "← choice")),
    }
    Ok(ExitCode::SUCCESS)
}

impl PlanArguments {
    /// What is asked.
    fn request(&self) -> Request {
        Request {
            profile: self.profile.clone(),
            catalog: self.catalog.clone(),
            deadline: self.deadline,
            budget: self.budget,
            confidence: self.confidence,
            work: self.work.work(),
            ways: self.ways.ways(),
            transient: self.transient,
            batch: self.batch,
            virtual_nodes: self.virtual_nodes,
            max_workers: self.max_workers,
            regions: self.region.clone(),
            runs: self.runs,
            seed: self.seed,
        }
    }
}
