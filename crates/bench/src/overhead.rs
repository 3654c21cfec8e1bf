//! `overhead`: what elasticity costs per step while nothing changes, beside a plain loop.

use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::jobs::Synthetic;
use super::report::{Report, Row};
use super::statistics::{largest, median, smallest};
use super::trial::Trial;
use super::{OutputArguments, plain};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct OverheadArguments {
    /// Numbers of workers to try
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    workers: Vec<u32>,
    /// Alternations between the runtime and the plain loop
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Steps of each
    #[arg(long, value_name = "N", default_value_t = 250)]
    steps: u64,
    /// Bytes of parameters
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    parameters: Bytes,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

const STEP_MS: u64 = 20;

/// Share of a step of 20 ms that membership and commit may cost.
const BOUND: f64 = 0.01;

/// Share of the steps at the start of each run that are left out.
pub(super) const WARM_UP: f64 = 0.1;

/// Medians of one run, in seconds.
#[derive(Debug, Clone, Copy)]
struct Medians {
    step_s: f64,
    /// All but the gradients.
    rest_s: f64,
}

impl Medians {
    fn of(samples: &[plain::Sample]) -> Medians {
        let column = |value: fn(&plain::Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
        Medians { step_s: median(&column(|s| s[0])), rest_s: median(&column(|s| s[0] - s[1])) }
    }
}

pub(super) fn measure(arguments: &OverheadArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "workers": arguments.workers, "rounds": arguments.rounds, "steps": arguments.steps,
        "parameters_bytes": arguments.parameters.0, "step_time_s": STEP_MS as f64 / 1e3,
    });
    let mut report = Report::begin("overhead", settings, &[]);
    for workers in &arguments.workers {
        let (mut elastic, mut bare) = (Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            printer.note(format_args!("{workers} workers, round {} of {}", round + 1, arguments.rounds));
            // The first to go may find a calmer machine.
            if round % 2 == 0 {
                elastic.push(of_runtime(arguments, *workers)?);
                bare.push(of_plain(arguments, *workers)?);
            } else {
                bare.push(of_plain(arguments, *workers)?);
                elastic.push(of_runtime(arguments, *workers)?);
            }
        }
        row(&mut report, *workers, &elastic, &bare);
    }
    report.note(
        "Both sides train the same synthetic job with as many virtual nodes as workers; the plain loop has the same \
         trainee, collective and update, but no coordinator, membership, commit or report. Medians of a round's steps; \
         the cost is the difference of the two medians of a round, reported over the rounds. `rest` is a step less its \
         gradients (collective, waiting for the slowest, update).",
    );
    Ok(report)
}

fn row(report: &mut Report, workers: u32, elastic: &[Medians], bare: &[Medians]) {
    let column = |of: &[Medians], value: fn(&Medians) -> f64| of.iter().map(value).collect::<Vec<f64>>();
    let pairs = |value: fn(&Medians) -> f64| {
        elastic.iter().zip(bare).map(|(e, b)| value(e) - value(b)).collect::<Vec<f64>>()
    };
    let cost_s = pairs(|m| m.step_s);
    report.row(
        Row::new(format!("{workers} workers"))
            .with("rounds", cost_s.len())
            .with("runtime_step_s", median(&column(elastic, |m| m.step_s)))
            .with("plain_step_s", median(&column(bare, |m| m.step_s)))
            .with("runtime_rest_s", median(&column(elastic, |m| m.rest_s)))
            .with("plain_rest_s", median(&column(bare, |m| m.rest_s)))
            .with("cost_median_s", median(&cost_s))
            .with("cost_best_s", smallest(&cost_s))
            .with("cost_worst_s", largest(&cost_s))
            .with("rest_cost_median_s", median(&pairs(|m| m.rest_s)))
            .samples("cost_samples_s", &cost_s),
    );
    let share = median(&cost_s) / (STEP_MS as f64 / 1e3);
    report.at_most(format!("{workers} workers: median cost over a step of {STEP_MS} ms"), "", share, BOUND);
}

fn job(arguments: &OverheadArguments, workers: u32) -> String {
    let (parameters, steps) = (arguments.parameters, arguments.steps);
    Synthetic { step_ms: STEP_MS, parameters, virtual_nodes: workers, steps, adam: false }.text()
}

fn of_runtime(arguments: &OverheadArguments, workers: u32) -> Result<Medians, Failure> {
    let trial = Trial::launch(Folder::new("bench")?, &job(arguments, workers), workers)?;
    let first = (arguments.steps as f64 * WARM_UP) as u64;
    let steps = trial.finish()?;
    let samples: Vec<_> =
        steps.iter().filter(|s| s.step >= first).map(|s| [s.duration_s, s.compute_s]).collect();
    Ok(Medians::of(&samples))
}

fn of_plain(arguments: &OverheadArguments, workers: u32) -> Result<Medians, Failure> {
    let samples = plain::run(&Folder::new("bench")?, &job(arguments, workers), workers)?;
    let first = (arguments.steps as f64 * WARM_UP) as usize;
    let of_workers = samples.chunks(arguments.steps as usize);
    let samples: Vec<_> = of_workers.flat_map(|steps| steps.iter().skip(first).copied()).collect();
    Ok(Medians::of(&samples))
}
