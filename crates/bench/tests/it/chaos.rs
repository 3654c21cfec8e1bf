//! `chaos`: a few schedules of random faults, so that the benchmark itself does not rot.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{call, command, report};

/// Time for a run to begin, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of each kind of job that differs in what a fault can hit: all-reduce, servers with a replica.
#[test]
fn a_few_schedules_of_random_faults_keep_the_bits() {
    let report = report(&[
        "chaos",
        "--schedules",
        "2",
        "--first",
        "11",
        "--parallel",
        "2",
        "--cases",
        "synthetic,replica,verified",
    ]);
    assert_eq!(report["bars"][0]["measured"], 0.0, "{report}");
    let all = report["rows"].as_array().and_then(|rows| rows.last()).expect("a row of all");
    assert_eq!((all["case"].as_str(), all["schedules"].as_u64()), (Some("all"), Some(2)));
    assert!(report["notes"][0].as_str().is_some_and(|note| note.contains("rule of three")), "{report}");
}

#[test]
fn a_case_that_is_none_is_refused() {
    let ended = call(&["chaos", "--cases", "digit"]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("digit") && said.contains("digits-servers"), "{said}");
}

#[test]
fn a_signal_that_ends_the_benchmark_ends_its_runs() {
    let scene = TempDir::new().expect("a folder for the test");
    let mut command = command(&["chaos", "--schedules", "9", "--cases", "synthetic"]);
    command.env("TMPDIR", scene.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = command.spawn().expect("the program can be started");
    let folder = scene.path().display().to_string();
    // A process of a run names its folder.
    let of_runs = || {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = numbers.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let words = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        words.filter(|words| words.contains(&folder) && words.contains("bellwether-chaos-")).count()
    };
    let folders = || {
        let names = fs::read_dir(scene.path()).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("bellwether-chaos-")).count()
    };
    let until = Instant::now() + PATIENCE;
    while of_runs() < 2 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let began = of_runs() > 1;
    let process = Pid::from_child(&bench);
    kill_process(process, Signal::TERM).expect("it lives");
    assert_eq!(bench.wait().expect("it ends").code(), Some(143));
    assert!(began, "no run with a worker began");
    assert_eq!((of_runs(), folders()), (0, 0), "processes and folders that are left");
}
