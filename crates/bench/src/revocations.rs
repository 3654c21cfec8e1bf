//! `revocations`: a job whose servers vanish as a law says, beside what that law lets expect and beside the same job
//! undisturbed.

use std::fs;

use bellwether_core::record::{Event, Summary};
use bellwether_core::units::Bytes;
use bellwether_runtime::journal;
use bellwether_runtime::run_dir::RunDir;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::Synthetic;
use super::report::{Report, Row};
use super::statistics::median;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use crate::programs::bellwether;

#[derive(Debug, Args)]
pub(super) struct RevocationsArguments {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: u32,
    /// Runs of each case, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 600)]
    steps: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Seconds of the law in a second: lifetimes of an hour on average take one and a half seconds.
const TIME_SCALE: f64 = 2400.0;

/// Law, and notice on its clock: none, one that is long enough for a boundary at this scale, and a law with a limit at
/// which all servers of an age vanish together.
const CASES: [(&str, &str, &str); 3] = [
    ("exponential, no notice", "exponential:1h", "0s"),
    ("exponential, notice", "exponential:1h", "10min"),
    ("together at a limit, no notice", "bathtub:0.3,30min,0.2,20min,2h", "0s"),
];

pub(super) fn measure(arguments: &RevocationsArguments, printer: &Printer) -> Result<Report, Failure> {
    let RevocationsArguments { workers, rounds, steps, .. } = *arguments;
    let settings = json!({ "workers": workers, "rounds": rounds, "steps": steps, "step_ms": 20, "time_scale": TIME_SCALE });
    let mut report = Report::begin("revocations", settings, &[]);
    let job =
        Synthetic { step_ms: 20, parameters: Bytes(1 << 20), virtual_nodes: workers, steps, adam: false };
    let text = format!("{}[checkpoint]\nevery_steps = 20\n", job.text());
    let calm = train(&text, workers, &[])?;
    for (name, law, notice) in CASES {
        printer.note(format_args!("{name}: {rounds} runs"));
        let runs = (0..rounds).map(|seed| {
            let law = format!("{law},seed={seed},time-scale={TIME_SCALE}");
            train(&text, workers, &["--revocations", &law, "--notice", notice])
        });
        let runs = runs.collect::<Result<Vec<Run>, Failure>>()?;
        describe(&mut report, name, &calm, &runs);
    }
    report.note(
        "Times and server-hours are on the law's clock. `least losses of a place` counts servers that were lost one \
         after another in the place that lost fewest. What is expected has the speeds of the run's first steps and the \
         run's own overheads; the error is of one run, which is one draw.",
    );
    Ok(report)
}

struct Run {
    summary: Summary,
    /// Losses of the place that lost fewest servers.
    least_losses: u64,
}

/// Trains the job in a folder of its own.
fn train(text: &str, workers: u32, more: &[&str]) -> Result<Run, Failure> {
    let folder = Folder::new("bench")?;
    let job = folder.path().join("job.toml");
    fs::write(&job, text).map_err(|e| Failure::at(job.display().to_string(), e))?;
    let mut command = bellwether()?;
    command.stdout(std::process::Stdio::piped());
    command.arg("run").arg(&job).arg("--state-dir").arg(folder.path());
    command.args(["--format", "json", "--workers", &workers.to_string()]).args(more);
    let output = command.output().map_err(|e| Failure::at("bellwether", e))?;
    let summary: Summary = serde_json::from_slice(&output.stdout).map_err(|e| {
        Failure::at("revocations", format!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    })?;
    let lines = journal::read(&RunDir::at(folder.path().join(&summary.run)).journal_file());
    let lines = lines.map_err(|e| Failure::at("journal", e))?;
    let least_losses = least_losses(lines.into_iter().map(|line| line.event), workers);
    Ok(Run { summary, least_losses })
}

/// A place is a chain of servers, each requested when the one before it was lost: the next newcomer gets the place that
/// has been empty longest.
fn least_losses(events: impl Iterator<Item = Event>, workers: u32) -> u64 {
    let mut empty: std::collections::VecDeque<usize> = (0..workers as usize).collect();
    let mut places = std::collections::BTreeMap::new();
    let mut losses = vec![0; workers as usize];
    for event in events {
        match event {
            Event::WorkerStarted { worker } => {
                if let Some(place) = empty.pop_front() {
                    places.insert(worker, place);
                }
            }
            Event::Revoked { worker, .. } => {
                if let Some(place) = places.remove(&worker) {
                    losses[place] += 1;
                    empty.push_back(place);
                }
            }
            _ => {}
        }
    }
    losses.into_iter().min().unwrap_or(0)
}

fn describe(report: &mut Report, name: &str, calm: &Run, runs: &[Run]) {
    let same = runs.iter().filter(|run| run.summary.params_digest == calm.summary.params_digest).count();
    let reports: Vec<_> = runs.iter().filter_map(|run| run.summary.revocations.clone()).collect();
    let of = |value: &dyn Fn(&bellwether_core::record::Revocations) -> Option<f64>| {
        reports.iter().filter_map(value).collect::<Vec<f64>>()
    };
    let time_errors = of(&|r| Some(r.expected.as_ref()?.time_s / r.time_s - 1.0));
    let hour_errors = of(&|r| Some(r.expected.as_ref()?.server_hours / r.server_hours - 1.0));
    let loss_errors = of(&|r| Some(r.expected.as_ref()?.revoked - f64::from(r.revoked)));
    let inside = of(&|r| {
        let expected = r.expected.as_ref()?;
        Some(f64::from(u8::from((expected.low_s..=expected.high_s).contains(&r.time_s))))
    });
    let least = runs.iter().map(|run| run.least_losses).min().unwrap_or(0);
    let slower = runs.iter().map(|run| run.summary.elapsed_s / calm.summary.elapsed_s);
    let row = Row::new(name)
        .with("runs", runs.len())
        .with("same bits", same)
        .with("losses_median", median(&of(&|r| Some(f64::from(r.revoked)))))
        .with("least losses of a place", least)
        .with("crashes", runs.iter().map(|run| run.summary.crashes.len()).sum::<usize>())
        .with("time_over_undisturbed", median(&slower.collect::<Vec<_>>()))
        .with("expected_time_error_median", median(&time_errors))
        .with("expected_losses_error_median", median(&loss_errors))
        .with("expected_hours_error_median", median(&hour_errors))
        .with("runs_within_5_to_95_percent", inside.iter().sum::<f64>())
        .samples("expected_time_error_samples", &time_errors);
    report.row(row);
    report.bar(
        format!("{name}: runs with the undisturbed bits"),
        same as f64,
        runs.len() as f64,
        same == runs.len(),
    );
    report.bar(format!("{name}: least losses of a place"), least as f64, 2.0, least >= 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_chain_of_servers() {
        let started = |worker| Event::WorkerStarted { worker };
        let revoked = |worker| Event::Revoked { worker, step: 0, lived_s: 1.0, notice_s: None };
        let events = [started(1), started(2), revoked(1), started(3), revoked(3), started(4), revoked(2)];
        assert_eq!(least_losses(events.into_iter(), 2), 1);
    }
}
