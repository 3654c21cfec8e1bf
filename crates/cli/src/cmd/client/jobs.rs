//! `bellwether jobs`: the jobs of a daemon, and the runs in the state directory that are none of them.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_serve::snapshot::{ClusterState, JobState, Phase};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::args::DaemonArguments;
use super::daemon::{Daemon, Trouble};
use super::{daemon, words};
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::render::duration::rough;
use crate::render::table::aligned;
use crate::runs::StateDir;

/// Time between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(Phase::NAMES))]
    pub(crate) state: Option<String>,
    /// Go on showing them as they change
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

/// What is known at a moment.
struct Seen {
    cluster: Option<ClusterState>,
    jobs: Vec<JobState>,
    runs: Vec<by_hand::Row>,
}

pub(crate) fn jobs(arguments: &JobsArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let clears = std::io::stdout().is_terminal() && format == Format::Table;
    let mut last = String::new();
    loop {
        let seen = look(arguments, printer)?;
        let text = match format {
            Format::Json => daemon::json(&values(&seen))?,
            Format::Table => table(&seen).trim_end().to_owned(),
        };
        if !arguments.watch {
            printer.out(text);
            return Ok(ExitCode::SUCCESS);
        }
        if text != last {
            // Home, and what was there is erased.
            let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
            if !printer.line(format_args!("{clear}{text}")) {
                return Ok(ExitCode::SUCCESS);
            }
            last = text;
        }
        std::thread::sleep(LOOK);
    }
}

fn look(arguments: &JobsArguments, printer: &Printer) -> Result<Seen, Failure> {
    let state = arguments.state.as_deref();
    let mut seen = Seen { cluster: None, jobs: Vec::new(), runs: Vec::new() };
    let daemon = Daemon::look(&arguments.daemon, printer)?;
    let is_remote = daemon.as_ref().is_some_and(Daemon::is_remote);
    if let Some(daemon) = &daemon {
        let asked = daemon.get("/v1/cluster").and_then(|cluster| Ok((cluster, daemon.jobs(None)?)));
        match asked {
            Ok((cluster, jobs)) => (seen.cluster, seen.jobs) = (Some(cluster), jobs),
            Err(Trouble::Silent(error)) if !is_remote => {
                printer.note(format_args!("note: {}: {}; these are the runs alone", error.place, error.what));
            }
            Err(trouble) => return Err(trouble.into()),
        }
    }
    if !is_remote {
        let served: BTreeSet<&str> = seen.jobs.iter().map(|job| job.name.as_str()).collect();
        let runs = StateDir::find(arguments.daemon.state.state_dir.clone())?.runs();
        let by_hand = runs.iter().filter(|run| !served.contains(run.name.as_str()));
        seen.runs = by_hand.map(by_hand::Row::of).collect();
    }
    if let Some(state) = state {
        seen.jobs.retain(|job| job.state.name() == state);
        seen.runs.retain(|run| run.state == state);
    }
    Ok(seen)
}

/// One array of all: what is the same has the same name, whoever coordinates it.
fn values(seen: &Seen) -> Vec<Value> {
    let now_s = words::now_s();
    let job = |job: &JobState| {
        let mut value = json!(job);
        value["run"] = json!(job.name);
        value["served"] = json!(true);
        value["age_s"] = json!((now_s - job.submitted_s).max(0.0));
        value["predicted_error"] = json!(words::error(job));
        value
    };
    let run = |run: &by_hand::Row| {
        let mut value = json!(run);
        value["served"] = json!(false);
        value
    };
    seen.jobs.iter().map(job).chain(seen.runs.iter().map(run)).collect()
}

fn table(seen: &Seen) -> String {
    let Some(cluster) = &seen.cluster else { return by_hand::table(&seen.runs) };
    let now_s = words::now_s();
    let ClusterState { policy, slots, free, utilization, .. } = cluster;
    let mut text = format!(
        "{policy} decides on {slots} slots, {free} of them free; {:.0} % were used so far\n\n",
        100.0 * utilization
    );
    let titles =
        ["JOB", "STATE", "WORKERS", "STEP", "LOSS", "EXAMPLES/S (PREDICTED)", "ENDS", "PRIORITY", "AGE"];
    let mut rows = vec![titles.map(String::from).to_vec()];
    rows.extend(seen.jobs.iter().map(|job| {
        vec![
            job.name.clone(),
            job.state.name().into(),
            words::workers(job),
            words::steps(job),
            words::loss(job),
            words::speed(job),
            words::end(job, now_s),
            job.weight.to_string(),
            rough((now_s - job.submitted_s).max(0.0)),
        ]
    }));
    text.push_str(&aligned(&rows));
    if !seen.runs.is_empty() {
        text.push_str("\nruns by hand\n");
        text.push_str(&by_hand::table(&seen.runs));
    }
    text
}
