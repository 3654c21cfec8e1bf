//! Runs that were started by hand: how they are changed, stopped and watched, and their lines in `jobs`.

use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::record::RunOutcome;
use bellwether_runtime::control::client::{ClientError, Control};
use bellwether_runtime::control::{Answer, Status};
use bellwether_runtime::metrics;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;
use crate::render::duration::rough;
use crate::render::words::count;
use crate::runs::{RunDir, StateDir};

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::at("control", error)
    }
}

fn connect(run: &RunDir) -> Result<Control, Failure> {
    let not_running = |why: String| -> Failure {
        let again = format!("`bellwether run --resume {}` takes it up again", run.name);
        let history = run.history().unwrap_or_default();
        let (what, hint) = match history.outcome() {
            Some(RunOutcome::Finished) => {
                ("the run is finished".into(), "`bellwether jobs` lists all runs".into())
            }
            Some(how @ (RunOutcome::Stopped | RunOutcome::Failed(_))) => {
                (format!("the run has {}", how.word()), again)
            }
            _ => (why, again),
        };
        InputError::new(&run.name, what).hint(hint).into()
    };
    let endpoint = run.endpoint().ok_or_else(|| not_running("the run is not running".into()))?;
    Control::connect(&endpoint.control.to_string(), &run.token()?)
        .map_err(|error| not_running(format!("its coordinator is gone ({error})")))
}

fn steer(
    job: &str,
    state: &StateArguments,
    printer: &Printer,
    call: impl FnOnce(&mut Control) -> Result<Answer, ClientError>,
) -> Result<ExitCode, Failure> {
    let run = StateDir::find(state.state_dir.clone())?.run(job)?;
    let reply = call(&mut connect(&run)?)?;
    if !reply.accepted {
        return Err(Failure::at(run.name, reply.message));
    }
    match state.format {
        Format::Json => printer.out(serde_json::json!({ "run": run.name, "message": reply.message })),
        Format::Table => printer.out(reply.message),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn scale(
    job: &str,
    state: &StateArguments,
    workers: u32,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    steer(job, state, printer, |control| control.scale(workers))
}

pub(crate) fn stop(job: &str, state: &StateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    steer(job, state, printer, Control::stop)
}

pub(crate) fn watch(job: &str, state: &StateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let run = StateDir::find(state.state_dir.clone())?.run(job)?;
    let mut last = None;
    let mut tail = run.follow_journal();
    // What is past is past.
    while !tail.read().map_err(|e| Failure::at(&run.name, e))?.is_empty() {}
    connect(&run)?.watch(|status| {
        if state.format == Format::Table {
            // A journal that cannot be read now is read at the next look.
            let news = tail.read().unwrap_or_default();
            let mut heard = news.iter().filter_map(|line| line.event.sentence());
            if !heard.all(|sentence| printer.line(sentence)) {
                return false;
            }
        }
        let now = (status.step, status.lifecycle.clone(), status.workers);
        if last.as_ref() != Some(&now) {
            last = Some(now);
            // Nobody to read it, nothing to follow.
            return match state.format {
                Format::Json => printer.line(json(&status)),
                Format::Table => printer.line(line(&status)),
            };
        }
        true
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The batch, where it moves.
pub(crate) fn batch(status: &Status) -> String {
    if status.batch > 0 { format!("batch {}  ", status.batch) } else { String::new() }
}

/// A status in one line.
fn line(status: &Status) -> String {
    let evaluation = status.evaluation.filter(|e| e.predictions > 0).map_or(String::new(), |e| {
        format!("  held-out {:.2} %", 100.0 * e.correct as f64 / e.predictions as f64)
    });
    let loss = if status.loss.is_finite() { format!("{:.4}", status.loss) } else { "–".into() };
    format!(
        "{}  step {}/{}  loss {loss}  {}{:.0} examples/s  {}{evaluation}  {}",
        status.run,
        status.step,
        status.total_steps,
        batch(status),
        status.examples_per_s,
        count(status.workers as usize, "worker"),
        status.lifecycle
    )
}

fn json(status: &Status) -> serde_json::Value {
    let members: Vec<_> = status
        .members
        .iter()
        .map(|m| {
            serde_json::json!({
                "worker": m.worker, "stage": m.stage, "address": m.address, "process": m.process,
                "virtual_nodes": m.virtual_nodes, "step": m.step, "doing": m.doing,
            })
        })
        .collect();
    serde_json::json!({
        "run": status.run, "phase": status.lifecycle, "epoch": status.epoch, "step": status.step,
        "total_steps": status.total_steps, "loss": status.loss, "examples": status.examples,
        "examples_per_s": status.examples_per_s, "workers": status.workers, "wanted": status.wanted,
        "elapsed_s": status.elapsed_s, "batch": (status.batch > 0).then_some(status.batch), "members": members,
    })
}

/// What is known of a run in a line of `bellwether jobs`.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    run: String,
    pub(crate) state: String,
    step: u64,
    total_steps: Option<u64>,
    loss: Option<f64>,
    workers: u32,
    age_s: Option<f64>,
}

impl Row {
    pub(crate) fn of(run: &RunDir) -> Row {
        // A run whose journal cannot be read is still a run.
        let history = run.history().unwrap_or_default();
        let age_s = history.age_s();
        let name = run.name.clone();
        match run.endpoint().and_then(|_| connect(run).ok()?.status().ok()) {
            Some(s) => Row {
                run: name,
                state: s.lifecycle,
                step: s.step,
                total_steps: Some(s.total_steps).filter(|steps| *steps > 0),
                loss: Some(s.loss).filter(|loss| loss.is_finite()),
                workers: s.workers,
                age_s,
            },
            None => Row {
                run: name,
                state: history.state().into(),
                step: history.committed(),
                total_steps: history.total_steps(),
                loss: metrics::last(&run.path).and_then(|step| step.loss),
                workers: 0,
                age_s,
            },
        }
    }

    fn line(&self) -> String {
        let total = self.total_steps.map_or("?".into(), |steps| steps.to_string());
        let loss = self.loss.map_or("–".into(), |loss| format!("{loss:.4}"));
        let age = self.age_s.map_or("–".into(), rough);
        let Row { run, state, step, workers, .. } = self;
        format!("{run:<28} {state:<18} {:>15} {loss:>9} {workers:>8} {age:>8}", format!("{step}/{total}"))
    }
}

/// Runs, a line each.
pub(crate) fn table(rows: &[Row]) -> String {
    let [run, state, step, loss, workers, age] = ["RUN", "STATE", "STEP", "LOSS", "WORKERS", "AGE"];
    let titles = format!("{run:<28} {state:<18} {step:>15} {loss:>9} {workers:>8} {age:>8}");
    std::iter::once(titles).chain(rows.iter().map(Row::line)).collect::<Vec<_>>().join("\n")
}
