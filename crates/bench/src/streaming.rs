//! `streaming`: training on samples that stay in their files, beside the same training with all of them in memory.

use bellwether_core::record::Summary;
use bellwether_runtime::order::mix;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::{Report, Row};
use super::statistics::{largest, mean, median, smallest};
use super::training::{self, Shape, speed};
use super::trial::Trial;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct StreamingArguments {
    /// Alternations between both
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: u32,
    /// Seconds that each run should train
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Least share of the speed in memory.
const BOUND: f64 = 0.97;

/// A network that is quicker than its lines can be read: no bar, for it shows what a line costs.
const ROWS: Shape = Shape {
    name: "mlp of lines",
    model: "kind = \"mlp\"\nhidden = [32]",
    data: "kind = \"csv\"\npath = \"FOLDER/rows.csv\"\nheld_out = 0.0",
    batch: 64,
    rough_examples_per_s: 300_000.0,
    bar: false,
};

/// Rows of 64 numbers.
const ROW_COUNT: u64 = 65_536;

/// One of the runs.
struct Run {
    examples_per_s: f64,
    summary: Summary,
}

pub(super) fn measure(arguments: &StreamingArguments, printer: &Printer) -> Result<Report, Failure> {
    let StreamingArguments { rounds, seconds, .. } = arguments;
    let settings = json!({ "rounds": rounds, "seconds": seconds, "data": "random bytes", "threads": 1 });
    let mut report = Report::begin("streaming", settings, &[]);
    let data = Folder::new("bench")?;
    training::write_data(&data)?;
    write_rows(&data)?;
    for shape in training::SHAPES.iter().chain([&ROWS]) {
        let (mut memory, mut streamed) = (Vec::new(), Vec::new());
        for round in 0..*rounds {
            printer.note(format_args!("{}, round {} of {rounds}", shape.name, round + 1));
            // Alternate who goes first.
            for place in 0..2 {
                match (round + place) % 2 {
                    0 => memory.push(run(shape, *seconds, &data, false)?),
                    _ => streamed.push(run(shape, *seconds, &data, true)?),
                }
            }
        }
        row(&mut report, shape, &memory, &streamed);
    }
    report.note(
        "One worker; the faster half of the steps counts, on both sides. A thread of the worker reads ahead, so where \
         no core is free for it, reading takes its time from computing.",
    );
    Ok(report)
}

fn row(report: &mut Report, shape: &Shape, memory: &[Run], streamed: &[Run]) {
    let speeds = |runs: &[Run]| runs.iter().map(|run| run.examples_per_s).collect::<Vec<f64>>();
    let (memory_speeds, streamed_speeds) = (speeds(memory), speeds(streamed));
    let ratios: Vec<f64> = streamed_speeds.iter().zip(&memory_speeds).map(|(a, b)| a / b).collect();
    let most = |runs: &[Run]| runs.iter().map(|run| run.summary.peak_resident_bytes).max().unwrap_or(0);
    let waited: Vec<f64> = streamed.iter().map(|run| run.summary.data_wait.unwrap_or(0.0)).collect();
    let waits: Vec<f64> = streamed.iter().map(|run| run.summary.data_waits as f64).collect();
    report.row(
        Row::new(shape.name)
            .with("memory_examples_per_s", median(&memory_speeds))
            .with("streamed_examples_per_s", median(&streamed_speeds))
            .with("ratio_median", median(&ratios))
            .with("ratio_worst", smallest(&ratios))
            .with("ratio_best", largest(&ratios))
            .with("waited_share", mean(&waited))
            .with("steps_that_waited", mean(&waits))
            .with("memory_peak_bytes", most(memory))
            .with("streamed_peak_bytes", most(streamed))
            .samples("ratio_samples", &ratios),
    );
    if shape.bar {
        let ratio = median(&ratios);
        report.bar(
            format!("{}: streamed over in memory, at least", shape.name),
            ratio,
            BOUND,
            ratio >= BOUND,
        );
    }
}

fn run(shape: &Shape, seconds: f64, data: &Folder, is_streamed: bool) -> Result<Run, Failure> {
    let job = training::job(shape, seconds, data, 1);
    let job = job.replace("held_out =", &format!("streamed = {is_streamed}\nheld_out ="));
    let mut trial = Trial::launch(Folder::new("bench")?, &job, 1)?;
    let summary = trial.outcome()?.summary;
    let durations_s: Vec<f64> = trial.steps().iter().map(|step| step.duration_s).collect();
    Ok(Run { examples_per_s: speed(&durations_s, shape.batch), summary })
}

/// Lines of small numbers and a class.
fn write_rows(folder: &Folder) -> Result<(), Failure> {
    let mut text = String::new();
    for row in 0..ROW_COUNT {
        for column in 0..64 {
            text += &(mix(row, column) % 17).to_string();
            text.push(',');
        }
        text += &(mix(row, 64) % 10).to_string();
        text.push('\n');
    }
    folder.write("rows.csv", text).map(|_| ())
}
