//! `cargo xtask test`: everything that a change has to pass, with how long each part took.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::slurm::{self, Cluster};
use crate::{browser, kubernetes, python, tidy, tree};

/// Compiles and runs all tests, in Rust and in Python, then checks the tree; goes on after a failure, so that one run
/// tells all.
/// `extra` goes to the test programs in Rust, as after `cargo test --`; `all` are also the long tests in Python,
/// `on_kubernetes` those of the operator on a control plane.
pub(crate) fn run(extra: &[&str], all: bool, on_kubernetes: bool) -> Result<bool> {
    check_compiler()?;
    let has_browser = browser::find_or_install();
    let slurm = slurm::find_or_install();
    let mut parts = Vec::new();
    let compiled = timed("compile", &mut parts, || cargo_test(&["--no-run"], &[], false, None))?;
    let passed = compiled
        && timed("tests", &mut parts, || {
            cargo_test(&["--no-fail-fast"], extra, has_browser, slurm.as_ref())
        })?;
    let variables = slurm.iter().map(Cluster::variable).collect();
    let choice =
        python::Choice { all, variables, before: python::Before::Workspace, ..python::Choice::default() };
    let python = !compiled || timed("python", &mut parts, || python::run(&choice))?;
    drop(slurm);
    let on_slurm = !(all && compiled) || timed("slurm", &mut parts, slurm::long)?;
    let operator =
        !(on_kubernetes && compiled) || timed("kubernetes", &mut parts, kubernetes::run_api_stages)?;
    let tidy = timed("tidy", &mut parts, tidy::run)?;
    println!();
    for (name, took, good) in &parts {
        println!("{name:<10} {:>7.1} s  {}", took.as_secs_f64(), if *good { "passed" } else { "FAILED" });
    }
    if !on_kubernetes {
        println!("{}", kubernetes::HINT);
    }
    Ok(passed && on_slurm && python && operator && tidy)
}

/// The C compiler is the one thing beyond cargo: it links programs and builds the C parts of crates.
fn check_compiler() -> Result<()> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let name = compiler.to_string_lossy().into_owned();
    // `CC` may hold arguments too, and then another program's name comes first.
    let program = name.split_whitespace().next().unwrap_or("cc");
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => bail!(
            "the C compiler `{program}` does not run, and the tests need one; install it \
             (Debian and Ubuntu: `apt-get install gcc libc6-dev`; Fedora: `dnf install gcc`; \
             macOS: `xcode-select --install`), or name yours in the variable CC"
        ),
    }
}

type Part = (&'static str, Duration, bool);

fn timed(name: &'static str, parts: &mut Vec<Part>, work: impl FnOnce() -> Result<bool>) -> Result<bool> {
    println!("== {name}");
    let start = Instant::now();
    let good = work()?;
    parts.push((name, start.elapsed(), good));
    Ok(good)
}

/// Runs `cargo test` over the whole workspace: libraries, programs, integration and documentation tests.
/// Where there is a browser, a test that does not find it has failed.
fn cargo_test(options: &[&str], extra: &[&str], has_browser: bool, slurm: Option<&Cluster>) -> Result<bool> {
    let status = tree::cargo()
        .envs(has_browser.then_some(("BELLWETHER_REQUIRE_BROWSER", "1")))
        .envs(slurm.map(Cluster::variable))
        .args(["test", "--release", "--workspace"])
        .args(options)
        .arg("--")
        .args(extra)
        .current_dir(tree::root()?)
        .status()
        .context("cannot start `cargo test`")?;
    Ok(status.success())
}
