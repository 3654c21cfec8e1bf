//! What the exports of a plan say alike: its machines, and the command that trains its job.

use std::path::Path;

use bellwether_answers::plan::{VirtualNodes, Work};
use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Kind, Machines, Plan};

use super::PlanArguments;

/// The machines of a choice that are all alike, with what is known of them.
///
/// # Errors
///
/// Machines of several kinds, or rented in several ways.
pub(super) fn alike<'a>(
    target: &str,
    plan: &'a Plan,
    chosen: &'a Candidate,
) -> Result<(&'a Machines, &'a Kind), InputError> {
    let wrong = |what: String, hint: &str| InputError::new(format!("--export {target}"), what).hint(hint);
    let [machines] = &chosen.machines[..] else {
        let what = format!("the choice is {}, and one {target} job has machines of one kind", chosen.words());
        return Err(wrong(
            what,
            "`bellwether run JOB.toml --plan PLAN.json --provision` takes machines of several; or plan without --transient",
        ));
    };
    let kind = plan.kind(&machines.machine);
    let kind = kind.ok_or_else(|| wrong("the plan does not know its machines".into(), "plan again"))?;
    Ok((machines, kind))
}

/// The words of `bellwether run` for a job as it was planned.
pub(super) fn run_words(arguments: &PlanArguments, job: &Path, chosen: &Candidate) -> Vec<String> {
    let mut words = vec!["bellwether".to_owned(), "run".to_owned(), job.display().to_string()];
    let mut say = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    say("--workers", format!("1..{}", chosen.workers));
    let Work { steps, epochs, .. } = arguments.work.work();
    if let Some(steps) = steps {
        say("--steps", steps.to_string());
    }
    if let Some(epochs) = epochs {
        say("--set", format!("epochs={epochs}"));
    }
    if let Some(batch) = arguments.batch {
        say("--set", format!("batch.size={batch}"));
    }
    if let Some(VirtualNodes::Number(nodes)) = arguments.virtual_nodes {
        say("--set", format!("batch.virtual_nodes={nodes}"));
    }
    if let Some(way) = &chosen.way {
        say("--set", format!("sync.policy=\"{}\"", way.policy));
        if way.servers > 0 {
            say("--set", format!("sync.servers={}", way.servers));
        }
    }
    words
}

/// Words as a shell reads them.
pub(super) fn quoted(words: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    let quote = |word: &String| match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
