//! A whole run whose protocol may change: its time by number of workers, phase by phase.

use std::fmt::Write;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::job::SyncPolicy;
use bellwether_core::prediction::{Protocol, Validity};
use bellwether_model::hybrid::{self, Phase};
use serde::Serialize;

use super::{Question, Row};
use crate::failure::Failure;
use crate::options::TableFormat;
use crate::printer::Printer;
use crate::render;
use crate::render::csv::{Csv, cell};
use crate::render::duration::written;
use crate::render::figure::figure;

/// A run with a number of workers.
#[derive(Debug, Serialize)]
struct Run {
    workers: u32,
    /// Seconds of the whole run, switches included.
    time_s: f64,
    /// Samples per second, over the whole run.
    examples_per_s: f64,
    /// The time of the same steps in synchronous training, over this time.
    speedup: f64,
    #[serde(rename = "stretches")]
    phases: Vec<Part>,
    validity: Validity,
}

/// A phase of it.
#[derive(Debug, Serialize)]
struct Part {
    protocol: String,
    /// Its first step.
    from_step: u64,
    /// Steps of the whole batch, or what makes as many samples.
    steps: u64,
    time_s: f64,
    examples_per_s: f64,
    low: f64,
    high: f64,
    model: &'static str,
    /// Expected mean staleness of an update; absent where there is no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    staleness: Option<f64>,
}

pub(super) fn predict(question: Question<'_>, printer: &Printer) -> Result<ExitCode, Failure> {
    let arguments = question.arguments;
    let steps = arguments.steps.unwrap_or_default();
    let policy = arguments.sync.clone().or_else(|| arguments.switch_at.clone());
    let policy = policy.unwrap_or(SyncPolicy::Phases(vec![(0.0, question.protocol)]));
    if policy == SyncPolicy::Auto {
        return Err(InputError::new("--sync", "when `auto` switches is known only while it trains")
            .hint("say --switch-at SHARE")
            .into());
    }
    for (flag, given) in [("--plot", &arguments.plot), ("--trace", &arguments.trace)] {
        if given.is_some() {
            let what = "a whole run has no picture of one protocol";
            return Err(InputError::new(flag, what).hint("leave --steps out and say --protocol").into());
        }
    }
    let phases = policy.phases(steps);
    let asked = |protocol| Question { protocol, servers: servers(&question, protocol), ..question }.reduced();
    let questions: Vec<Question<'_>> = phases.iter().map(|(_, protocol)| asked(*protocol)).collect();
    let together = asked(Protocol::Bsp);
    questions.iter().try_for_each(Question::check)?;
    let counts = match questions.iter().find(|question| question.synchronous()) {
        Some(question) => question.counts()?,
        // For comparison with synchronous training no more than that can have.
        None => together.counts()?,
    };
    let mut runs = Vec::with_capacity(counts.len());
    for workers in counts {
        let rows = questions.iter().map(|question| question.row(workers)).collect::<Result<Vec<Row>, _>>()?;
        runs.push(run(&question, workers, &phases, rows, &together.row(workers)?)?);
    }
    printer.out(match arguments.format {
        TableFormat::Table => table(&runs),
        TableFormat::Json => render::json(&runs),
        TableFormat::Csv => csv(&runs),
    });
    Ok(ExitCode::SUCCESS)
}

/// The servers of a phase: those of others are none of synchronous ones, unless these are asked to sum there.
fn servers(question: &Question<'_>, protocol: Protocol) -> Option<u32> {
    let switches = question.arguments.sync.is_some() || question.arguments.switch_at.is_some();
    match protocol {
        Protocol::Bsp if switches && question.arguments.reduce.is_none() => Some(0),
        Protocol::Gossip => None,
        _ => question.servers,
    }
}

