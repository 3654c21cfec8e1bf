//! The help of every verb and the tables that are the same every time, beside what is kept of them in `snapshots/`.
//!
//! Where a change is wanted, `BELLWETHER_SNAPSHOTS=write cargo test --release --test cli snapshots::` keeps the new
//! text, and the difference is read like any other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::Scene;
use crate::plan::PRICES;
use crate::predict::profile;

/// Where the texts are kept.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/snapshots");

/// Set to `write`, it keeps what is found.
const VARIABLE: &str = "BELLWETHER_SNAPSHOTS";

/// Compares a text with what is kept under this name; says at which line they part.
fn difference(name: &str, text: &str) -> Option<String> {
    let path = Path::new(FOLDER).join(format!("{name}.txt"));
    if std::env::var(VARIABLE).is_ok_and(|value| value == "write") {
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return None;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let (kept, found): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), text.lines().collect());
    let line = (0..kept.len().max(found.len())).find(|line| kept.get(*line) != found.get(*line))?;
    let [kept, found] = [kept, found].map(|lines| lines.get(line).copied().unwrap_or("(its end)").to_owned());
    Some(format!("{name}.txt, line {}:\n  kept   {kept}\n  found  {found}", line + 1))
}

#[track_caller]
fn assert_kept(texts: Vec<(String, String)>) {
    let differences: Vec<String> = texts.iter().filter_map(|(name, text)| difference(name, text)).collect();
    let wanted =
        "where that is wanted: BELLWETHER_SNAPSHOTS=write cargo test --release --test cli snapshots::";
    assert!(differences.is_empty(), "{}\n{wanted}", differences.join("\n"));
}

/// The verbs that a help names under its headings, in its order: between its usage and its options.
fn verbs(help: &str) -> Vec<String> {
    let (_, commands) = help.split_once("\nUsage: ").unwrap_or_default();
    let (commands, _) = commands.split_once("\nOptions:").unwrap_or((commands, ""));
    let names = commands.lines().filter_map(|line| line.strip_prefix("  "));
    names
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The help of a command and of those below it.
fn help(scene: &Scene, command: &[&str]) -> String {
    let ended = scene.call(&[command, &["--help"]].concat());
    assert_eq!(ended.code, Some(0), "{command:?}: {ended:?}");
    let below: Vec<String> =
        verbs(&ended.stdout).iter().map(|verb| help(scene, &[command, &[verb.as_str()]].concat())).collect();
    let title = format!("$ bellwether {} --help\n", command.join(" "));
    [title, ended.stdout].concat() + &below.into_iter().map(|text| format!("\n{text}")).collect::<String>()
}

#[test]
fn help_is_as_it_was_read_last() {
    let scene = Scene::new("");
    let whole = scene.call(&["--help"]).stdout;
    let verbs = verbs(&whole);
    assert!(verbs.len() > 20, "{verbs:?}");
    let mut texts = vec![("help".to_owned(), whole)];
    texts.extend(verbs.iter().map(|verb| (format!("help-{verb}"), help(&scene, &[verb]))));
    let names: BTreeSet<String> = texts.iter().map(|(name, _)| format!("{name}.txt")).collect();
    assert_kept(texts);
    let files = fs::read_dir(FOLDER).expect("there are texts").flatten();
    let files = files.filter_map(|entry| entry.file_name().into_string().ok());
    let gone: Vec<String> = files.filter(|file| file.starts_with("help-") && !names.contains(file)).collect();
    assert_eq!(gone, [""; 0], "of verbs that are gone");
}

/// What is printed as a table, and does not depend on the machine or the moment.
const TABLES: [(&str, &str); 12] = [
    ("policies", "policies"),
    ("predict", "predict p.json --workers 1..8"),
    ("predict-asynchronous", "predict p.json --protocol asp --servers 2 --workers 1..4"),
    ("predict-csv", "predict p.json --workers 1..4 --format csv"),
    ("plan", "plan p.json --catalog prices.toml --steps 100000 --transient"),
    ("plan-says-no", "plan p.json --catalog prices.toml --steps 100000 --deadline 1min"),
    ("place", "place examples/place/colocated.toml --gpu rtx-2080-ti"),
    ("place-list", "place --list"),
    ("federate", "federate examples/federation-two-sites.toml"),
    ("federate-affinity", "federate examples/federation-affinity.toml --split all"),
    ("trace", "trace describe data/itp-traces/cluster01.csv --gpus 128"),
    ("bad-input", "plan p.json --catalog none.toml --steps 1"),
];

#[test]
fn tables_are_as_they_were_read_last() {
    let scene = Scene::new("");
    for folder in ["examples", "data"] {
        let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        let there = there.canonicalize().expect("the project has it");
        std::os::unix::fs::symlink(there, scene.path(folder)).expect("the test's folder can be written");
    }
    scene.write("p.json", profile().to_string());
    scene.write("prices.toml", PRICES);
    let texts = TABLES.map(|(name, command)| {
        let ended = scene.call(&command.split(' ').collect::<Vec<_>>());
        (name.to_owned(), format!("$ bellwether {command}\n{}{}", ended.stdout, ended.stderr))
    });
    assert_kept(texts.into());
}
