//! Tasks of the house, run as `cargo xtask <verb>`: `test`, `python`, `gpu-check`, `slurm`, `kubernetes`, `wheel`,
//! `tidy`, `generate` and `modes`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "these tasks are a command line of their own")]

mod browser;
mod code;
mod debian;
mod generate;
mod kubernetes;
mod problem;
mod python;
mod slurm;
mod test;
mod tidy;
mod tree;
mod wheel;

use std::process::ExitCode;

use anyhow::{Result, bail};

use python::Choice;

const USAGE: &str = "\
Usage: cargo xtask <verb>

  test [--all] [--kubernetes] [-- ARGUMENTS]
                        run every test of the workspace, then `tidy`; ARGUMENTS go to the test programs in Rust;
                        with --all also the long tests in Python, with --kubernetes those of the operator on a
                        control plane
  python [--all] [FILE [TEST]]
                        run the tests in Python, or those in files and with names that contain FILE and TEST
  gpu-check             run the tests in Python that need a GPU: bits, copies and speed on this machine's own
  wheel [--check]       write what `pip install` installs to target/wheels; try it in a new environment
  slurm up|test|down    start a Slurm of four nodes on this machine, run the tests on one, end it (as root);
                        `slurm --all test` takes those of many minutes, too
  kubernetes up [--node|--patient]|test|down
                        build and start a control plane of Kubernetes on this machine, run the operator's tests on
                        one, end it; `kubernetes --all test` takes those at scale and on a node, too (as root)
  tidy                  check the tree against the rules of the house and print its size
  generate              write the gRPC code again from proto/bellwether.proto
  modes                 write docs/modes.md from the table of training modes";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one verb; `false` says that it did its work and found something wrong.
fn run(arguments: &[String]) -> Result<bool> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut take = |verbs: &[&str], flag: &str| {
        let has = words.first().is_some_and(|verb| verbs.contains(verb));
        // What follows `--` is not ours.
        let place = words.iter().take_while(|word| **word != "--").position(|word| *word == flag);
        place.filter(|_| has).map(|place| words.remove(place)).is_some()
    };
    let all = take(&["test", "python", "slurm", "kubernetes"], "--all");
    let on_kubernetes = take(&["test"], "--kubernetes");
    let node = take(&["kubernetes"], "--node");
    let patient = take(&["kubernetes"], "--patient");
    match words.as_slice() {
        ["test"] => test::run(&[], all, on_kubernetes),
        ["test", "--", extra @ ..] => test::run(extra, all, on_kubernetes),
        ["python"] => python::run(&Choice { all, ..Choice::default() }),
        ["python", file] => python::run(&Choice { file: Some(file), all, ..Choice::default() }),
        ["python", file, test] => {
            python::run(&Choice { file: Some(file), test: Some(test), all, ..Choice::default() })
        }
        ["gpu-check"] => python::run(&Choice { gpu: true, ..Choice::default() }),
        ["wheel"] => wheel::run(false),
        ["wheel", "--check"] => wheel::run(true),
        ["slurm", verb] => slurm::run(verb, all),
        ["kubernetes", verb] => kubernetes::run(verb, all, (node, patient)),
        ["tidy"] => tidy::run(),
        ["generate"] => generate::run(),
        ["modes"] => tidy::modes::run(),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(true)
        }
        [] => bail!("no verb given\n\n{USAGE}"),
        other => bail!("cannot understand `{}`\n\n{USAGE}", other.join(" ")),
    }
}
