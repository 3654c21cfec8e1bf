//! Which crate may use which: the walls of the project, read from `cargo metadata`.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::problem::Problem;

/// Where a new edge is allowed, named in every message.
const TABLES: &str = "xtask/src/tidy/edges.rs";

/// The prefix of the names of our packages.
const PREFIX: &str = "bellwether-";

/// A crate, and those of ours that it may depend on.
const EDGES: [(&str, &[&str]); 13] = [
    ("core", &[]),
    ("des", &["core"]),
    ("numerics", &[]),
    ("model", &["core", "des", "numerics"]),
    ("sched", &["core", "model", "numerics"]),
    ("sim", &["core", "des", "model", "numerics"]),
    ("runtime", &["core"]),
    ("workloads", &["core", "runtime"]),
    ("serve", &["core", "model", "sched", "runtime"]),
    ("operator", &["core", "sched", "model"]),
    ("python", &["core", "model", "sched", "sim", "runtime"]),
    ("cli", &["core", "des", "model", "sched", "sim", "runtime", "serve", "workloads"]),
    ("xtask", &[]),
];

/// A family of foreign packages (the name, or the name and `-`), and who alone may use it, and why.
const FOREIGN: [(&str, &[&str], &str); 7] = [
    ("axum", &["serve"], "HTTP stays at the daemon's edge"),
    ("tokio", &["runtime", "serve", "operator", "cli"], "an async runtime stays at the control plane"),
    ("tonic", &["runtime", "operator", "cli", "xtask"], "gRPC stays at the control plane"),
    ("burn", &["workloads"], "a deep-learning framework must not leak out of what is trained"),
    ("clap", &["cli", "xtask"], "arguments are read by the command line only"),
    ("indicatif", &["cli", "xtask"], "streams belong to the command line"),
    ("pyo3", &["python"], "Python is translated at the edge"),
];

/// Crates whose tests may see all of ours, because they span crates: the command line's, and those that drive
/// policies through the simulated cluster (which need not build what trains).
const SPANNING_TESTS: [&str; 2] = ["cli", "sim"];

/// Compares every dependency in the output of `cargo metadata --no-deps` with the tables above.
pub(crate) fn check(metadata: &str) -> Result<Vec<Problem>> {
    let metadata: Value = serde_json::from_str(metadata).context("`cargo metadata` printed no JSON")?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package of `cargo metadata` has no name")?;
        let short = name.strip_prefix(PREFIX).unwrap_or(name);
        let path =
            if short == "xtask" { "xtask/Cargo.toml".into() } else { format!("crates/{short}/Cargo.toml") };
        let Some((_, ours)) = EDGES.iter().find(|(from, _)| *from == short) else {
            let message =
                format!("the crate `{short}` is in no table; say in {TABLES} what it may depend on");
            problems.push(Problem::of_file(&path, message));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().context("a dependency of `cargo metadata` has no name")?;
            let for_tests = dependency["kind"].as_str() == Some("dev");
            problems.extend(
                forbidden(short, ours, to, for_tests).map(|message| Problem::of_file(&path, message)),
            );
        }
    }
    Ok(problems)
}

/// Why the crate `from` may not depend on the package `to`, if so.
fn forbidden(from: &str, ours: &[&str], to: &str, for_tests: bool) -> Option<String> {
    if let Some(short) = to.strip_prefix(PREFIX).or((to == "xtask").then_some(to)) {
        let spans = for_tests && SPANNING_TESTS.contains(&from);
        return (!spans && !ours.contains(&short)).then(|| {
            let may = if ours.is_empty() { "nothing of ours".to_owned() } else { ours.join(", ") };
            format!(
                "`{from}` must not depend on `{short}` (it may use {may}); move the code, or let data pass \
                 between the crates; if the wall itself is to change, change {TABLES} and docs/design.md"
            )
        });
    }
    let (family, users, reason) = FOREIGN.iter().find(|(family, _, _)| {
        to.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })?;
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
        shown(&check(&text).unwrap())
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
    fn only_tests_of_the_command_line_see_all() {
        assert!(edge("bellwether-cli", "bellwether-operator", "\"dev\"").is_empty());
        assert_eq!(edge("bellwether-cli", "bellwether-operator", "null").len(), 1);
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
}
