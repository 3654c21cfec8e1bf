//! `bellwether audit`: the exactly-once ledger, proven from the journal.

use std::process::ExitCode;

use bellwether_core::record::Event;
use bellwether_runtime::journal;
use bellwether_runtime::order::SampleOrder;

use crate::args::{Format, JobArguments};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::StateDir;

pub(crate) fn audit(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let run = StateDir::find(arguments.state.state_dir.clone())?.run(&arguments.job)?;
    let path = run.path.join("journal.jsonl");
    let lines = journal::read(&path).map_err(|e| Failure::at(path.display().to_string(), e))?;
    let seed = run.job()?.seed;
    let order = lines.iter().find_map(|line| match line.event {
        Event::TaskKnown { training_samples: samples, batch, virtual_nodes, .. } => {
            Some(SampleOrder { samples, batch, virtual_nodes, seed })
        }
        _ => None,
    });
    let order = order.ok_or_else(|| Failure::No(format!("{}: no step was done yet", run.name)))?;
    let ledger =
        journal::ledger(&lines, order).map_err(|what| Failure::No(format!("{}: {what}", run.name)))?;
    match arguments.state.format {
        Format::Json => printer.out(serde_json::json!({
            "run": run.name, "steps": ledger.steps, "samples": ledger.samples, "epochs": ledger.epochs,
        })),
        Format::Table => printer.out(format_args!(
            "{}: {} committed steps took {} samples; in each of {} whole epochs every sample is in exactly one step",
            run.name, ledger.steps, ledger.samples, ledger.epochs
        )),
    }
    Ok(ExitCode::SUCCESS)
}
