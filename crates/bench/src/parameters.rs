//! `parameters`: one parameter server and its workers, without and with a replica, beside plain TCP.

use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::report::{Report, Row};
use super::{OutputArguments, size};
use crate::failure::Failure;
use crate::members;
use crate::printer::Printer;
use crate::statistics::Spread;
use conductor::Options;

mod conductor;
mod member;

pub(super) use member::member;

#[derive(Debug, Args)]
pub(super) struct ParametersArguments {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: u32,
    /// Bytes of all parameters
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64MiB")]
    parameters: Bytes,
    /// Tensors of equal size
    #[arg(long, value_name = "N", default_value_t = 16)]
    tensors: u64,
    /// Rounds of measuring
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &ParametersArguments, printer: &Printer) -> Result<Report, Failure> {
    let options = Options {
        workers: arguments.workers,
        parameter_bytes: arguments.parameters.0,
        tensors: arguments.tensors,
        rounds: arguments.rounds,
        ..Options::default()
    };
    let settings = json!({ "workers": options.workers, "parameter_bytes": options.parameter_bytes,
        "tensors": options.tensors, "rounds": options.rounds, "units": options.units });
    let mut report = Report::begin("parameters", settings, &[]);
    printer.note(format_args!(
        "{} workers, {} of parameters, {} rounds without a replica and with one",
        options.workers, arguments.parameters, options.rounds
    ));
    let rows = conductor::run(&options, |arguments| members::start("parameters-member", arguments))?;
    rows.iter().for_each(|row| report.row(of_row(row)));
    report.bars(conductor::bars(&options, &rows));
    report.note(
        "Bytes are gradients pushed and parameters pulled, from the first request of a round to its last acknowledgement; \
         each round stands beside the plain TCP measured just before and after it. What others compute meanwhile slows \
         the one stream of plain TCP more than the many connections of the workers: compare on an idle machine.",
    );
    Ok(report)
}

fn of_row(row: &conductor::Row) -> Row {
    let spread = |table: Row, name: &str, unit: &str, values: Spread| {
        table
            .with(format!("{name}_median{unit}"), values.median)
            .with(format!("{name}_p10{unit}"), values.p10)
            .with(format!("{name}_p90{unit}"), values.p90)
    };
    let table = Row::new(if row.replica { "with a replica" } else { "one server" });
    let table = spread(table, "rate", "_bytes_per_s", row.bytes_per_s);
    let table = spread(table, "one_way", "_bytes_per_s", row.one_way_bytes_per_s);
    let table = spread(table, "of_one_way", "", row.of_one_way);
    let table = spread(table, "pull_4kib", "_s", row.pull_s);
    table
        .with("tcp_round_trip_s", row.round_trip_s.median)
        .with("tcp_4kib_round_trip_s", row.round_trip_4kib_s.median)
        .with("pull_in_round_trips", row.in_round_trips.median)
        .with("pull_in_4kib_round_trips", row.in_4kib_round_trips.median)
}
