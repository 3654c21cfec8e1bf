//! `bellwether schema`: the JSON schema of a file format.

use std::process::ExitCode;

use bellwether_core::job::Job;
use bellwether_federation::description::Description;
use bellwether_sched::plan::Catalogue;
use bellwether_sim::cluster::Cluster;

use crate::args::{SchemaArguments, SchemaKind};
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn schema(arguments: &SchemaArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let schema = match arguments.format {
        SchemaKind::Job => Job::schema(),
        SchemaKind::Cluster => Cluster::schema(),
        SchemaKind::Catalog => Catalogue::schema(),
        SchemaKind::Federation => Description::schema(),
    };
    printer.out(format_args!("{schema:#}"));
    Ok(ExitCode::SUCCESS)
}
