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
    assert!(measured.rows.iter().all(|row| row.latency_s.median > 0.0 && row.in_round_trips > 0.0));
    assert_eq!(measured.gloo_missing.as_deref(), Some("not asked for"));
}

#[test]
fn a_member_that_ends_early_is_reported() {
    let options = Options { workers: 2, sizes_bytes: vec![4], seconds_per_size: 0.02, gloo: false };
    let failure = run(&options, |_| Ok(Process::new("true").spawn().unwrap())).unwrap_err();
    assert!(failure.to_string().contains("ended before it could be measured"), "{failure}");
}
