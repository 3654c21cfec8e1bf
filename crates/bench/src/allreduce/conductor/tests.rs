//! The bench's arithmetic, and a small run with members in threads.

use std::process::{Command as Process, Stdio};

use super::super::member::member;
use super::*;

#[test]
fn quantiles() {
    assert_eq!(spread(Vec::new()), None);
    let spread = spread((0..=100).rev().map(f64::from).collect()).unwrap();
    assert_eq!(spread, Spread { median: 50.0, p10: 10.0, p90: 90.0 });
}

#[test]
fn ratios_are_those_of_the_bars() {
    let limits = Limits {
        round_trip_s: 10e-6,
        copy_1mib_bytes_per_s: 2.0 * MIB as f64,
        copy_256mib_bytes_per_s: Some(MIB as f64),
    };
    let latency = |median| Spread { median, p10: median, p90: median };
    let small = row(2, 4, 1, latency(40e-6), limits, None);
    assert!((small.in_round_trips - 4.0).abs() < 1e-9);
    // 1 MiB sent and 1 MiB received at 2 MiB/s take a second.
    let medium = row(2, MIB, 1, latency(2.0), limits, None);
    assert!((medium.in_copy_times - 2.0).abs() < 1e-9);
    // Four processes: 1.5 n / t.
    let large = row(4, 256 * MIB, 1, latency(256.0), limits, None);
    assert!((large.of_one_way - 1.5).abs() < 1e-9);
    let met: Vec<bool> = bars(2, &[small, medium]).iter().map(|bar| bar.met).collect();
    assert_eq!(met, [true, true]);
    assert!(bars(3, &[large]).is_empty());
}

#[test]
fn bad_options_are_refused() {
    let spawn = |_: MemberOptions| -> io::Result<Child> { panic!("nothing is spawned") };
    let run_with = |workers, sizes_bytes: Vec<u64>| {
        run(&BenchOptions { workers, sizes_bytes, ..BenchOptions::default() }, spawn)
    };
    assert!(matches!(run_with(1, vec![4]), Err(BenchError::Options(_))));
    assert!(matches!(run_with(2, vec![6]), Err(BenchError::Options(_))));
}

#[test]
fn members_in_threads_are_measured() {
    let options =
        BenchOptions { workers: 3, sizes_bytes: vec![4, 200_000], seconds_per_size: 0.02, gloo: false };
    // A thread does the work; a process that only sleeps stands in for the child.
    let spawn = |options: MemberOptions| {
        std::thread::spawn(move || member(&options).unwrap());
        Process::new("sleep").arg("60").stdin(Stdio::null()).spawn()
    };
    let report = run(&options, spawn).unwrap();
    assert_eq!(report.rows.len(), 2);
    assert!(report.rows.iter().all(|row| row.latency_s.median > 0.0 && row.in_round_trips > 0.0));
    assert_eq!(report.gloo_missing.as_deref(), Some("not asked for"));
    let text = serde_json::to_string(&report).unwrap();
    // Not compared whole: the last bit of a number may change on its way through text.
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap().rows.len(), 2);
}

#[test]
fn a_member_that_ends_early_is_reported() {
    let options = BenchOptions { sizes_bytes: vec![4], gloo: false, ..BenchOptions::default() };
    let spawn = |_: MemberOptions| Process::new("true").spawn();
    assert!(matches!(run(&options, spawn), Err(BenchError::Member { .. })));
}
