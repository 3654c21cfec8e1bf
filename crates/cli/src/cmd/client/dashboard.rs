//! `bellwether dashboard`: an address that opens the daemon's page in a browser.
//!
//! It is printed and not handed to a browser: every user of the machine can read the arguments of a process, and the
//! first who opens the address has the session.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::args::DaemonArguments;
use super::connect;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct DashboardArguments {
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

pub(crate) fn dashboard(arguments: &DashboardArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = connect::find(&arguments.daemon, printer)?;
    let code = daemon.dashboard_code()?;
    let address = code.address(connect::url(&daemon).unwrap_or(&code.url));
    match arguments.daemon.state.format {
        Format::Json => printer.out(json!({ "address": address, "life_s": code.life_s })),
        Format::Table => {
            printer.out(address);
            printer.note(format_args!("it opens the dashboard once, within {} s", code.life_s));
        }
    }
    Ok(ExitCode::SUCCESS)
}
