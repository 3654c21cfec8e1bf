//! `bellwether simulate --replay`: what a daemon recorded, once more: its decisions, and its jobs in the simulator.

use std::path::Path;
use std::process::ExitCode;

use bellwether::simulate::replay::{Replay, ReplayError};
use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_sched::registry::{Registry, names};

use super::SimulateArguments;
use crate::failure::Failure;
use crate::printer::Printer;

mod show;

pub(super) fn replay(
    path: &Path,
    arguments: &SimulateArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let restart_s = arguments.restart.map(|restart| restart.get());
    let replay = Replay::of(path, &Registry::built_in(), chosen(&arguments.policy)?, restart_s)
        .map_err(|error| explain(error, path))?;
    let foresight = match arguments.outlook {
        true => Some(Replay::foresight(path, &Registry::built_in()).map_err(|error| explain(error, path))?),
        false => None,
    };
    printer.out(show::render(&replay, foresight, arguments.format));
    let differs = replay.decisions.as_ref().is_some_and(|decisions| decisions.same < decisions.all);
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn explain(error: ReplayError, path: &Path) -> Failure {
    let at = |hint: &str| InputError::new(path.display().to_string(), error.to_string()).hint(hint).into();
    match &error {
        ReplayError::Ledger(_) => at("name the ledger of a daemon, STATE_DIR/.serve/ledger.jsonl"),
        ReplayError::Empty => at(""),
        ReplayError::NoPolicy => at("name one with --policy"),
        ReplayError::Policy(error) => error.clone().into(),
        ReplayError::Simulation { policy, fault: Fault::Broken(what) } => {
            Failure::Broken(format!("policy `{policy}`: {what}"))
        }
        ReplayError::Simulation { policy, fault: Fault::World(what) } => {
            InputError::new(format!("policy `{policy}`"), what.clone()).into()
        }
    }
}

/// The policy that was asked for, if any.
fn chosen(texts: &[String]) -> Result<Option<String>, Failure> {
    let mut names = names(texts);
    if names.len() > 1 {
        let what = "a replay is under one policy";
        return Err(InputError::new("--policy", what).hint("name one, or none for the recorded one").into());
    }
    let name = names.pop();
    name.as_deref().map(|name| Registry::built_in().parse(name)).transpose()?;
    Ok(name)
}
