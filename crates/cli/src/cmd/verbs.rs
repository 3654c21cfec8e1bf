//! The verbs by what people do with them, for `--help`; and what is said where there is no such verb.

use std::fmt::Write;

use bellwether_core::InputError;
use bellwether_core::parse::nearest;
use bellwether_render::table::width;
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The verbs under their headings, in the order in which one comes to need them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Train", &["init", "run", "worker", "server"]),
    ("Use what was trained", &["evaluate", "infer", "export"]),
    ("Predict and plan", &["profile", "predict", "fit", "plan", "capacity", "tune", "sweep", "nas"]),
    (
        "Follow and steer jobs, started by hand or by a daemon",
        &["jobs", "show", "logs", "watch", "scale", "stop", "resume", "cancel", "rm", "machines", "audit"],
    ),
    ("Share a machine among jobs", &["serve", "submit", "policy", "queues", "users", "dashboard"]),
    ("Clusters and simulation", &["simulate", "policies", "trace", "federate", "place"]),
    ("Tools", &["doctor", "schema", "completions", "version"]),
];

/// What people type who come from other tools, and what it is here.
const ELSEWHERE: [(&str, &str); 47] = [
    ("apply", "infer"),
    ("attach", "watch"),
    ("check", "run JOB.toml --dry-run"),
    ("clean", "rm --all-ended"),
    ("continue", "resume"),
    ("create", "submit"),
    ("daemon", "serve"),
    ("delete", "rm"),
    ("down", "stop"),
    ("estimate", "predict"),
    ("eval", "evaluate"),
    ("events", "logs"),
    ("follow", "watch"),
    ("get", "jobs"),
    ("hold", "stop"),
    ("inference", "infer"),
    ("info", "show"),
    ("inspect", "show"),
    ("join", "worker"),
    ("kill", "stop"),
    ("launch", "run"),
    ("list", "jobs"),
    ("log", "logs"),
    ("ls", "jobs"),
    ("pause", "stop"),
    ("provision", "capacity"),
    ("prune", "rm --all-ended"),
    ("ps", "jobs"),
    ("queue", "queues"),
    ("release", "machines release"),
    ("remove", "rm"),
    ("resize", "scale"),
    ("restart", "resume"),
    ("runs", "jobs"),
    ("sim", "simulate"),
    ("start", "run"),
    ("stat", "show"),
    ("status", "show"),
    ("tail", "logs --follow"),
    ("terminate", "stop"),
    ("test", "evaluate"),
    ("top", "jobs --watch"),
    ("train", "run"),
    ("ui", "dashboard"),
    ("up", "serve"),
    ("validate", "run JOB.toml --dry-run"),
    ("web", "dashboard"),
];

/// The command with its verbs in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let all = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter());
    let column = all.map(|verb| verb.len()).max().unwrap_or(0) + 4;
    let width = width().unwrap_or(usize::MAX).min(100);
    for (heading, verbs) in GROUPS {
        // Bold, as clap has its headings; where no terminal reads, it is left out.
        let _ = write!(text, "\n\x1b[1m\x1b[4m{heading}:\x1b[0m\n");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            let about = folded(&about.unwrap_or_default(), width.saturating_sub(column).max(20), column);
            let _ = writeln!(text, "  \x1b[1m{verb}\x1b[0m{}{about}", " ".repeat(column - 2 - verb.len()));
        }
    }
    text.push_str("\n\x1b[1m\x1b[4mOptions:\x1b[0m\n{options}");
    command.help_template(text)
}

/// A text in lines of `width` characters, all but the first one indented.
fn folded(text: &str, width: usize, indent: usize) -> String {
    let (mut folded, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            let _ = write!(folded, "\n{}", " ".repeat(indent));
            length = 0;
        } else if length > 0 {
            folded.push(' ');
            length += 1;
        }
        folded.push_str(word);
        length += letters;
    }
    folded
}

/// What to say of a verb that there is not, if that is what is wrong.
pub(crate) fn unknown(error: &Error, first: Option<&str>) -> Option<InputError> {
    let Some(ContextValue::String(asked)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if error.kind() != ErrorKind::InvalidSubcommand || first != Some(asked.as_str()) {
        return None;
    }
    let hint = match suggestion(asked) {
        Some(verb) => format!("did you mean `bellwether {verb}`? `bellwether --help` lists all verbs"),
        None => "`bellwether --help` lists all verbs".into(),
    };
    Some(InputError::new(asked, "there is no such verb").hint(hint))
}

fn suggestion(asked: &str) -> Option<String> {
    let asked = asked.to_lowercase();
    if let Some((_, verb)) = ELSEWHERE.iter().find(|(word, _)| *word == asked) {
        return Some((*verb).into());
    }
    let verbs: Vec<String> =
        GROUPS.iter().flat_map(|(_, verbs)| verbs.iter()).map(ToString::to_string).collect();
    nearest(&asked, &verbs).cloned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cmd::Arguments;

    #[test]
    fn every_verb_is_in_one_group() {
        let command = Arguments::command();
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: BTreeSet<&str> = shown.map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter()).copied().collect();
        assert_eq!(grouped.len(), verbs.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), verbs);
    }

    #[test]
    fn words_of_other_tools_lead_to_verbs_of_ours() {
        let command = Arguments::command();
        for (word, verb) in ELSEWHERE {
            assert!(command.find_subcommand(word).is_none(), "`{word}` is a verb");
            let verb = verb.split(' ').next().unwrap_or(verb);
            assert!(verb.starts_with("--") || command.find_subcommand(verb).is_some(), "`{verb}` is none");
        }
        assert_eq!(suggestion("rnu").as_deref(), Some("run"));
        assert_eq!(suggestion("LS").as_deref(), Some("jobs"));
        assert_eq!(suggestion("xyzzy"), None);
    }

    #[test]
    fn texts_are_folded() {
        assert_eq!(folded("one two three", 8, 2), "one two\n  three");
        assert_eq!(folded("", 8, 2), "");
    }
}
