//! What a run or a submission would start.

use bellwether_render::duration::written;
use bellwether_render::json_line;
use bellwether_render::table::facts;
use bellwether_serve::snapshot::ClusterState;
use bellwether_session::Outlook;

use crate::options::Format;
use crate::printer::Printer;

/// Prints it.
pub(crate) fn print(outlook: &Outlook, format: Format, printer: &Printer) {
    match format {
        Format::Json => printer.out(json_line(outlook)),
        Format::Table => printer.out(table(outlook)),
    }
}

/// What a daemon would do with it.
pub(crate) fn daemon(cluster: &ClusterState) -> String {
    let ClusterState { policy, slots, free, jobs, .. } = cluster;
    let open: u64 = jobs.iter().filter(|(state, _)| !state.has_ended()).map(|(_, count)| count).sum();
    format!("{policy} decides on {slots} slots, {free} of them free; jobs that have not ended: {open}")
}

fn table(outlook: &Outlook) -> String {
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let workers = match outlook.initial_workers {
        Some(first) if outlook.workers.min == outlook.workers.max => first.to_string(),
        Some(first) => format!("{first} at first, {} allowed", outlook.workers),
        None => format!("{}; how many, a measurement chooses", outlook.workers),
    };
    let done = match outlook.first_step {
        0 => String::new(),
        step => format!(", {step} of them done"),
    };
    let mut rows = vec![
        ("would be started", outlook.run.clone()),
        ("workers", workers),
        ("steps", format!("{}{done}", outlook.steps)),
        ("samples of a step", format!("{} on {} virtual nodes", outlook.batch, outlook.virtual_nodes)),
        ("data", format!("{} samples, {} held out", outlook.training_samples, outlook.held_out_samples)),
        ("parameters", outlook.parameters.to_string()),
        ("memory of a worker", format!("{}, and activations and data", mebibytes(outlook.worker_bytes))),
        ("checkpoint", mebibytes(outlook.checkpoint_bytes)),
    ];
    let time = outlook.expected_s.map_or("unknown; `bellwether profile` measures it".into(), written);
    rows.push(("expected time", time));
    facts(&rows)
}
