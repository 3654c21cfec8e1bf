//! The measurements whose processes are the measuring program itself: they find each other, and the command.

use crate::harness::{command, report};

#[test]
fn processes_of_the_collective_and_of_a_server_measure_together() {
    let reduced = report(&["allreduce", "--bytes", "4,64KiB", "--seconds-per-size", "0.02", "--no-gloo"]);
    assert_eq!(reduced["rows"].as_array().map(Vec::len), Some(2), "{reduced}");
    let served = report(&["parameters", "--workers", "1", "--parameters", "64KiB", "--rounds", "1"]);
    assert_eq!(served["rows"][1]["case"], "with a replica", "{served}");
}

#[test]
fn the_plain_loop_stands_beside_the_command() {
    let report =
        report(&["overhead", "--workers", "1,2", "--rounds", "1", "--steps", "30", "--parameters", "4KiB"]);
    assert_eq!(report["bench"], "overhead");
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let mut command = command(&["memory", "--workers", "1"]);
    let ended =
        command.env("BELLWETHER", "/nowhere/bellwether").output().expect("the program can be started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere/bellwether") && said.contains("cargo build --release"), "{said}");
}
