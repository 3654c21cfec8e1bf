//! Runs that were started by hand: how they are changed, stopped, watched and shown.

use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::record::{RunOutcome, StepRecord};
use bellwether_render::duration::rough;
use bellwether_render::figure::{loss, percent};
use bellwether_render::summary;
use bellwether_render::table::facts;
use bellwether_render::words::count;
use bellwether_runtime::control::Status;
use bellwether_runtime::control::client::{ClientError, Control};
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::listing::{RunState, RunView};
use bellwether_runtime::metrics;
use serde_json::json;

use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::RunDir;

pub(crate) mod links;

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::at("control", error)
    }
}

/// The coordinator of a run that goes on.
fn connect(run: &RunDir) -> Result<Control, Failure> {
    let not_running = |why: String| -> Failure {
        let name = &run.name;
        let again = format!("`bellwether resume {name}` goes on from there");
        let (what, hint) = match RunView::of(run).state {
            RunState::Finished => {
                ("the job is finished".into(), format!("`bellwether show {name}` shows its result"))
            }
            RunState::Suspended => ("the job is suspended".into(), again),
            RunState::Failed => {
                ("the job has failed".into(), format!("`bellwether logs {name}` says why; {again}"))
            }
            _ => (why, again),
        };
        InputError::new(name, what).hint(hint).into()
    };
    let endpoint = run.endpoint().ok_or_else(|| not_running("the job is not running".into()))?;
    Control::connect(&endpoint.control.to_string(), &run.token()?)
        .map_err(|error| not_running(format!("its coordinator is gone ({error})")))
}

pub(crate) fn scale(run: &RunDir, workers: u32) -> Result<String, Failure> {
    let reply = connect(run)?.scale(workers)?;
    if reply.accepted { Ok(reply.message) } else { Err(Failure::at(&run.name, reply.message)) }
}

/// Stops a run with a checkpoint. Of one whose coordinator is gone it ends the workers.
pub(crate) fn stop(run: &RunDir) -> Result<String, Failure> {
    if RunView::of(run).state == RunState::Lost
        && let Some(ended) = run.end_orphans()?
    {
        let last = run.history()?.newest_checkpoint().map(|(step, _)| step);
        let from =
            last.map_or("begins again from its seed".into(), |step| format!("goes on from step {step}"));
        return Ok(format!(
            "the coordinator of {0} was gone; {1} ended; `bellwether resume {0}` {from}",
            run.name,
            count(ended, "worker")
        ));
    }
    let reply = connect(run)?.stop()?;
    if reply.accepted { Ok(reply.message) } else { Err(Failure::at(&run.name, reply.message)) }
}

pub(crate) fn watch(run: &RunDir, format: Format, printer: &Printer) -> Result<ExitCode, Failure> {
    let view = RunView::of(run);
    if !view.state.is_active() {
        let text = match format {
            Format::Json => json!(view).to_string(),
            Format::Table => view_line(&view),
        };
        printer.line(text);
        return match view.state {
            // There is nothing to follow.
            RunState::Lost => connect(run).map(|_| ExitCode::SUCCESS),
            _ => Ok(exit_code(run)),
        };
    }
    let mut last = None;
    let mut tail = run.follow_journal();
    // What is past is past.
    tail.skip_to_last(0).map_err(|e| Failure::at(&run.name, e))?;
    connect(run)?.watch(|status| {
        if format == Format::Table {
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
            // Without a reader there is nothing to follow for.
            return match format {
                Format::Json => printer.line(status.json()),
                Format::Table => printer.line(line(&status)),
            };
        }
        true
    })?;
    Ok(exit_code(run))
}

