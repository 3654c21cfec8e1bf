//! `bellwether simulate --replay`: what a daemon recorded, once more: its decisions, and its jobs in the simulator.

use std::path::Path;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_sched::registry::Registry;
use bellwether_serve::replay::{self, Compared, Recorded};

use super::{SimulateArguments, names};
use crate::failure::Failure;
use crate::printer::Printer;

mod show;
mod simulated;

/// All that is reported.
struct Replay {
    recorded: Recorded,
    /// Absent where another policy was asked for.
    decisions: Option<Compared>,
    /// The policy of the simulation.
    policy: String,
    simulated: simulated::Simulated,
}

pub(super) fn replay(
    path: &Path,
    arguments: &SimulateArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let chosen = chosen(&arguments.policy)?;
    let place = path.display().to_string();
    let read = replay::read(path, chosen.is_none()).map_err(|error| {
        let hint = "name the ledger of a daemon, STATE_DIR/.serve/ledger.jsonl";
        InputError::new(&place, format!("the ledger cannot be replayed: {error}")).hint(hint)
    })?;
    let (recorded, decisions) = read.ok_or_else(|| InputError::new(&place, "the ledger is empty"))?;
    let policy = chosen.unwrap_or_else(|| recorded.state.policy.clone());
    if policy.is_empty() {
        return Err(InputError::new(&place, "no policy has decided yet")
            .hint("name one with --policy")
            .into());
    }
    let restart_s = arguments.restart.map(|restart| restart.get());
    let simulated = simulated::run(&recorded, &policy, restart_s)?;
    let replay = Replay { recorded, decisions, policy, simulated };
    printer.out(show::render(&replay, arguments.format));
    let differs = replay.decisions.as_ref().is_some_and(|decisions| decisions.same < decisions.all);
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
