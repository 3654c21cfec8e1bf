//! What can be counted of the crates, as a table: the point is to notice growth. Each crate has a budget of lines.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::circles::{self, Imports};
use super::dialect;
use super::ratchet::{self, Measure, Measures};
use crate::code::Code;
use crate::generate;
use crate::problem::Problem;
use crate::tree::Texts;

/// Where budgets are raised, named in every message.
const TABLE: &str = "xtask/src/tidy/counts.rs";

/// Lines that a crate may have, tests and generated code left out, and what they are for.
const BUDGETS: &[(&str, usize, &str)] = &[
    (
        "core",
        12800,
        "the words of all crates, their checks and errors; URLs of checkpoints; the table of what each training mode can do; the tree of queues; rules that stop a run, sweeps and their spaces, spaces of architectures, shards, virtual shards and who holds them, groups of members and of hosts; machines that providers give, and leases of them",
    ),
    ("des", 2000, "an engine that knows no domain"),
    ("numerics", 2500, "fits, searches, matrices and programs that know no domain"),
    ("memory", 750, "memory that processes share, and all `unsafe` code"),
    (
        "model",
        24850,
        "a model per file, specified in its header; examples that choose beliefs; devices with profiles of their own",
    ),
    ("federation", 9000, "federations: queues that overflow, games, and the answers of both"),
    (
        "sched",
        22200,
        "a policy per file; queues around them, with jobs wider than those; planner, the search for a cluster with its bounds, programs, control of one run, shares of its workers among it; samplers, trial schedulers and evolution, as plain values; fleets of machines, and the odds of a plan",
    ),
    (
        "sim",
        6900,
        "the simulated cluster, with transient nodes by the laws of catalogues, readers of eight formats of traces, laws of arrival by rates and by gaps, the outlook",
    ),
    (
        "runtime",
        40000,
        "copies of a run's folder, membership with its verdicts and its hosts, on which members confer, and starts, with waits for machines and tickets for their jobs, data plane, over shared memory and in two phases too, checkpoints, also in slices with the object stores that hold them, the processes of a run, and lists of runs, inference by workers that come and go, leases in the state directory, runs that are open to any kernel class",
    ),
    (
        "workloads",
        6800,
        "four models, eight kinds of data and a look at a table, a synthetic device, job files to begin with; cells and supernets, shards that stay in their files, rows that a model is applied to",
    ),
    (
        "serve",
        15600,
        "the daemon: jobs with machines of their own, ledger, what follows a run's folder, its compaction and replay, engine, queues, processes, nodes that join and are partly others', HTTP API with users and roles, dashboard, also for an engine that others steer, sweeps with their ledger, the law of early ends",
    ),
    (
        "session",
        13100,
        "what a run begins with, its directors, shares that follow measured speeds among them, its process, workers as Slurm's jobs, also of an earlier coordinator, scripts with their logs and GPUs, the stages profile (with a \
         framework's own trace) and tune, \
         curves, work to a loss, plain weights, the machine, rules that stop a run, supernets and what they are worth; machines of four providers with their leases",
    ),
    ("bellwether", 1400, "the face of the crates for programs of users: replays, files, examples"),
    (
        "cli",
        15000,
        "arguments, where workers are, files, streams, tables and plots of all verbs, the first hour (init, doctor, export); sweeps, searches, evaluation and inference, exports of plans",
    ),
    (
        "answers",
        4950,
        "questions without a run: named options, requests and their answers; speed models by name, also by device; fits of measurements; candidate clusters, simulated as far as they matter",
    ),
    ("client", 1050, "the client of a daemon: endpoints, TLS, typed requests, streams"),
    (
        "python",
        1850,
        "the module for Python: the rendezvous with the main thread and what it withdraws, starts, forks, buffers, the probe",
    ),
    ("render", 1600, "tables, CSV, numbers, spans of time, and the drawing of all plots"),
    (
        "bench",
        11350,
        "eighteen measurements of real processes and one of simulations, what they share, and the fuzzer of all decoders",
    ),
    (
        "operator",
        12000,
        "Kubernetes: custom resources with their rules, what is to be done as a pure function, the controller, what answers the client verbs, what pods and operator say to each other, the programs inside pods, and a control plane's nodes that are played",
    ),
    ("testkit", 750, "what tests of several crates share, a metadata server and an object store among it"),
    (
        "xtask",
        5750,
        "the checks of this house, the page of training modes, the tests in Python, the wheel, a Slurm and a Kubernetes for tests, built from its sources, with a node",
    ),
];

/// What is counted of a crate.
#[derive(Default, Clone)]
struct Counts {
    files: usize,
    lines: usize,
    tests: usize,
    public: usize,
    string_errors: usize,
    binaries: usize,
    in_circles: usize,
    private_words: usize,
    step_structs: usize,
}

