//! `bellwether job`: all that a daemon knows of a job.

use std::process::ExitCode;

use bellwether_serve::snapshot::DecisionState;
use serde::Deserialize;
use serde_json::json;

use super::args::ServedArguments;
use super::daemon::{self, Daemon};
use super::words;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

/// Decisions about the job that people are shown.
const DECISIONS: usize = 5;

/// The last decisions.
#[derive(Debug, Deserialize)]
struct Decisions {
    decisions: Vec<DecisionState>,
}

pub(crate) fn job(arguments: &ServedArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let daemon = Daemon::find(&arguments.daemon, printer)?;
    let job = daemon.job(&arguments.job)?;
    let Decisions { mut decisions } = daemon.get("/v1/decisions?limit=1000")?;
    decisions.retain(|decision| decision.actions.iter().any(|action| action.job == job.name));
    if arguments.daemon.state.format == Format::Json {
        let mut value = json!(job);
        value["predicted_error"] = json!(words::error(&job));
        value["decisions"] = json!(decisions);
        printer.out(daemon::json(&value)?);
        return Ok(ExitCode::SUCCESS);
    }
    let now_s = words::now_s();
    let mut rows = words::facts(&job, now_s);
    let last = decisions.iter().rev().take(DECISIONS).rev();
    rows.extend(last.map(|decision| ("decision", words::decision(decision, Some(&job.name), now_s))));
    let rows: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<24} {value}")).collect();
    printer.out(rows.join("\n"));
    Ok(ExitCode::SUCCESS)
}
