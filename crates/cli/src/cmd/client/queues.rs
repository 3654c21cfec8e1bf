//! `bellwether queues`: the queues that divide a daemon's slots, shown or chosen.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_render::json_line;
use bellwether_render::table::{fitted, width};
use bellwether_serve::snapshot::{ClusterState, Phase, QueueSlots, QueueState};
use clap::Args;

use super::args::DaemonArguments;
use super::connect;
use crate::failure::Failure;
use crate::files;
use crate::options::Format;
use crate::printer::Printer;

const TITLES: [&str; 8] =
    ["QUEUE", "HOLDS", "GUARANTEED", "LIMIT", "WEIGHT", "RUNNING", "WAITING", "RECENT SLOT HOURS"];

/// Columns that a narrow terminal does without, the first one first.
const SPARE: [&str; 3] = ["RECENT SLOT HOURS", "WEIGHT", "LIMIT"];

#[derive(Debug, Args)]
pub(crate) struct QueuesArguments {
    /// Divide the slots as this file says from now on (TOML; `bellwether schema queues`) [default: show the queues]
    #[arg(value_name = "QUEUES.toml")]
    pub(crate) file: Option<PathBuf>,
    /// Let nothing divide the slots any more
    #[arg(long, conflicts_with = "file")]
    pub(crate) none: bool,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

pub(crate) fn queues(arguments: &QueuesArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let wanted = arguments.file.as_deref().map(files::read_queues).transpose()?;
    let daemon = connect::find(&arguments.daemon, printer)?;
    if wanted.is_some() || arguments.none {
        daemon.divide(wanted.as_ref())?;
    }
    if arguments.daemon.kubernetes {
        // The answer says where queues are there.
        daemon.queues()?;
    }
    let cluster = daemon.cluster()?;
    match arguments.daemon.state.format {
        Format::Json => printer.out(json_line(&cluster.queues)),
        Format::Table => printer.out(table(&cluster)),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(cluster: &ClusterState) -> String {
    if cluster.queues.is_empty() {
        return "nothing divides the slots; `bellwether queues QUEUES.toml` does".into();
    }
    let mut rows = vec![TITLES.map(String::from).to_vec()];
    rows.extend(cluster.queues.iter().map(|queue| row(queue, cluster.time_scale)));
    fitted(rows, &SPARE, width()).trim_end().to_owned()
}

fn row(queue: &QueueState, time_scale: f64) -> Vec<String> {
    let jobs = |phases: &[Phase]| {
        let count = |phase: &Phase| queue.jobs.get(phase).copied().unwrap_or(0);
        phases.iter().map(count).sum::<u64>().to_string()
    };
    let held = |slots: &QueueSlots| {
        let borrowed = slots.held.saturating_sub(slots.guaranteed);
        let said = if borrowed > 0 { format!(" ({borrowed} borrowed)") } else { String::new() };
        format!("{}{said}", slots.held)
    };
    let limit = |slots: &QueueSlots| slots.limit.map_or("–".into(), |limit| limit.to_string());
    vec![
        queue.name.clone(),
        by_type(queue, held),
        by_type(queue, |slots| slots.guaranteed.to_string()),
        by_type(queue, limit),
        queue.weight.to_string(),
        jobs(&[Phase::Starting, Phase::Running, Phase::Stopping]),
        jobs(&[Phase::Queued]),
        format!("{:.1}", queue.recent_slot_s / time_scale / 3600.0),
    ]
}

/// A number for each type of slot; the type is said where there are several.
fn by_type(queue: &QueueState, told: impl Fn(&QueueSlots) -> String) -> String {
    let one = |slots: &QueueSlots| match queue.slots.len() {
        1 => told(slots),
        _ => format!("{} {}", slots.device_type, told(slots)),
    };
    queue.slots.iter().map(one).collect::<Vec<_>>().join(", ")
}
