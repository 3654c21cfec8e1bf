//! Buckets beside a backward pass on one processor, and what is measured apart from a trace.

use bellwether_core::profile::{OperationKind, Profile};
use bellwether_model::collective::{Bucket, overlap, overlap_on_one_processor};
use bellwether_model::import::{Apart, read};
use proptest::prelude::*;

const PYTORCH: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/pytorch-ddp-gloo.json"));

fn completed(text: &str) -> Profile {
    let mut profile = read(PYTORCH.as_bytes(), "trace.json").unwrap();
    Apart::read(text, "apart.json").unwrap().complete(&mut profile, "apart.json").unwrap();
    profile.check().unwrap();
    profile
}

/// By hand: 4 s of backward pass, one bucket ready at 1 s whose exchange of 2 s takes 1 s of the processor. At half
/// the pace 1 s is computed meanwhile, 2 s are left: 1 + 2 + 2.
#[test]
fn handling_delays_the_backward_pass() {
    let bucket = |ready_s, exchange_s| Bucket { ready_s, exchange_s };
    let found = overlap_on_one_processor(&[bucket(1.0, 2.0)], &[1.0], 4.0).unwrap();
    assert!((found.finish_s - 5.0).abs() < 1e-12 && (found.exposed_s - 1.0).abs() < 1e-12);
    // Ready at the end nothing is shared; an exchange that is all handling gets half until the pass is over.
    let found = overlap_on_one_processor(&[bucket(4.0, 2.0)], &[1.0], 4.0).unwrap();
    assert!((found.finish_s - 6.0).abs() < 1e-12);
    let found = overlap_on_one_processor(&[bucket(0.0, 3.0)], &[3.0], 1.0).unwrap();
    assert!((found.finish_s - 4.0).abs() < 1e-12, "{found:?}");
    assert!(overlap_on_one_processor(&[bucket(0.0, 1.0)], &[], 1.0).is_err());
    assert!(overlap_on_one_processor(&[bucket(0.0, 1.0)], &[-1.0], 1.0).is_err());
}

proptest! {
    #[test]
    fn no_less_than_either_and_no_more_than_both(
        rows in proptest::collection::vec((0.0..1.0f64, 0.0..2.0f64, 0.0..1.0f64), 1..6),
    ) {
        let mut rows = rows;
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let buckets: Vec<Bucket> =
            rows.iter().map(|(ready_s, exchange_s, _)| Bucket { ready_s: *ready_s, exchange_s: *exchange_s }).collect();
        let shares: Vec<f64> = rows.iter().map(|(_, exchange_s, share)| share * exchange_s).collect();
        let free = overlap_on_one_processor(&buckets, &vec![0.0; rows.len()], 1.0).unwrap();
        let plain = overlap(&buckets, 1.0).unwrap();
        prop_assert!((free.finish_s - plain.finish_s).abs() < 1e-9);
        let found = overlap_on_one_processor(&buckets, &shares, 1.0).unwrap();
        let exchanged: f64 = rows.iter().map(|row| row.1).sum();
        prop_assert!(found.finish_s >= plain.finish_s - 1e-9);
        // The processor never rests while the pass is not over.
        prop_assert!(found.finish_s <= 1.0 + exchanged + 1e-9, "{found:?}");
    }
}

#[test]
fn a_known_link_is_found_again() {
    // 10 MB/s and 1 ms; 2 ns per byte and 3 ms per peer on the processor.
    let row = |workers: f64, bytes: f64| {
        let carried = 2.0 * (workers - 1.0) / workers * bytes;
        let seconds = carried / 1e7 + 2.0 * (workers - 1.0) * 1e-3;
        let handling = carried * 2e-9 + (workers - 1.0) * 3e-3;
        format!(r#"{{"workers":{workers},"bytes":{bytes},"seconds":{seconds},"handling_s":{handling}}}"#)
    };
    let rows: Vec<String> =
        [(2.0, 1e5), (2.0, 4e6), (3.0, 1e5), (4.0, 2e6)].iter().map(|(w, b)| row(*w, *b)).collect();
    let text = format!(r#"{{"version":1,"all_reduce":[{}]}}"#, rows.join(","));
    let profile = completed(&text);
    let (network, cost) = (profile.network.unwrap(), profile.collective.unwrap());
    assert!((network.bandwidth_bytes_per_s / 1e7 - 1.0).abs() < 1e-4, "{network:?}");
    assert!((network.latency_s / 1e-3 - 1.0).abs() < 1e-3, "{network:?}");
    assert!(
        (cost.s_per_byte / 2e-9 - 1.0).abs() < 1e-3 && (cost.fixed_s / 3e-3 - 1.0).abs() < 1e-3,
        "{cost:?}"
    );
    assert!(profile.apart.unwrap().link_error < 1e-4);
}

#[test]
fn plain_steps_replace_the_profiled_ones() {
    let traced = read(PYTORCH.as_bytes(), "trace.json").unwrap();
    let profile = completed(r#"{"version":1,"samples":7,"steps_s":[[0.1,0.2],[0.18]]}"#);
    assert_eq!((profile.batch, profile.steps.len()), (7, 3));
    let step = &profile.steps[1];
    assert!((step.step_s - 0.2).abs() < 1e-12 && (step.operations_s.iter().sum::<f64>() - 0.2).abs() < 1e-9);
    // The composition is that of the trace: the share of the update stays.
    let share = |profile: &Profile| {
        profile.update_s().iter().sum::<f64>() / profile.steps.iter().map(|step| step.step_s).sum::<f64>()
    };
    assert!((share(&profile) / share(&traced) - 1.0).abs() < 1e-9);
    // Means of 0.15 and 0.18 s: standard deviation 0.0212, times the root of 1.5, times 12.71/1.96, over 0.165.
    assert!((profile.apart.unwrap().step_error - 1.0206).abs() < 1e-3, "{:?}", profile.apart);
    assert!(profile.operations.iter().any(|operation| matches!(operation.kind, OperationKind::Upload(_))));
}

#[test]
fn bad_measurements_are_refused() {
    let refused = |text: &str, word: &str| {
        let mut profile = read(PYTORCH.as_bytes(), "trace.json").unwrap();
        let error =
            Apart::read(text, "apart.json").and_then(|apart| apart.complete(&mut profile, "apart.json"));
        let error = error.expect_err("nothing that can be used").to_string();
        assert!(error.contains(word) && error.contains("apart.json"), "{error}");
    };
    refused("{}", "version");
    refused(r#"{"version":2}"#, "version 2");
    refused(r#"{"version":1,"steps":[]}"#, "steps");
    refused(r#"{"version":1,"steps_s":[[0.0]]}"#, "0 s");
    refused(r#"{"version":1,"steps_s":[[]]}"#, "one step");
    refused(r#"{"version":1,"samples":0}"#, "one sample");
    let row = r#"{"workers":2,"bytes":8,"seconds":1.0,"handling_s":0.0}"#;
    refused(&format!(r#"{{"version":1,"all_reduce":[{row}]}}"#), "do not determine");
    refused(&format!(r#"{{"version":1,"all_reduce":[{}]}}"#, row.replace("2,", "1,")), "two workers");
    let pull = r#"{"parts":1,"bytes":8,"seconds":1.0,"handling_s":0.0}"#;
    refused(&format!(r#"{{"version":1,"all_reduce":[{row}],"pull_push":[{pull}]}}"#), "one of them");
}
