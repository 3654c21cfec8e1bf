//! What the tests share: the measuring program, and its report.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// `bellwether-bench ARGUMENTS`.
///
/// # Panics
///
/// Where the command that it measures was not built.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_bellwether-bench"));
    let measured = program.with_file_name("bellwether");
    assert!(measured.is_file(), "there is no {}: test the whole workspace", measured.display());
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env_remove("BELLWETHER").env_remove("RAYON_NUM_THREADS");
    command
}

/// Runs a verb to its end.
pub(crate) fn call(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program can be started")
}

/// What a verb measured.
pub(crate) fn report(arguments: &[&str]) -> Value {
    let ended = call(&[arguments, &["--format", "json"]].concat());
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).expect("a report")
}
