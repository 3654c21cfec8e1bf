//! `bellwether audit`: the exactly-once ledger, proven from the journal.

use std::process::ExitCode;

use bellwether_runtime::journal::{Audit, Entry, Ledger, LedgerError, Segment};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;
use crate::runs::StateDir;

/// Lines that cannot be read and are listed; further ones are only counted.
const LISTED: usize = 1000;

/// Lines that cannot be read.
#[derive(Default)]
struct Unreadable {
    lines: u64,
    /// The numbers of the first of them.
    first: Vec<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Name of the run, or of the job (its newest run)
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

pub(crate) fn audit(arguments: &AuditArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let run = StateDir::find(arguments.state.state_dir.clone())?.run(&arguments.job)?;
    let path = run.journal_file();
    let at = |error| Failure::at(path.display().to_string(), error);
    let job = run.job()?;
    let mut ledger = Audit::new(job.seed, job.data.order_block());
    let mut unreadable = Unreadable::default();
    for entry in run.journal().map_err(at)? {
        match entry.map_err(at)? {
            Entry::Line(line) => ledger.take(&line),
            Entry::Unreadable(line) => {
                unreadable.lines += 1;
                if unreadable.first.len() < LISTED {
                    printer.note(format_args!("warning: {}: {line}", path.display()));
                    unreadable.first.push(line.number);
                }
            }
        }
    }
    if unreadable.lines > LISTED as u64 {
        printer.note(format_args!(
            "warning: {}: {} lines in all cannot be read",
            path.display(),
            unreadable.lines
        ));
    }
    let ledger = ledger.prove().map_err(|error| unproven(&run.name, &error, &unreadable))?;
    if ledger.steps == 0 {
        return Err(Failure::No(format!("{}: no step was done yet", run.name)));
    }
    match arguments.state.format {
        Format::Json => printer.out(json(&run.name, &ledger, &unreadable)),
        Format::Table => printer.out(text(&run.name, &ledger)),
    }
    Ok(ExitCode::SUCCESS)
}

fn json(run: &str, ledger: &Ledger, unreadable: &Unreadable) -> serde_json::Value {
    let segment = |segment: &Segment| {
        json!({
            "first": segment.first, "last": segment.last, "fingerprint": segment.fingerprint,
            "training_samples": segment.training_samples, "is_proven": segment.is_proven, "epochs": segment.epochs,
        })
    };
    json!({
        "run": run, "steps": ledger.steps, "samples": ledger.samples, "epochs": ledger.epochs,
        "stretches": ledger.segments.iter().map(segment).collect::<Vec<_>>(),
        "unreadable": unreadable.lines, "unreadable_lines": unreadable.first,
    })
}

fn text(run: &str, ledger: &Ledger) -> String {
    let Ledger { steps, samples, epochs, segments } = ledger;
    let mut text = format!(
        "{run}: {steps} committed steps took {samples} samples; in each of {epochs} whole epochs every sample is in \
         exactly one step"
    );
    if segments.iter().any(|segment| !segment.is_proven) {
        text.push_str(" (steps that are in a checkpoint alone are left out)");
    }
    if segments.len() > 1 {
        for Segment { first, last, fingerprint, training_samples, is_proven, epochs } in segments {
            let what = match is_proven {
                true => format!("{epochs} whole epochs of {training_samples} samples"),
                false => "in a checkpoint alone: no line tells of their samples".into(),
            };
            text.push_str(&format!("\n  steps {first}…{last}: {what}; {fingerprint}"));
        }
    }
    text
}

/// What lacks may stand in lines that cannot be read: then nothing is proven, and nothing refuted.
fn unproven(run: &str, what: &LedgerError, unreadable: &Unreadable) -> Failure {
    let Some(number) = unreadable.first.first() else { return Failure::No(format!("{run}: {what}")) };
    let count = unreadable.lines;
    let lines =
        if count == 1 { format!("line {number}") } else { format!("{count} lines from line {number} on") };
    Failure::No(format!(
        "{run}: {what}; this does not prove a fault, since {lines} of the journal cannot be read"
    ))
}
