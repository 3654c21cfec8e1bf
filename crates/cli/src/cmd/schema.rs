//! `bellwether schema`: the JSON schema of a file format.

use std::process::ExitCode;

use bellwether_core::job::Job;
use bellwether_core::nas::NasFile;
use bellwether_core::queue::QueueTree;
use bellwether_core::sweep::SweepFile;
use bellwether_federation::description::Description;
use bellwether_model::gpu;
use bellwether_sched::plan::Catalogue;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::workload::Workload as Generator;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::printer::Printer;

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
    /// The search of `nas`
    Nas,
    /// The sweep file of `sweep`
    Sweep,
    /// The cluster file of `simulate`
    Cluster,
    /// The price catalogue of `plan`
    Catalog,
    /// The federation of `federate`
    Federation,
    /// The queues of `simulate`
    Queues,
    /// The generator of traces of `trace generate` and `simulate`
    Generator,
    /// The kernels and streams of `place`
    Workload,
    /// The devices of `place --gpus`
    Gpus,
}

pub(crate) fn schema(arguments: &SchemaArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let schema = match arguments.format {
        SchemaKind::Job => Job::schema(),
        SchemaKind::Nas => NasFile::schema(),
        SchemaKind::Sweep => SweepFile::schema(),
        SchemaKind::Cluster => Cluster::schema(),
        SchemaKind::Catalog => Catalogue::schema(),
        SchemaKind::Federation => Description::schema(),
        SchemaKind::Queues => QueueTree::schema(),
        SchemaKind::Generator => Generator::schema(),
        SchemaKind::Workload => gpu::Workload::schema(),
        SchemaKind::Gpus => gpu::Device::schema(),
    };
    printer.out(format_args!("{schema:#}"));
    Ok(ExitCode::SUCCESS)
}