/// The counts by crate.
pub(crate) struct Census<'t>(BTreeMap<&'t str, Counts>);

impl<'t> Census<'t> {
    /// Counts all Rust files but generated code.
    pub(crate) fn of(texts: &'t Texts, codes: &BTreeMap<String, Code>, imports: &Imports) -> Census<'t> {
        let mut crates = BTreeMap::<&str, Counts>::new();
        for (path, text) in texts.iter().filter(|(path, _)| *path != generate::OUTPUT) {
            let Some(code) = codes.get(path) else { continue };
            let counts = crates.entry(name(path)).or_default();
            let all = text.lines().count();
            let of_tests = if ratchet::is_test_file(path) { all } else { code.lines_of_test_modules() };
            counts.files += 1;
            counts.lines += all - of_tests;
            counts.tests += of_tests;
            counts.binaries += usize::from(is_test_binary(path));
            counts.private_words += dialect::count(text);
            if path.contains("/src/") {
                let code = code.without_tests();
                counts.public += code.public_items();
                counts.string_errors += code.string_errors();
                counts.step_structs += step_structs(text);
            }
        }
        for path in circles::in_circles(imports) {
            if let Some(counts) = crates.get_mut(name(path)) {
                counts.in_circles += 1;
            }
        }
        Census(crates)
    }

    /// Adds what is limited: lines, and files that import one another in a circle.
    pub(crate) fn measure(&self, imports: &Imports, measures: &mut Measures) {
        let circles = circles::in_circles(imports);
        for (crate_name, counts) in &self.0 {
            let folder = folder(crate_name);
            if let Some((_, limit, reason)) = BUDGETS.iter().find(|(name, _, _)| name == crate_name) {
                let measure = Measure {
                    path: folder.clone(),
                    line: 0,
                    what: format!("lines without tests ({reason})"),
                    number: counts.lines,
                    limit: *limit,
                    advice: format!(
                        "move what is none of that, or raise the budget in {TABLE} with the reason"
                    ),
                };
                measures.insert(format!("{folder}:lines"), measure);
            }
            let members: Vec<&str> =
                circles.iter().copied().filter(|path| name(path) == *crate_name).collect();
            let measure = Measure {
                path: folder.clone(),
                line: 0,
                what: format!("files that import one another in a circle ({})", some(&members)),
                number: members.len(),
                limit: 0,
                advice: "move what two of them need into a third".into(),
            };
            measures.insert(format!("{folder}:circles"), measure);
        }
        let between = circles::between_verbs(imports);
        let pairs: Vec<String> =
            between.iter().map(|(file, verb)| format!("{file} takes of {verb}")).collect();
        let measure = Measure {
            path: "crates/cli".into(),
            line: 0,
            what: format!("imports from verb to verb ({})", some(&pairs)),
            number: pairs.len(),
            limit: 0,
            advice: "move what both need out of the folder of the verbs".into(),
        };
        measures.insert("crates/cli:verb-imports".into(), measure);
    }

    /// Crates without a budget, and budgets without a crate.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let has_budget = |crate_name: &str| BUDGETS.iter().any(|(name, _, _)| *name == crate_name);
        let unknown = self.0.keys().filter(|name| !has_budget(name)).map(|name| {
            Problem::of_file(
                &folder(name),
                format!("it has no budget of lines; give it one in {TABLE}, with the reason"),
            )
        });
        let gone = BUDGETS.iter().filter(|(name, _, _)| !self.0.contains_key(name)).map(|(name, _, _)| {
            Problem::of_file(TABLE, format!("there is no crate `{name}`; remove its budget"))
        });
        unknown.chain(gone).collect()
    }

    /// All counts as a table.
    pub(crate) fn table(&self, imports: &Imports) -> String {
        let mut table = row(
            "crate",
            [
                "files",
                "lines",
                "budget",
                "of tests",
                "public",
                "text errors",
                "binaries",
                "in circles",
                "private words",
            ],
        );
        let (mut total, mut budgets) = (Counts::default(), 0);
        for (name, counts) in &self.0 {
            let budget = BUDGETS.iter().find(|(row, _, _)| row == name).map_or(0, |(_, lines, _)| *lines);
            budgets += budget;
            table += &counts.row(name, budget);
            total.add(counts);
        }
        table += &total.row("total", budgets);
        let _ = writeln!(table, "imports from verb to verb: {}", circles::between_verbs(imports).len());
        let _ = writeln!(table, "structs of a measured step, the wire's left out: {}", total.step_structs);
        table
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.files += other.files;
        self.lines += other.lines;
        self.tests += other.tests;
        self.public += other.public;
        self.string_errors += other.string_errors;
        self.binaries += other.binaries;
        self.in_circles += other.in_circles;
        self.private_words += other.private_words;
        self.step_structs += other.step_structs;
    }

