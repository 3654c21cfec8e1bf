//! The bench's arithmetic, and a small run with members in threads.

use std::process::{Command as Process, Stdio};

use super::super::member::member;
use super::*;

#[test]
fn ratios_are_those_of_the_bars() {
    let limits = Limits {
        round_trip_s: 10e-6,
        copy_1mib_bytes_per_s: 2.0 * MIB as f64,
        copy_256mib_bytes_per_s: Some(MIB as f64),
    };
    let latency = |median| Spread { median, p10: median, p90: median };
    let row = |bytes, seconds: [f64; 5], limit: f64, gloo: f64| Row {
        bytes,
        repetitions: 1,
        latency_s: seconds.map(latency),
        copy_and_add_s: latency(limit),
        gloo_latency_s: Some(latency(gloo)),
        limits,
    };
    let small = row(4, [1e-6, 5e-6, 9e-6, 5e-6, 9e-6], 1e-7, 90e-6);
    let medium = row(MIB, [2e-3, 3e-3, 4e-3, 2e-3, 3e-3], 1e-3, 9e-3);
    // Four processes: 1.5 n / t.
    let large = row(256 * MIB, [64.0, 256.0, 512.0, 128.0, 256.0], 32.0, 300.0);
    assert!((large.of_one_way(4) - 1.5).abs() < 1e-9);
    let met: Vec<bool> = bars(2, &[small, medium, large.clone()]).iter().map(|bar| bar.met).collect();
    assert_eq!(met, [true, false, true, false, false]);
    assert!(bars(3, &[large]).is_empty());
}

#[test]
fn bad_options_are_refused() {
    let run_with = |workers, sizes_bytes: Vec<u64>| {
        let options = Options { workers, sizes_bytes, seconds_per_size: 0.02, gloo: false };
        run(&options, |_| panic!("nothing is spawned")).unwrap_err().to_string()
    };
    assert!(run_with(1, vec![4]).contains("at least 2 workers"));
    assert!(run_with(2, vec![6]).contains("multiple of 4"));
}

#[test]
fn members_in_threads_are_measured() {
    let options = Options { workers: 3, sizes_bytes: vec![4, 200_000], seconds_per_size: 0.02, gloo: false };
    // A thread does the work; a process that only sleeps stands in for the child.
    let spawn = |arguments| {
        std::thread::spawn(move || member(arguments).unwrap());
        Ok(Process::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap())
    };
    let measured = run(&options, spawn).unwrap();
    assert_eq!(measured.rows.len(), 2);
    assert!(measured.rows.iter().all(|row| row.latency_s.iter().all(|way| way.median > 0.0)));
    assert_eq!(measured.gloo_missing.as_deref(), Some("not asked for"));
}

#[test]
fn a_member_that_ends_early_is_reported() {
    let options = Options { workers: 2, sizes_bytes: vec![4], seconds_per_size: 0.02, gloo: false };
    let failure = run(&options, |_| Ok(Process::new("true").spawn().unwrap())).unwrap_err();
    assert!(failure.to_string().contains("ended before it could be measured"), "{failure}");
}
