//! `allreduce`: the data plane's collective, beside plain TCP and, where Python has it, gloo.

use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::report::{Report, Row};
use super::{OutputArguments, published, size};
use crate::failure::Failure;
use crate::members;
use crate::printer::Printer;
use crate::statistics::Spread;
use conductor::{Options, SIZES_BYTES};

mod conductor;
mod gloo;
mod member;

pub(super) use member::member;

#[derive(Debug, Args)]
pub(super) struct AllreduceArguments {
    /// Number of processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: u32,
    /// Sizes of the vectors, multiples of 4 bytes [default: 4 B to 256 MiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size)]
    bytes: Vec<Bytes>,
    /// Seconds to spend on each size
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds_per_size: f64,
    /// Leave PyTorch's gloo out even where Python has it
    #[arg(long)]
    no_gloo: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &AllreduceArguments, printer: &Printer) -> Result<Report, Failure> {
    let sizes_bytes: Vec<u64> = match arguments.bytes.as_slice() {
        [] => SIZES_BYTES.to_vec(),
        sizes => sizes.iter().map(|size| size.0).collect(),
    };
    let (workers, seconds_per_size) = (arguments.workers, arguments.seconds_per_size);
    let settings = json!({ "workers": workers, "bytes": sizes_bytes, "seconds_per_size": seconds_per_size });
    let mut report = Report::begin("allreduce", settings, published::ALLREDUCE);
    printer.note(format_args!("{workers} processes, {} sizes, {seconds_per_size} s each", sizes_bytes.len()));
    let options = Options { workers, sizes_bytes, seconds_per_size, gloo: !arguments.no_gloo };
    let measured = conductor::run(&options, |arguments| members::start("allreduce-member", arguments))?;
    for row in &measured.rows {
        let bus = |spread: &Spread| row.bus_bytes_per_s(workers, spread.median);
        let [shared, tcp, encrypted, tcp_bf16, encrypted_bf16] = &row.latency_s;
        let gloo = row.gloo_latency_s.as_ref();
        let all = |value: fn(&Spread) -> f64| row.latency_s.iter().map(value).collect::<Vec<_>>();
        report.row(
            Row::new(Bytes(row.bytes).to_string())
                .with("repetitions", row.repetitions)
                .with("shared_s", shared.median)
                .with("tcp_s", tcp.median)
                .with("encrypted_s", encrypted.median)
                .with("tcp_bf16_s", tcp_bf16.median)
                .with("encrypted_bf16_s", encrypted_bf16.median)
                .with("gloo_s", gloo.map(|gloo| gloo.median))
                .with("copy_and_add_s", row.copy_and_add_s.median)
                .with("shared_bus_bytes_per_s", bus(shared))
                .with("tcp_bus_bytes_per_s", bus(tcp))
                .with("encrypted_bus_bytes_per_s", bus(encrypted))
                .with("gloo_bus_bytes_per_s", gloo.map(bus))
                .with("tcp_bus_of_one_way", row.of_one_way(workers))
                .with("tcp_round_trip_s", row.limits.round_trip_s)
                .with("tcp_1mib_bytes_per_s", row.limits.copy_1mib_bytes_per_s)
                .with("tcp_256mib_bytes_per_s", row.limits.copy_256mib_bytes_per_s)
                .samples("p10_s", &all(|spread| spread.p10))
                .samples("p90_s", &all(|spread| spread.p90)),
        );
    }
    report.bars(measured.bars);
    report.note(match measured.gloo_missing {
        Some(why) => format!("gloo was not measured: {why}"),
        None => "gloo was measured in the same run, size by size; its time includes the Python call.".into(),
    });
    Ok(report)
}
