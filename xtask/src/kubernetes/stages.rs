//! The stages of the operator's tests: A without a server, B the servers, C on a control plane, D at scale, E on a
//! node.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::build::Programs;
use super::control_plane::Pace;
use super::{
    BUILD, Cluster, Kind, VARIABLE, down, folder, lock, machine, need_node, node, patches, processes, smoke,
};
use crate::{python, tree};

/// Where the operator and its tests are.
const PACKAGE: &str = "bellwether-operator";
const MANIFEST: &str = "crates/operator/Cargo.toml";

/// How long the tests of a stage may take.
const MOST: Duration = Duration::from_secs(15 * 60);
const MOST_ON_NODE: Duration = Duration::from_secs(28 * 60);

/// What a plain `cargo xtask test` leaves out.
pub(crate) const HINT: &str = "the operator's tests on a control plane were not run: `cargo xtask test --kubernetes` \
                               runs them, `cargo xtask kubernetes --all test` also those at scale and on a node";

/// What became of a stage.
enum Outcome {
    Passed,
    Failed(String),
    /// And nothing is wrong with that.
    Skipped(String),
}

/// Stages that have ended.
#[derive(Default)]
struct Report(Vec<(&'static str, Duration, Outcome)>);

impl Report {
    /// Runs a stage; `true` if it passed.
    fn stage(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("== stage {name}");
        let start = Instant::now();
        let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let has_passed = matches!(outcome, Outcome::Passed);
        if !has_passed {
            println!("stage {name}: {outcome}");
        }
        self.0.push((name, start.elapsed(), outcome));
        has_passed
    }

    fn skip(&mut self, name: &'static str, why: &str) {
        self.stage(name, || Ok(Outcome::Skipped(why.to_owned())));
    }

    /// Prints it; `true` if nothing failed.
    fn end(self) -> bool {
        println!();
        for (name, took, outcome) in &self.0 {
            println!("{name:<18} {:>7.1} s  {outcome}", took.as_secs_f64());
        }
        !self.0.iter().any(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_)))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(why) => write!(f, "FAILED: {why}"),
            Outcome::Skipped(why) => write!(f, "not run: {why}"),
        }
    }
}

/// A variable for tests.
type Variable = (&'static str, PathBuf);

/// A compiled test program.
struct Test {
    name: String,
    program: PathBuf,
    folder: PathBuf,
}

/// `cargo xtask kubernetes test`: stages A, B and C; with `all` also D and E.
pub(crate) fn run(all: bool) -> Result<bool> {
    let tests = compiled(&["--package", PACKAGE])?;
    if all {
        build_command()?;
    }
    let mut report = Report::default();
    report.stage("A: no server", || run_test(&tests, "lib", &[], &[], MOST));
    with_servers(&mut report, &tests, all);
    Ok(report.end())
}

/// A part of `cargo xtask test`, which has compiled everything and run stage A: stages B and C.
pub(crate) fn run_api_stages() -> Result<bool> {
    let tests = compiled(&["--workspace"])?;
    let mut report = Report::default();
    with_servers(&mut report, &tests, false);
    Ok(report.end())
}

fn with_servers(report: &mut Report, tests: &[Test], all: bool) {
    let extra: &[&str] = if all { &["--include-ignored"] } else { &[] };
    let test = |name: &str, variable: Variable| run_test(tests, name, extra, &[variable], MOST);
    if let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        println!(
            "{VARIABLE} names a cluster of yours: nothing is built or started, and the tests run on that"
        );
        report.stage("C: API", || test("api", (VARIABLE, file.clone())));
        if all {
            report.stage("D: scale", || test("scale", (VARIABLE, file)));
            report.skip("E: node", "the cluster is yours");
        }
        return;
    }
    let objection = machine::objection();
    let (mut programs, mut cluster) = (None, None);
    let is_built = report.stage("B: servers", || {
        let found = Programs::find_or_build(all && objection.is_none(), Instant::now() + BUILD)?;
        let started = Cluster::start(&found, Kind::ControlPlane(Pace::Quick))?;
        patches::check(&started.client)?;
        (programs, cluster) = (Some(found), Some(started));
        Ok(Outcome::Passed)
    });
    let (Some(programs), Some(cluster), true) = (programs, cluster, is_built) else {
        for name in ["C: API", "D: scale", "E: node"].into_iter().take(if all { 3 } else { 1 }) {
            report.skip(name, "WITHOUT SERVERS, NOTHING IS KNOWN OF THE OPERATOR ON A CLUSTER");
        }
        return;
    };
    report.stage("C: API", || test("api", cluster.variable()));
    drop(cluster);
    if all {
        report.stage("D: scale", || {
            let cluster = Cluster::start(&programs, Kind::ControlPlane(Pace::Patient))?;
            test("scale", cluster.variable())
        });
        report.stage("E: node", || match objection {
            Some(why) => Ok(Outcome::Skipped(why.to_owned())),
            None => on_node(&programs, tests, extra),
        });
    }
}

