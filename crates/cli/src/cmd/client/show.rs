//! `bellwether show`: all that is known of a job, started by hand or by a daemon.

use std::process::ExitCode;
use std::slice::from_ref;

use bellwether_client::Client;
use bellwether_render::{json_line, table};
use bellwether_runtime::listing::RunView;
use bellwether_serve::snapshot::JobState;
use serde_json::json;

use super::args::JobArguments;
use super::target::{Places, Target};
use super::words;
use crate::by_hand::{self, links};
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::RunDir;

/// Decisions about the job that people are shown.
const DECISIONS: usize = 5;

pub(crate) fn show(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let places = Places::of(&arguments.daemon, from_ref(&arguments.job), printer)?;
    match (places.find(&arguments.job, printer)?, &places.daemon) {
        (Target::Served(job), Some(daemon)) => served(&job, daemon, format, printer)?,
        (Target::Served(job), None) => printer.out(json_line(&job)),
        (Target::ByHand(run), _) => by_hand::show(&run, format, printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn served(job: &JobState, daemon: &Client, format: Format, printer: &Printer) -> Result<(), Failure> {
    let mut decisions = daemon.decisions(1000)?;
    decisions.retain(|decision| decision.actions.iter().any(|action| action.job == job.name));
    // A daemon knows nothing of the links; the job's coordinator does, if it is of this machine.
    let run = RunDir::open(&job.run_dir).filter(|_| !job.state.has_ended());
    let members = run.map(|run| RunView::of(&run).members).unwrap_or_default();
    if format == Format::Json {
        let mut value = json!(job);
        value["predicted_error"] = json!(words::error(job));
        value["decisions"] = json!(decisions);
        value["links"] = links::json(&members);
        printer.out(json_line(&value));
        return Ok(());
    }
    let now_s = words::now_s();
    let mut rows = words::facts(job, now_s);
    rows.extend(links::rows(&members));
    let last = decisions.iter().rev().take(DECISIONS).rev();
    rows.extend(last.map(|decision| ("decision", words::decision(decision, Some(&job.name), now_s))));
    printer.out(table::facts(&rows));
    Ok(())
}
