//! Which crate may use which: the walls of the project, read from `cargo metadata`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::problem::Problem;

/// Where a new edge is allowed, named in every message.
const TABLES: &str = "xtask/src/tidy/edges.rs";

/// The prefix of the names of our packages.
const PREFIX: &str = "bellwether-";

/// A crate, and those of ours that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("des", &[]),
    ("numerics", &[]),
    ("model", &["core", "des", "numerics"]),
    ("federation", &["core", "des", "numerics"]),
    ("sched", &["core", "model", "numerics"]),
    ("sim", &["core", "des", "model", "numerics"]),
    // A wall: what touches memory that others can write knows nothing of training.
    ("memory", &[]),
    ("runtime", &["core", "memory"]),
    ("workloads", &["core", "runtime"]),
    // Of sessions it needs how the process of a run is started and followed.
    ("serve", &["core", "model", "sched", "session", "runtime"]),
    // A wall: it reads no command line and prints nothing.
    ("session", &["core", "des", "model", "sched", "runtime"]),
    // Questions that need no run: the command and the module for Python ask them.
    ("answers", &["core", "model", "runtime", "sched", "session", "sim"]),
    // A wall: what a Python process needs of a worker, and answers; it sees no other deep-learning framework.
    ("python", &["answers", "core", "runtime"]),
    // A wall: text only, so that every program can use it.
    ("render", &["core"]),
    // A wall: programs speak with a daemon without a command line.
    ("client", &["core", "serve"]),
    // The face of the others for programs of users.
    (
        "bellwether",
        &[
            "answers",
            "client",
            "core",
            "federation",
            "model",
            "sched",
            "session",
            "sim",
            "runtime",
            "serve",
            "workloads",
        ],
    ),
    (
        "cli",
        &[
            "answers",
            "bellwether",
            "client",
            "core",
            "des",
            "model",
            "federation",
            "render",
            "sched",
            "session",
            "sim",
            "runtime",
            "serve",
            "workloads",
        ],
    ),
    // Measures the command from outside, as a program: it must not depend on `cli`.
    (
        "bench",
        &[
            "core",
            "des",
            "federation",
            "memory",
            "model",
            "render",
            "sched",
            "runtime",
            "serve",
            "session",
            "sim",
            "workloads",
        ],
    ),
    // A wall: Kubernetes' client stays in a program of its own.
    ("operator", &["core", "runtime", "sched", "serve", "session", "sim"]),
    ("testkit", &[]),
    ("xtask", &[]),
];

/// A family of foreign packages (the name, or the name and `-`), and who alone may use it, and why.
const FOREIGN: &[(&str, &[&str], &str)] = &[
    ("axum", &["serve", "operator"], "HTTP stays at the daemon's edge, and at the operator's for its pods"),
    ("tokio", &["operator", "runtime", "serve"], "an async runtime stays at the control plane"),
    ("tonic", &["runtime", "xtask"], "gRPC stays at the control plane"),
    ("burn", &["workloads"], "a deep-learning framework must not leak out of what is trained"),
    ("clap", &["cli", "bench", "operator"], "arguments are read by the command lines only"),
    ("k8s-openapi", &["operator"], "Kubernetes stays in the operator"),
    ("kube", &["operator"], "Kubernetes stays in the operator"),
    ("plotters", &["render"], "all pictures share one sheet, axis and palette"),
    ("pyo3", &["python"], "an interpreter stays in the module for Python, which alone is built for one"),
    ("indicatif", &["cli"], "streams belong to the command line"),
];

/// Crates whose tests may see all of ours, because they span crates: the command line's, and those that drive
/// policies through the simulated cluster (which need not build what trains).
const SPANNING_TESTS: [&str; 2] = ["cli", "sim"];

/// What all tests may use, and nothing else may.
const FOR_TESTS: &str = "testkit";

/// The packages on which each of our crates depends, and whether only its tests do.
type Dependencies = BTreeMap<String, Vec<(String, bool)>>;

/// Compares every dependency in the output of `cargo metadata --no-deps` with the tables above, and these with it.
pub(crate) fn check(metadata: &str) -> Result<Vec<Problem>> {
    let crates = dependencies(metadata)?;
    Ok(walls(&crates).into_iter().chain(dead(&crates)).collect())
}

fn dependencies(metadata: &str) -> Result<Dependencies> {
    let metadata: Value = serde_json::from_str(metadata).context("`cargo metadata` printed no JSON")?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let mut crates = Dependencies::new();
    for package in packages {
        let name = package["name"].as_str().context("a package of `cargo metadata` has no name")?;
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().context("a dependency of `cargo metadata` has no name")?;
            dependencies.push((short(to).to_owned(), dependency["kind"].as_str() == Some("dev")));
        }
        crates.insert(short(name).to_owned(), dependencies);
    }
    Ok(crates)
}

/// The name of a package, without our prefix if it is ours.
fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Dependencies that the tables do not allow.
fn walls(crates: &Dependencies) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (from, dependencies) in crates {
        let path =
            if from == "xtask" { "xtask/Cargo.toml".into() } else { format!("crates/{from}/Cargo.toml") };
        let Some((_, ours)) = EDGES.iter().find(|(name, _)| name == from) else {
            let message = format!("the crate `{from}` is in no table; say in {TABLES} what it may depend on");
            problems.push(Problem::of_file(&path, message));
            continue;
        };
        let forbidden =
            dependencies.iter().filter_map(|(to, for_tests)| forbidden(from, ours, to, *for_tests));
        problems.extend(forbidden.map(|message| Problem::of_file(&path, message)));
    }
    problems
}