/// 1 of a run that failed.
fn exit_code(run: &RunDir) -> ExitCode {
    if has_failed(run) { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

pub(crate) fn has_failed(run: &RunDir) -> bool {
    let outcome = run.history().ok().and_then(|history| history.outcome().cloned());
    matches!(outcome, Some(RunOutcome::Failed(_) | RunOutcome::Broken(_)))
}

/// The batch, where it moves.
pub(crate) fn batch(status: &Status) -> String {
    if status.batch > 0 { format!("batch {}  ", status.batch) } else { String::new() }
}

/// A status in one line.
fn line(status: &Status) -> String {
    let accuracy = status.evaluation.and_then(|evaluation| evaluation.accuracy());
    let evaluation =
        accuracy.map_or(String::new(), |accuracy| format!("  held-out {:.2} %", 100.0 * accuracy));
    let loss = loss(Some(status.loss).filter(|loss| loss.is_finite()));
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

/// What is known of a run that does not go on, in one line.
fn view_line(view: &RunView) -> String {
    format!("{}  step {}  loss {}  {}", view.run, steps(view), loss(view.loss), view.state.name())
}

/// What a run is doing, with what it waits for.
pub(crate) fn state(view: &RunView) -> String {
    match view.phase.as_ref().filter(|phase| phase.starts_with("waiting")) {
        Some(phase) => format!("{}, {phase}", view.state.name()),
        None => view.state.name().into(),
    }
}

/// Committed steps of all.
pub(crate) fn steps(view: &RunView) -> String {
    format!("{}/{}", view.step, view.total_steps.map_or("?".into(), |steps| steps.to_string()))
}

/// All that is known of a run: its summary, once its coordinator has ended.
pub(crate) fn show(run: &RunDir, format: Format, printer: &Printer) -> Result<(), Failure> {
    let (view, history) = (RunView::of(run), run.history()?);
    // That of an earlier coordinator tells of another end.
    let told = run.summary().filter(|told| !view.state.is_active() && told.steps == view.step);
    match (format, told) {
        (Format::Json, told) => {
            let mut value = json!(view);
            value["served"] = json!(run.is_served());
            value["links"] = links::json(&view.members);
            value["run_dir"] = json!(run.path);
            value["summary"] = json!(told);
            printer.out(value);
        }
        (Format::Table, Some(told)) => printer.out(summary::table(&told)),
        (Format::Table, None) => printer.out(facts(&rows(run, &view, &history))),
    }
    Ok(())
}

fn rows(run: &RunDir, view: &RunView, history: &RunHistory) -> Vec<(&'static str, String)> {
    let phase = view.phase.as_ref().filter(|phase| *phase != view.state.name());
    let phase = phase.map_or(String::new(), |phase| format!(" ({phase})"));
    let mut rows = vec![
        ("job", run.name.clone()),
        ("state", format!("{}{phase}", view.state.name())),
        ("steps", steps(view)),
        ("loss", loss(view.loss)),
    ];
    if let Some(evaluation) = &history.evaluation {
        let accuracy =
            evaluation.accuracy.map_or(String::new(), |share| format!(", accuracy {:.2} %", 100.0 * share));
        rows.push(("held-out loss", format!("{}{accuracy}", loss(Some(evaluation.loss)))));
    }
    rows.extend(history.ended_early().map(|end| ("ended early", end.to_string())));
    rows.extend(view.examples_per_s.map(|rate| ("examples/s", format!("{rate:.0}"))));
    rows.push(("workers", view.workers.to_string()));
    rows.extend(links::rows(&view.members));
    let last = metrics::last(&run.path).filter(|step| step.data_wait_s > 0.0);
    let share =
        |step: StepRecord| format!("{} of the last step", percent(step.data_wait_s / step.duration_s));
    rows.extend(last.map(|step| ("waits for data", share(step))));
    rows.extend(view.age_s.map(|age_s| ("started", format!("{} ago", rough(age_s)))));
    rows.extend(history.newest_checkpoint().map(|(_, path)| ("checkpoint", path.display().to_string())));
    let digest = history.ending.as_ref().and_then(|ending| ending.digest.clone());
    rows.extend(digest.map(|digest| ("parameters", digest)));
    rows.push(("folder", run.path.display().to_string()));
    rows
}