fn run(
    question: &Question<'_>,
    workers: u32,
    phases: &[(u64, Protocol)],
    rows: Vec<Row>,
    together: &Row,
) -> Result<Run, Failure> {
    let arguments = question.arguments;
    let total = arguments.steps.unwrap_or_default();
    let profiled = question.model.profile().batch;
    let own = if question.model.shares_batch() { 1 } else { u64::from(workers) };
    // A step is of the batch of synchronous training, whatever the protocol.
    let batch = arguments.batch.unwrap_or(profiled * own) as f64;
    let ends = phases.iter().skip(1).map(|(from, _)| *from).chain([total]);
    let validity = rows
        .iter()
        .map(|row| row.validity.clone())
        .max_by_key(|validity| validity.beyond().map_or(0, str::len));
    let mut parts = Vec::with_capacity(rows.len());
    let mut worked = Vec::with_capacity(rows.len());
    for (((from_step, protocol), end), row) in phases.iter().zip(ends).zip(rows) {
        let steps = end - from_step;
        worked.push(Phase { share: steps as f64 / total as f64, units_per_s: row.examples_per_s });
        parts.push(Part {
            protocol: protocol.to_string(),
            from_step: *from_step,
            steps,
            time_s: steps as f64 * batch / row.examples_per_s,
            examples_per_s: row.examples_per_s,
            low: row.low,
            high: row.high,
            model: row.model,
            staleness: row.staleness,
        });
    }
    let samples = total as f64 * batch;
    let time_s = hybrid::time_s(samples, &worked, arguments.switch_time.get())?;
    Ok(Run {
        workers,
        time_s,
        examples_per_s: samples / time_s,
        speedup: samples / together.examples_per_s / time_s,
        phases: parts,
        validity: validity.unwrap_or(Validity::Interpolated),
    })
}

fn table(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let mut text = format!("{:>7}", "workers");
    for part in &first.phases {
        let _ = write!(text, "  {:>12}  {:>12}", part.protocol, "examples/s");
    }
    let _ = writeln!(text, "  {:>12}  {:>10}  {:>9}", "whole run", "than bsp", "staleness");
    for run in runs {
        let _ = write!(text, "{:>7}", run.workers);
        for part in &run.phases {
            let _ = write!(text, "  {:>12}  {:>12}", written(part.time_s), figure(part.examples_per_s));
        }
        let staleness = run.phases.iter().rev().find_map(|part| part.staleness);
        let staleness = staleness.map_or("-".to_string(), |mean| format!("{mean:.1}"));
        let speedup = format!("x{:.2}", run.speedup);
        let _ = writeln!(text, "  {:>12}  {speedup:>10}  {staleness:>9}", written(run.time_s));
    }
    if first.phases.iter().any(|part| part.protocol != Protocol::Bsp.to_string()) {
        text.push_str(
            "the steps are the same; where updates are stale the accuracy may differ (docs/accuracy.md)\n",
        );
    }
    let reasons = runs.iter().filter_map(|run| run.validity.beyond());
    if let Some(why) = reasons.max_by_key(|why| why.len()) {
        let _ = writeln!(text, "extrapolated: {why}");
    }
    text.trim_end().to_string()
}

/// One line for each phase of each run.
fn csv(runs: &[Run]) -> String {
    let mut csv = Csv::new([
        "workers",
        "time_s",
        "examples_per_s",
        "speedup",
        "protocol",
        "from_step",
        "steps",
        "stretch_s",
        "stretch_examples_per_s",
        "low",
        "high",
        "staleness",
        "model",
    ]);
    for Run { workers, time_s, examples_per_s, speedup, phases, .. } in runs {
        for part in phases {
            csv.row(&[
                workers,
                time_s,
                examples_per_s,
                speedup,
                &part.protocol,
                &part.from_step,
                &part.steps,
                &part.time_s,
                &part.examples_per_s,
                &part.low,
                &part.high,
                &cell(part.staleness),
                &part.model,
            ]);
        }
    }
    csv.text()
}