/// What the tables allow and nothing needs.
fn dead(crates: &Dependencies) -> Vec<Problem> {
    let uses = |from: &str, named: &dyn Fn(&str) -> bool| {
        crates.get(from).is_some_and(|dependencies| dependencies.iter().any(|(to, _)| named(to)))
    };
    let mut dead = Vec::new();
    for &(from, ours) in EDGES {
        if !crates.contains_key(from) {
            dead.push(format!("there is no crate `{from}`; remove its line"));
        }
        let unused = ours.iter().filter(|to| !uses(from, &|name| name == **to));
        dead.extend(unused.map(|to| format!("`{from}` may use `{to}` and does not; remove that")));
    }
    for &(family, users, _) in FOREIGN {
        let unused = users.iter().filter(|user| !uses(user, &|name| is_of(family, name)));
        dead.extend(unused.map(|user| format!("`{user}` may use `{family}` and does not; remove that")));
    }
    dead.into_iter().map(|message| Problem::of_file(TABLES, message)).collect()
}

/// Whether a package belongs to a family.
fn is_of(family: &str, name: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Why the crate `from` may not depend on the package `to`, if so.
fn forbidden(from: &str, ours: &[&str], to: &str, for_tests: bool) -> Option<String> {
    if EDGES.iter().any(|(name, _)| *name == to) {
        let spans = for_tests && (to == FOR_TESTS || SPANNING_TESTS.contains(&from));
        return (!spans && !ours.contains(&to)).then(|| {
            let may = if ours.is_empty() { "nothing of ours".to_owned() } else { ours.join(", ") };
            format!(
                "`{from}` must not depend on `{to}` (it may use {may}); move the code, or let data pass \
                 between the crates; if the wall itself is to change, change {TABLES} and docs/design.md"
            )
        });
    }
    let (family, users, reason) = FOREIGN.iter().find(|(family, _, _)| is_of(family, to))?;
    (!users.contains(&from)).then(|| {
        let users = users.join(", ");
        format!(
            "`{from}` must not depend on `{to}`: {reason} ({users} may use `{family}`); move the code there, \
             or change {TABLES} with the reason"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    /// The messages for one crate with one dependency.
    fn edge(from: &str, to: &str, kind: &str) -> Vec<String> {
        let text = format!(
            r#"{{"packages": [{{"name": "{from}", "dependencies": [{{"name": "{to}", "kind": {kind}}}]}}]}}"#
        );
        shown(&walls(&dependencies(&text).unwrap()))
    }

    #[test]
    fn edges_of_the_table_pass() {
        assert!(edge("bellwether-cli", "bellwether-runtime", "null").is_empty());
        assert!(edge("bellwether-sim", "bellwether-des", "\"dev\"").is_empty());
        assert!(edge("bellwether-runtime", "tokio-stream", "null").is_empty());
        assert!(edge("xtask", "tonic-prost-build", "null").is_empty());
        assert!(edge("bellwether-core", "serde", "null").is_empty());
    }

    #[test]
    fn a_wall_between_our_crates_holds() {
        let problems = edge("bellwether-sched", "bellwether-sim", "null");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("crates/sched/Cargo.toml: `sched` must not depend on `sim`"),
            "{problems:?}"
        );
        assert!(problems[0].contains("(it may use core, model, numerics)"), "{problems:?}");
        assert_eq!(edge("bellwether-core", "bellwether-des", "\"dev\"").len(), 1);
        assert_eq!(edge("bellwether-core", "bellwether-runtime", "\"build\"").len(), 1);
        assert_eq!(edge("xtask", "bellwether-core", "null").len(), 1);
        assert_eq!(edge("bellwether-runtime", "xtask", "null").len(), 1);
    }

    #[test]
    fn only_tests_that_span_crates_see_all() {
        assert!(edge("bellwether-sim", "bellwether-sched", "\"dev\"").is_empty());
        assert_eq!(edge("bellwether-sim", "bellwether-sched", "null").len(), 1);
        assert_eq!(edge("bellwether-serve", "bellwether-sim", "\"dev\"").len(), 1);
        // It measures the command as a program.
        assert_eq!(edge("bellwether-bench", "bellwether-cli", "null").len(), 1);
        assert!(edge("bellwether-core", "bellwether-testkit", "\"dev\"").is_empty());
        assert_eq!(edge("bellwether-core", "bellwether-testkit", "null").len(), 1);
    }

    #[test]
    fn a_foreign_package_must_not_leak() {
        let problems = edge("bellwether-core", "tokio", "null");
        assert!(problems[0].contains("`core` must not depend on `tokio`: an async runtime"), "{problems:?}");
        assert_eq!(edge("bellwether-runtime", "burn-flex", "null").len(), 1);
        assert_eq!(edge("bellwether-runtime", "clap", "\"dev\"").len(), 1);
        assert!(edge("bellwether-core", "burnt", "null").is_empty());
    }

    #[test]
    fn an_unknown_crate_must_enter_the_table() {
        let problems = edge("bellwether-extra", "serde", "null");
        assert!(problems[0].contains("the crate `extra` is in no table"), "{problems:?}");
    }

    #[test]
    fn what_the_tables_allow_is_used() {
        let text = r#"{"packages": [{"name": "bellwether-serve", "dependencies": [{"name": "axum", "kind": null}]}]}"#;
        let problems = shown(&dead(&dependencies(text).unwrap()));
        let says = |what: &str| problems.iter().any(|problem| problem.contains(what));
        assert!(says("there is no crate `core`; remove its line"), "{problems:?}");
        assert!(says("`serve` may use `model` and does not; remove that"), "{problems:?}");
        assert!(
            says("`serve` may use `tokio` and does not") && !says("`serve` may use `axum`"),
            "{problems:?}"
        );
    }
}
