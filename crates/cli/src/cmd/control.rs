//! `bellwether jobs`, `scale`, `stop` and `watch`: look at runs and steer them from another terminal.

use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::record::Event;
use bellwether_runtime::control::client::{ClientError, Control};
use bellwether_runtime::control::generated::{Reply, Status};
use bellwether_runtime::journal;

use crate::args::{Format, JobArguments, ScaleArguments, StateArguments};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::at("control", error)
    }
}

fn connect(run: &RunDir) -> Result<Control, Failure> {
    let not_running = |why: String| {
        InputError::new(&run.name, why).hint(format!("`bellwether run --resume {}` takes it up again", run.name))
    };
    let endpoint = run.endpoint().ok_or_else(|| not_running("the run is not running".into()))?;
    Control::connect(&endpoint.control.to_string(), &run.token()?)
        .map_err(|error| not_running(format!("its coordinator is gone ({error})")).into())
}

fn steer(
    arguments: &JobArguments,
    printer: &Printer,
    call: impl FnOnce(&mut Control) -> Result<Reply, ClientError>,
) -> Result<ExitCode, Failure> {
    let run = StateDir::find(arguments.state.state_dir.clone())?.run(&arguments.job)?;
    let reply = call(&mut connect(&run)?)?;
    if !reply.accepted {
        return Err(Failure::at(run.name, reply.message));
    }
    match arguments.state.format {
        Format::Json => printer.out(serde_json::json!({ "run": run.name, "message": reply.message })),
        Format::Table => printer.out(reply.message),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn scale(arguments: ScaleArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    steer(&arguments.job, printer, |control| control.scale(arguments.workers))
}

pub(crate) fn stop(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    steer(arguments, printer, Control::stop)
}

pub(crate) fn watch(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let run = StateDir::find(arguments.state.state_dir.clone())?.run(&arguments.job)?;
    let mut last = None;
    connect(&run)?.watch(|status| {
        let state = (status.step, status.phase.clone(), status.workers);
        if last.as_ref() != Some(&state) {
            match arguments.state.format {
                Format::Json => printer.out(json(&status)),
                Format::Table => printer.out(line(&status)),
            }
            last = Some(state);
        }
        true
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A status in one line.
pub(crate) fn line(status: &Status) -> String {
    let evaluation = status.evaluation.filter(|e| e.predictions > 0).map_or(String::new(), |e| {
        format!("  held-out {:.2} %", 100.0 * e.correct as f64 / e.predictions as f64)
    });
    format!(
        "{}  step {}/{}  loss {:.4}  {:.0} examples/s  {} workers{}  {}",
        status.run, status.step, status.total_steps, status.loss, status.examples_per_s, status.workers, evaluation,
        status.phase
    )
}

fn json(status: &Status) -> serde_json::Value {
    let members: Vec<_> = status
        .members
        .iter()
        .map(|m| {
            serde_json::json!({
                "worker": m.worker, "stage": m.stage, "address": m.address, "process": m.process,
                "virtual_nodes": m.virtual_nodes, "step": m.step,
            })
        })
        .collect();
    serde_json::json!({
        "run": status.run, "phase": status.phase, "epoch": status.epoch, "step": status.step,
        "total_steps": status.total_steps, "loss": status.loss, "examples": status.examples,
        "examples_per_s": status.examples_per_s, "workers": status.workers, "wanted": status.wanted,
        "elapsed_s": status.elapsed_s, "members": members,
    })
}

pub(crate) fn jobs(arguments: StateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for run in StateDir::find(arguments.state_dir)?.runs() {
        let status = run.endpoint().and_then(|_| connect(&run).ok()?.status().ok());
        let row = match status {
            Some(s) => [run.name, s.phase, format!("{}/{}", s.step, s.total_steps), s.workers.to_string()],
            None => {
                let (state, step) = past(&run);
                [run.name, state, step.to_string(), "0".into()]
            }
        };
        rows.push(row);
    }
    match arguments.format {
        Format::Json => {
            let rows: Vec<_> = rows
                .iter()
                .map(|[run, state, step, workers]| {
                    serde_json::json!({ "run": run, "state": state, "step": step, "workers": workers })
                })
                .collect();
            printer.out(serde_json::Value::Array(rows));
        }
        Format::Table => {
            printer.out(format_args!("{:<28} {:<24} {:>16} {:>8}", "RUN", "STATE", "STEP", "WORKERS"));
            for [run, state, step, workers] in rows {
                printer.out(format_args!("{run:<28} {state:<24} {step:>16} {workers:>8}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the journal says of a run that has no coordinator.
fn past(run: &RunDir) -> (String, u64) {
    let lines = journal::read(&run.path.join("journal.jsonl")).unwrap_or_default();
    let step = journal::resumed(&lines).committed;
    let state = lines.iter().rev().find_map(|line| match &line.event {
        Event::Ended { outcome, .. } => Some(outcome.split(':').next().unwrap_or(outcome).to_string()),
        Event::CoordinatorStarted { .. } => Some("coordinator gone".into()),
        _ => None,
    });
    (state.unwrap_or_else(|| "new".into()), step)
}