    fn row(&self, name: &str, budget: usize) -> String {
        let Counts {
            files, lines, tests, public, string_errors, binaries, in_circles, private_words, ..
        } = self;
        let numbers =
            [*files, *lines, budget, *tests, *public, *string_errors, *binaries, *in_circles, *private_words];
        row(name, numbers.map(|number| number.to_string()).each_ref().map(String::as_str))
    }
}

fn row(name: &str, cells: [&str; 9]) -> String {
    let mut row = format!("{name:<11}");
    for (cell, width) in cells.iter().zip([5, 7, 7, 8, 6, 11, 8, 10, 13]) {
        // Writing to a string cannot fail.
        let _ = write!(row, " {cell:>width$}");
    }
    row + "\n"
}

/// Structs that tell the times of a measured step: `core::record::StepRecord`, and those that repeat it.
fn step_structs(text: &str) -> usize {
    const TIMES: [&str; 4] = ["duration_s:", "compute_s:", "exchange_s:", "update_s:"];
    let structs =
        text.split("\nstruct ").chain(text.split("\npub struct ")).chain(text.split("\npub(crate) struct "));
    let bodies = structs
        .filter_map(|rest| rest.split("\n}").next())
        .filter(|body| body.starts_with(char::is_uppercase));
    bodies.filter(|body| TIMES.iter().filter(|time| body.contains(*time)).count() == TIMES.len()).count()
}

/// The first of them.
fn some(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let rest = if names.len() > SHOWN { ", …" } else { "" };
    shown.join(", ") + rest
}

/// The crate of a file.
fn name(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

/// The folder of a crate.
fn folder(name: &str) -> String {
    if name == "xtask" { name.to_owned() } else { format!("crates/{name}") }
}

/// Whether cargo makes a binary of integration tests of this file.
fn is_test_binary(path: &str) -> bool {
    let Some((_, rest)) = path.split_once("/tests/") else { return false };
    path.starts_with("crates/") && (!rest.contains('/') || rest.ends_with("/main.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    fn census(files: &[(&str, &str)], check: impl Fn(&Census<'_>, &Imports)) {
        let texts: Texts =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let codes = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let codes = codes.map(|(path, text)| (path.clone(), text.parse().unwrap())).collect();
        let imports = circles::imports(&codes);
        check(&Census::of(&texts, &codes, &imports), &imports);
    }

    fn core_budget() -> usize {
        BUDGETS.iter().find(|(name, ..)| *name == "core").unwrap().1
    }

    #[test]
    fn everything_is_counted_by_crate() {
        let source =
            "//! A.\npub fn a() -> Result<u8, String> {}\n#[cfg(test)]\nmod tests { pub fn b() {}\n}\n";
        let files = [
            ("crates/core/src/lib.rs", source),
            ("crates/core/tests/laws.rs", "//! B.\n"),
            ("crates/core/tests/it/main.rs", "//! C.\n"),
            ("crates/core/tests/it/law.rs", "//! D.\n"),
            ("README.md", "# E\n"),
        ];
        census(&files, |census, imports| {
            let table = census.table(imports);
            let numbers: Vec<Vec<&str>> =
                table.lines().map(|line| line.split_whitespace().collect()).collect();
            let budget = core_budget().to_string();
            assert_eq!(numbers[1], ["core", "4", "2", &budget, "6", "1", "1", "2", "0", "0"]);
            assert_eq!(numbers[2][..3], ["total", "4", "2"]);
        });
    }

    #[test]
    fn circles_and_lines_are_limited() {
        let budget = core_budget();
        let long = "//! A.\n".repeat(budget + 1);
        let lines = budget + 3;
        let files = [
            ("crates/core/src/lib.rs", &*long),
            ("crates/core/src/a.rs", "use crate::b::B;"),
            ("crates/core/src/b.rs", "use crate::a::A;"),
        ];
        census(&files, |census, imports| {
            let mut measures = Measures::new();
            census.measure(imports, &mut measures);
            let problems = shown(&ratchet::check(&measures, ""));
            assert!(
                problems[0].contains("files that import one another in a circle (crates/core/src/a.rs, ")
            );
            assert!(
                problems[1]
                    .contains(&format!(": {lines}, and {budget} are allowed; move what is none of that")),
                "{problems:?}"
            );
            let listed = format!("crates/core:lines {lines} x\ncrates/core:circles 2 x\n");
            assert!(ratchet::check(&measures, &listed).is_empty());
        });
    }

    #[test]
    fn a_crate_needs_a_budget_and_a_budget_a_crate() {
        census(&[("crates/new/src/lib.rs", "//! A.\n")], |census, _| {
            let problems = shown(&census.problems());
            assert!(problems[0].starts_with("crates/new: it has no budget of lines"), "{problems:?}");
            assert_eq!(problems.len(), 1 + BUDGETS.len());
        });
    }
}
