//! `bellwether version`: which program this is, down to what decides bits.

use std::process::ExitCode;

use bellwether_render::{self as render, table};
use clap::Args;
use serde_json::{Map, Value};

use crate::options::Format;
use crate::printer::Printer;
use crate::version;

#[derive(Debug, Args)]
pub(crate) struct VersionArguments {
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

pub(crate) fn version(arguments: &VersionArguments, printer: &Printer) -> ExitCode {
    let facts = version::facts();
    match arguments.format {
        Format::Json => {
            let facts: Map<String, Value> =
                facts.into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
            printer.out(render::json(&facts));
        }
        Format::Table => printer.out(table::facts(&facts)),
    }
    ExitCode::SUCCESS
}
