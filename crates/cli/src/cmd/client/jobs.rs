//! `bellwether jobs`: the jobs of a daemon and the runs that were started by hand, in one list.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_client::ClientError;
use bellwether_core::queue::is_within;
use bellwether_render::colour::Colour;
use bellwether_render::duration::rough;
use bellwether_render::figure::loss;
use bellwether_render::json_line;
use bellwether_render::table::{NOTHING, fitted, width};
use bellwether_render::words::count;
use bellwether_runtime::listing::{RunState, RunView, newest};
use bellwether_serve::snapshot::{ClusterState, JobState, Phase};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::args::DaemonArguments;
use super::{connect, words};
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::StateDir;

/// Time between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(1);

/// Jobs that have ended in a table, unless more are asked for.
const ENDED: usize = 20;

const TITLES: [&str; 10] =
    ["JOB", "QUEUE", "STATE", "WORKERS", "STEP", "LOSS", "EXAMPLES/S (PREDICTED)", "ENDS", "PRIORITY", "AGE"];

/// Columns that a narrow terminal does without, the first one first.
const SPARE: [&str; 7] = ["PRIORITY", "EXAMPLES/S (PREDICTED)", "ENDS", "AGE", "LOSS", "QUEUE", "WORKERS"];

/// Where queue and state stand in a row.
const QUEUE: usize = 1;
const STATE: usize = 2;

#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    /// Only those of this queue, and of the queues below it
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub(crate) state: Option<String>,
    /// Of those that have ended only the newest N [default: 20 in a table, all in JSON]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// All, however many have ended
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Go on showing them as they change
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

/// The states that a job may have.
fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(Phase::NAMES.into_iter().chain([RunState::Lost.name()]))
}

/// What is known at a moment.
struct Seen {
    cluster: Option<ClusterState>,
    /// The oldest first.
    jobs: Vec<Listed>,
    /// How many more have ended.
    hidden: usize,
}

/// A job in the list.
enum Listed {
    /// A daemon serves it.
    Served(Box<JobState>),
    /// It was started by hand.
    ByHand(RunView),
}

impl Listed {
    fn state(&self) -> &'static str {
        match self {
            Listed::Served(job) => job.state.name(),
            Listed::ByHand(view) => view.state.name(),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Listed::Served(job) => job.state.has_ended(),
            Listed::ByHand(view) => view.state.has_ended(),
        }
    }

    fn age_s(&self, now_s: f64) -> Option<f64> {
        match self {
            Listed::Served(job) => Some((now_s - job.submitted_s).max(0.0)),
            Listed::ByHand(view) => view.age_s,
        }
    }

    /// What is the same has the same name in both worlds.
    fn value(&self, now_s: f64) -> Value {
        match self {
            Listed::Served(job) => {
                let mut value = json!(job);
                value["run"] = json!(job.name);
                value["served"] = json!(true);
                value["age_s"] = json!(self.age_s(now_s));
                value["predicted_error"] = json!(words::error(job));
                value
            }
            Listed::ByHand(view) => {
                let mut value = json!(view);
                value["served"] = json!(false);
                value
            }
        }
    }

    /// Its cells under [`TITLES`].
    fn row(&self, now_s: f64) -> Vec<String> {
        let nothing = || NOTHING.to_owned();
        let age = self.age_s(now_s).map_or_else(nothing, rough);
        let cells = match self {
            Listed::Served(job) => [
                job.name.clone(),
                job.queue.clone().unwrap_or_else(nothing),
                self.state().into(),
                words::workers(job),
                words::steps(job),
                words::loss(job),
                words::speed(job),
                words::end(job, now_s),
                job.weight.to_string(),
                age,
            ],
            Listed::ByHand(view) => [
                view.run.clone(),
                nothing(),
                by_hand::state(view),
                view.workers.to_string(),
                by_hand::steps(view),
                loss(view.loss),
                view.examples_per_s.map_or_else(nothing, |rate| format!("{rate:.0}")),
                nothing(),
                nothing(),
                age,
            ],
        };
        cells.into()
    }
}

pub(crate) fn jobs(arguments: &JobsArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let clears = std::io::stdout().is_terminal() && format == Format::Table;
    let mut last = (String::new(), None);
    loop {
        let seen = look(arguments, printer)?;
        let text = match format {
            Format::Json => {
                let now_s = words::now_s();
                json_line(&seen.jobs.iter().map(|job| job.value(now_s)).collect::<Vec<_>>())
            }
            Format::Table => table(&seen, printer).trim_end().to_owned(),
        };
        let failure = seen.cluster.and_then(|cluster| cluster.no_outlook);
        let note = |why: &String| {
            printer.note(format_args!("note: the daemon cannot foresee when jobs start and end: {why}"));
        };
        if !arguments.watch {
            printer.out(text);
            failure.iter().for_each(note);
            return Ok(ExitCode::SUCCESS);
        }
        let shown = (text, failure);
        if shown != last {
            let (text, failure) = &shown;
            // Home, and what was there is erased.
            let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
            if !printer.line(format_args!("{clear}{text}")) {
                return Ok(ExitCode::SUCCESS);
            }
            // After what erases the screen.
            failure.iter().for_each(note);
            last = shown;
        }
        std::thread::sleep(LOOK);
    }
}