/// A node of this machine's own, tried by itself and then by the operator's tests.
fn on_node(programs: &Programs, tests: &[Test], extra: &[&str]) -> Result<Outcome> {
    need_node()?;
    let pythons = python::script_variables()?;
    // Those may have to be brought here first.
    let start = Instant::now();
    smoke::survive_kills(&folder(), || {
        let folder = folder();
        let _lock = lock(&folder)?;
        down(&folder)
    })?;
    let cluster = Cluster::start(programs, Kind::WithNode)?;
    smoke::run_pods(&cluster.client)?;
    let image = node::worker_image()?.map(|(_, image)| (node::VARIABLE, image.into()));
    let variables: Vec<Variable> = [cluster.variable()].into_iter().chain(image).chain(pythons).collect();
    run_test(tests, "node", extra, &variables, MOST_ON_NODE.saturating_sub(start.elapsed()))
}

/// Compiles our programs, which an image of the node holds.
fn build_command() -> Result<()> {
    let mut build = tree::cargo();
    build.args([
        "build",
        "--release",
        "--quiet",
        "--bins",
        "--package",
        "bellwether-cli",
        "--package",
        PACKAGE,
    ]);
    build.current_dir(tree::root()?);
    match build.status().context("cannot start `cargo build`")? {
        status if status.success() => Ok(()),
        _ => bail!("the command does not compile"),
    }
}

/// Compiles the tests of these packages, and finds the operator's.
fn compiled(packages: &[&str]) -> Result<Vec<Test>> {
    let root = tree::root()?;
    let mut build = tree::cargo();
    build.args(["test", "--release", "--no-run", "--message-format=json-render-diagnostics"]).args(packages);
    let output = build
        .current_dir(&root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start `cargo test`")?;
    if !output.status.success() {
        bail!("the operator's tests do not compile");
    }
    let manifest = root.join(MANIFEST);
    let lines = String::from_utf8(output.stdout)?;
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let read = |message: Value| {
        let is_ours =
            message["manifest_path"].as_str() == manifest.to_str() && message["profile"]["test"] == true;
        let kind = message["target"]["kind"][0].as_str()?;
        let name = if kind == "test" { message["target"]["name"].as_str()? } else { kind };
        let program = message["executable"].as_str()?.into();
        is_ours.then(|| Test { name: name.to_owned(), program, folder: root.join("crates/operator") })
    };
    Ok(messages.filter_map(read).collect())
}

/// Runs one of the test programs as cargo would, with a time limit.
fn run_test(
    tests: &[Test],
    name: &str,
    extra: &[&str],
    variables: &[Variable],
    most: Duration,
) -> Result<Outcome> {
    let Some(test) = tests.iter().find(|test| test.name == name) else {
        bail!("the package {PACKAGE} has no tests `{name}`");
    };
    let mut command = std::process::Command::new(&test.program);
    command.args(extra).envs(variables.iter().cloned()).current_dir(&test.folder);
    match processes::within(&mut command, Instant::now() + most)? {
        status if status.success() => Ok(Outcome::Passed),
        status => Ok(Outcome::Failed(format!("the tests `{name}` ended with {status}"))),
    }
}
