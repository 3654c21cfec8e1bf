//! `bellwether dashboard`: an address that opens the daemon's page in a browser.
//!
//! It is printed and not handed to a browser: the arguments of a process can be read by every user of the machine, and
//! whoever is first has the session.

use std::process::ExitCode;

use bellwether_serve::api::entry::Code;
use clap::Args;
use serde_json::json;
use ureq::http::Method;

use super::args::DaemonArguments;
use super::daemon::Daemon;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct DashboardArguments {
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

pub(crate) fn dashboard(arguments: &DashboardArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = Daemon::find(&arguments.daemon, printer)?;
    let code: Code = daemon.send(&Method::POST, "/v1/codes", None)?;
    let address = code.address(daemon.url().unwrap_or(&code.url));
    match arguments.daemon.state.format {
        Format::Json => printer.out(json!({ "address": address, "life_s": code.life_s })),
        Format::Table => {
            printer.out(address);
            printer.note(format_args!("it opens the dashboard once, within {} s", code.life_s));
        }
    }
    Ok(ExitCode::SUCCESS)
}