fn look(arguments: &JobsArguments, printer: &Printer) -> Result<Seen, Failure> {
    let (mut cluster, mut jobs) = (None, Vec::new());
    let daemon = connect::look(&arguments.daemon, printer)?;
    let is_remote = daemon.as_ref().is_some_and(connect::is_remote);
    let here = match is_remote {
        true => None,
        false => Some(StateDir::find(arguments.daemon.state.state_dir.clone())?),
    };
    if let Some(daemon) = &daemon {
        // On Kubernetes slots are those of nodes, which need not be shown to those who may see jobs.
        let slots = (!arguments.daemon.kubernetes).then(|| daemon.cluster()).transpose();
        match slots.and_then(|slots| Ok((slots, daemon.jobs()?))) {
            Ok((slots, served)) => {
                cluster = slots;
                // Of what was removed only its daemon's account is left.
                let is_here =
                    |job: &JobState| here.as_ref().is_some_and(|here| job.run_dir.starts_with(here.path()));
                let is_removed =
                    |job: &JobState| job.state.has_ended() && is_here(job) && !job.run_dir.exists();
                let served = served.into_iter().filter(|job| !is_removed(job));
                jobs.extend(served.map(|job| Listed::Served(Box::new(job))));
            }
            Err(error @ ClientError::Silent { .. }) if !is_remote => {
                printer.note(format_args!("note: {error}; these are the runs alone"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(here) = &here {
        let served = |job: &Listed| match job {
            Listed::Served(job) => Some(job.name.clone()),
            Listed::ByHand(_) => None,
        };
        let served: BTreeSet<String> = jobs.iter().filter_map(served).collect();
        let runs = here.runs();
        let by_hand = runs.iter().filter(|run| !served.contains(&run.name));
        jobs.extend(by_hand.map(RunView::of).map(Listed::ByHand));
    }
    if let Some(queue) = &arguments.queue {
        jobs.retain(|job| match job {
            Listed::Served(job) => job.queue.as_ref().is_some_and(|own| is_within(own, queue)),
            Listed::ByHand(_) => false,
        });
    }
    if let Some(state) = &arguments.state {
        jobs.retain(|job| job.state() == state);
    }
    let is_table = arguments.daemon.state.format == Format::Table;
    let ended = if is_table && !arguments.all { ENDED } else { usize::MAX };
    let now_s = words::now_s();
    let about = |job: &Listed| (job.age_s(now_s), job.has_ended());
    let (jobs, hidden) = newest(jobs, arguments.limit.unwrap_or(ended), about);
    Ok(Seen { cluster, jobs, hidden })
}

/// How a state stands out: what went wrong, what waits for its user, what is well.
fn colour(state: &str) -> Option<Colour> {
    match state {
        "running" | "finished" => Some(Colour::Good),
        "failed" | "lost" => Some(Colour::Bad),
        "stopping" | "suspended" | "cancelled" => Some(Colour::Doubtful),
        _ => None,
    }
}

fn table(seen: &Seen, printer: &Printer) -> String {
    let mut text = String::new();
    if let Some(ClusterState { policy, slots, free, utilization, nodes, .. }) = &seen.cluster {
        text = format!("{policy} decides on {slots} slots, {free} of them free");
        let taken = nodes.iter().map(|node| node.taken).sum::<u32>();
        if taken > 0 {
            text.push_str(&format!(" and {taken} held by the cluster's other users"));
        }
        text.push_str(&format!("; {:.0} % were used so far\n\n", 100.0 * utilization));
    }
    let now_s = words::now_s();
    let mut rows = vec![TITLES.map(String::from).to_vec()];
    rows.extend(seen.jobs.iter().map(|job| {
        let mut row = job.row(now_s);
        if let Some(colour) = colour(&row[STATE]) {
            row[STATE] = printer.painted(&row[STATE], colour);
        }
        row
    }));
    let is_queued = |job: &Listed| matches!(job, Listed::Served(job) if job.queue.is_some());
    let has_queues = match &seen.cluster {
        Some(cluster) => !cluster.queues.is_empty(),
        None => seen.jobs.iter().any(is_queued),
    };
    if !has_queues {
        for row in &mut rows {
            row.remove(QUEUE);
        }
    }
    text.push_str(&fitted(rows, &SPARE, width()));
    if seen.hidden > 0 {
        text.push_str(&format!(
            "\n{} that ended before: `bellwether jobs --all`\n",
            count(seen.hidden, "job")
        ));
    }
    text
}
