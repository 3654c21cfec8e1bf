//! The estimate of a network that was never run.

use bellwether_answers::network::{self, Estimate, Network, Time};
use bellwether_render as render;
use bellwether_render::csv::Csv;
use bellwether_render::table::facts;

use super::PredictArguments;
use crate::failure::Failure;
use crate::files;
use crate::options::TableFormat;
use crate::printer::Printer;

/// Prints the estimate, unless throughput follows, and writes it down where that is asked for.
pub(super) fn show(
    network: &Network,
    arguments: &PredictArguments,
    printer: &Printer,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.output {
        files::check_folder(path)?;
    }
    let estimate = network::estimate(network, &network::known(arguments.known.as_deref())?)?;
    if let Some(path) = &arguments.output {
        files::write_whole(path, render::json(&network::profile(network, &estimate)).as_bytes())?;
        printer.note(format_args!("`bellwether plan {}` takes it as a profile", path.display()));
    }
    if arguments.asks_for_workers() {
        printer.note(table(&estimate));
        return Ok(());
    }
    printer.out(match arguments.format {
        TableFormat::Table => table(&estimate),
        TableFormat::Json => render::json(&estimate),
        TableFormat::Csv => csv(&estimate),
    });
    Ok(())
}

fn times(estimate: &Estimate) -> Vec<(&'static str, &Time)> {
    let checkpoint = estimate.checkpoint.iter().map(|time| ("checkpoint", time));
    std::iter::once(("step", &estimate.step)).chain(checkpoint).collect()
}

fn table(estimate: &Estimate) -> String {
    let mut rows = Vec::new();
    for (name, time) in times(estimate) {
        let Time { seconds, low, high, by, networks, left_out_error, beyond } = time;
        let level = 100.0 * (*networks as f64 / (*networks as f64 + 1.0)).min(0.95);
        rows.push((name, format!("{seconds:.3} s, {level:.0} % within {low:.3} to {high:.3} s")));
        let error = 100.0 * left_out_error;
        // The parameters of a kernel are in the JSON.
        let by = by.split(':').next().unwrap_or_default();
        rows.push(("", format!("{by}; {networks} networks, each predicted by the others: {error:.1} % off")));
        rows.extend(beyond.iter().map(|why| ("", format!("extrapolated: {why}"))));
    }
    facts(&rows)
}

fn csv(estimate: &Estimate) -> String {
    let mut csv = Csv::new(["time", "seconds", "low", "high", "networks", "left_out_error"]);
    for (name, Time { seconds, low, high, networks, left_out_error, .. }) in times(estimate) {
        csv.row(&[&name, seconds, low, high, networks, left_out_error]);
    }
    csv.text()
}
