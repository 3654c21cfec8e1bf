//! `bellwether doctor`: whether this machine can train.

use std::process::ExitCode;

use bellwether_render as render;
use bellwether_render::colour::Colour;
use bellwether_session::doctor::{Finding, State, examine};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;
use crate::runs::StateDir;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

pub(crate) fn doctor(arguments: &DoctorArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let state_dir = StateDir::find(arguments.state.state_dir.clone())?;
    let findings = examine(state_dir.path());
    let program = crate::version::facts();
    match arguments.state.format {
        Format::Json => {
            let program: serde_json::Map<_, _> =
                program.into_iter().map(|(name, value)| (name.into(), json!(value))).collect();
            printer.out(render::json(&json!({ "program": program, "findings": findings })));
        }
        Format::Table => {
            let facts: Vec<String> =
                program.iter().map(|(name, value)| format!("      {name:<16} {value}")).collect();
            let lines = findings.iter().map(|finding| line(finding, printer));
            printer.out(facts.into_iter().chain(lines).collect::<Vec<_>>().join("\n"));
        }
    }
    let bad = findings.iter().filter(|finding| finding.state == State::Bad).count();
    match bad {
        0 => Ok(ExitCode::SUCCESS),
        1 => Err(Failure::No("one problem would stop a run: see `bad` above".into())),
        bad => Err(Failure::No(format!("{bad} problems would stop a run: see `bad` above"))),
    }
}

/// A finding, with what to do about it in a line of its own.
fn line(finding: &Finding, printer: &Printer) -> String {
    let (word, colour) = match finding.state {
        State::Good => ("ok  ", Colour::Good),
        State::Warning => ("warn", Colour::Doubtful),
        State::Bad => ("bad ", Colour::Bad),
    };
    let Finding { what, found, advice, .. } = finding;
    let advice = if advice.is_empty() { String::new() } else { format!("\n      {:<16} {advice}", "") };
    format!("{}  {what:<16} {found}{advice}", printer.painted(word, colour))
}
