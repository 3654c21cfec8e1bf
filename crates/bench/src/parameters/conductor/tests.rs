//! The measurement itself, small, with threads in place of processes.

use std::process::Stdio;

use super::super::member::member;
use super::*;

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |options: Options| check(&options).is_err();
    assert!(!refused(Options::default()));
    assert!(refused(Options { workers: 0, ..Options::default() }));
    assert!(refused(Options { tensors: 3, ..Options::default() }));
    assert!(refused(Options { units: 1 << 22, ..Options::default() }));
}

#[test]
fn every_round_is_measured_and_every_gradient_counted_once() {
    let options = Options { workers: 2, parameter_bytes: 1 << 20, tensors: 8, rounds: 2, units: 2 };
    let spawn = |arguments| {
        std::thread::spawn(move || member(arguments));
        // Something that lives until it is killed stands for the process.
        Ok(std::process::Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("it starts"))
    };
    let rows = run(&options, spawn).expect("rows");
    assert_eq!(rows.iter().map(|row| row.replica).collect::<Vec<_>>(), [false, true]);
    for row in &rows {
        assert!(row.bytes_per_s.median > 0.0 && row.pull_s.median > 0.0, "{row:?}");
        let ratio = row.bytes_per_s.median / row.one_way_bytes_per_s.median;
        assert!((row.of_one_way.p10..=row.of_one_way.p90).contains(&ratio) || options.rounds > 1, "{row:?}");
    }
    // Bars are for 4 workers and 64 MiB.
    assert!(bars(&options, &rows).is_empty());
}
