//! `bench chaos`: a few schedules of random faults, so that the benchmark itself does not rot.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Scene, wait_for};

/// One of each kind of job that differs in what a fault can hit: all-reduce, servers with a replica.
#[test]
fn a_few_schedules_of_random_faults_keep_the_bits() {
    let scene = Scene::new("");
    let ended = scene.call(&[
        "bench",
        "chaos",
        "--schedules",
        "2",
        "--first",
        "11",
        "--parallel",
        "2",
        "--cases",
        "synthetic,replica,verified",
        "--format",
        "json",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!(report["bars"][0]["measured"], 0.0, "{}", ended.stderr);
    let all = report["rows"].as_array().and_then(|rows| rows.last()).expect("a row of all");
    assert_eq!((all["case"].as_str(), all["schedules"].as_u64()), (Some("all"), Some(2)));
    assert!(report["notes"][0].as_str().is_some_and(|note| note.contains("rule of three")), "{report}");
}

#[test]
fn a_case_that_is_none_is_refused() {
    let ended = Scene::new("").call(&["bench", "chaos", "--cases", "digit"]);
    ended.refused_with(&["digit", "digits-servers"]);
}

#[test]
fn whoever_ends_the_benchmark_ends_its_runs() {
    let scene = Scene::new("");
    let mut command = scene.command(&["bench", "chaos", "--schedules", "9", "--cases", "synthetic"]);
    command.env("TMPDIR", scene.path(""));
    let bench = scene.start_command(command);
    let folder = scene.path("").display().to_string();
    // A process of a run names its folder.
    let of_runs = || {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = numbers.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let words = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        words.filter(|words| words.contains(&folder) && words.contains("bellwether-chaos-")).count()
    };
    let folders = || {
        let names = fs::read_dir(scene.path("")).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("bellwether-chaos-")).count()
    };
    wait_for(|| "a run with a worker".into(), || (of_runs() > 1).then_some(()));
    bench.signal(Signal::TERM);
    assert_eq!(bench.end().code, Some(143));
    assert_eq!((of_runs(), folders()), (0, 0), "processes and folders that are left");
}
