//! `bellwether show`: all that is known of a job, started by hand or by a daemon.

use std::process::ExitCode;
use std::slice::from_ref;

use bellwether_serve::snapshot::{DecisionState, JobState};
use serde::Deserialize;
use serde_json::json;

use super::args::JobArguments;
use super::daemon::{self, Daemon};
use super::target::{Places, Target};
use super::words;
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::render::table;

/// Decisions about the job that people are shown.
const DECISIONS: usize = 5;

/// The last decisions.
#[derive(Debug, Deserialize)]
struct Decisions {
    decisions: Vec<DecisionState>,
}

pub(crate) fn show(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let places = Places::of(&arguments.daemon, from_ref(&arguments.job), printer)?;
    match (places.find(&arguments.job, printer)?, &places.daemon) {
        (Target::Served(job), Some(daemon)) => served(&job, daemon, format, printer)?,
        (Target::Served(job), None) => printer.out(daemon::json(&job)?),
        (Target::ByHand(run), _) => by_hand::show(&run, format, printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn served(job: &JobState, daemon: &Daemon, format: Format, printer: &Printer) -> Result<(), Failure> {
    let Decisions { mut decisions } = daemon.get("/v1/decisions?limit=1000")?;
    decisions.retain(|decision| decision.actions.iter().any(|action| action.job == job.name));
    if format == Format::Json {
        let mut value = json!(job);
        value["predicted_error"] = json!(words::error(job));
        value["decisions"] = json!(decisions);
        printer.out(daemon::json(&value)?);
        return Ok(());
    }
    let now_s = words::now_s();
    let mut rows = words::facts(job, now_s);
    let last = decisions.iter().rev().take(DECISIONS).rev();
    rows.extend(last.map(|decision| ("decision", words::decision(decision, Some(&job.name), now_s))));
    printer.out(table::facts(&rows));
    Ok(())
}
