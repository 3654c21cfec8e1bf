//! Memory of a worker: the closed form, what is refused, and what would fit.

use bellwether_core::prediction::{Link, PredictError, StepModel};
use bellwether_core::profile::{MeasuredBatch, Profile, SharedState};
use bellwether_model::memory::{MemoryLaw, bytes, vectors};
use bellwether_model::predict::ProfileModel;
use serde_json::json;

const MIB: f64 = 1_048_576.0;

/// 8 virtual nodes of 8 samples, a vector of 10 MiB; these micro-batches were measured with these MiB.
fn profile(peaks: &[(u64, u64)]) -> Profile {
    let computes = (0..8).map(|n: usize| {
        let after: Vec<usize> = n.checked_sub(1).into_iter().collect();
        json!({ "name": n.to_string(), "kind": "compute", "after": after })
    });
    let vector = 10 << 20;
    let profile = json!({
        "version": 1, "job": "made", "source": "by hand", "device": "box", "batch": 64, "virtual_nodes": 8,
        "parameter_bytes": vector, "parts": [{ "name": "all", "bytes": vector }],
        "operations": computes.collect::<Vec<_>>(),
        "steps": [{ "step_s": 0.8, "operations_s": vec![0.1; 8] }],
    });
    let mut profile = Profile::read(&profile.to_string(), "made").unwrap();
    let batch = |(samples, peak): &(u64, u64)| MeasuredBatch {
        samples: *samples,
        compute_s: *samples as f64 * 0.0125,
        error: 0.0,
        peak_resident_bytes: Some(peak << 20),
    };
    profile.batches = peaks.iter().map(batch).collect();
    profile
}

#[test]
fn a_worker_keeps_the_sums_of_the_tree_and_its_activations() {
    // 100 MiB and 2 MiB a sample.
    let law = MemoryLaw::of(&profile(&[(2, 104), (8, 116), (32, 164)])).unwrap();
    let need = |batch, nodes, workers| law.worker(batch, nodes, workers).map(|need| need.bytes / MIB);
    assert_eq!(need(64.0, 8, 1), Some(116.0));
    assert_eq!(need(160.0, 8, 1), Some(140.0));
    // One of two workers keeps a sum less, one of eight only its own and the gradient that leaves.
    assert_eq!(need(64.0, 8, 2), Some(106.0));
    assert_eq!(need(64.0, 8, 8), Some(96.0));
    // Twice as many virtual nodes: half the activations, a sum more.
    assert_eq!(need(64.0, 16, 1), Some(118.0));
    // Beyond the largest measured size as in the last piece, below the smallest no less.
    assert_eq!(need(512.0, 8, 1), Some(228.0));
    assert_eq!(need(8.0, 8, 1), Some(104.0));
    assert_eq!(need(64.0, 8, 9), None);
    assert!(!law.worker(512.0, 8, 1).unwrap().inside && law.worker(64.0, 8, 1).unwrap().inside);
}

#[test]
fn one_measured_size_bounds_smaller_ones_only() {
    let mut profile = profile(&[]);
    assert_eq!(MemoryLaw::of(&profile), None);
    profile.peak_resident_bytes = Some(120 << 20);
    let law = MemoryLaw::of(&profile).unwrap();
    assert_eq!(law.worker(64.0, 8, 1).unwrap().bytes, 120.0 * MIB);
    assert_eq!(law.worker(64.0, 16, 1).unwrap().bytes, 130.0 * MIB);
    assert_eq!(law.worker(128.0, 8, 1), None);
}

#[test]
fn what_is_shared_falls_with_the_workers() {
    let whole = MemoryLaw::of(&profile(&[(8, 120)])).unwrap();
    // Two slots and a gradient of 10 MiB.
    let sharding = Some(SharedState { copies: 2, bytes: 30 << 20 });
    let shared = MemoryLaw::of(&Profile { sharding, ..profile(&[(8, 120)]) }).unwrap();
    for (workers, elsewhere) in [(1, 0.0), (2, 0.0), (4, 15.0), (8, 22.5)] {
        let [whole, shared] = [&whole, &shared].map(|law| law.worker(64.0, 8, workers).unwrap().bytes);
        assert_eq!(whole - shared, elsewhere * MIB, "{workers}");
    }
}

#[test]
fn what_does_not_fit_says_by_how_much_and_what_would() {
    let model = ProfileModel::new(profile(&[(2, 104), (8, 116), (32, 164)])).unwrap();
    let configuration = |batch| {
        let mut one = model.configuration(1, Link::UNLIMITED);
        one.batch = batch;
        one
    };
    let refused = |batch, room: f64| match model.fits(&model.job(), &configuration(batch), room * MIB) {
        Err(PredictError::DoesNotFit(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(model.fits(&model.job(), &configuration(256), 164.0 * MIB), Ok(()));
    assert_eq!(
        refused(256, 150.0),
        "a worker needs 164.0 MiB of memory and would have 150.0 MiB, which is 14.0 MiB too little; \
         with 16 virtual nodes it fits"
    );
    assert!(refused(256, 90.0).ends_with("more virtual nodes do not make it fit"));
}

#[test]
fn sums_are_those_of_aligned_and_other_ranges() {
    let of = |nodes, workers| vectors(nodes, workers).unwrap();
    assert_eq!([of(8, 1), of(8, 2), of(8, 4), of(8, 8), of(1, 1)], [4, 3, 2, 1, 1]);
    assert_eq!((vectors(4, 5), vectors(4, 0)), (None, None));
}

#[test]
fn bytes_are_written_in_their_unit() {
    assert_eq!([11.2 * 1024.0 * MIB, MIB, 2048.0].map(bytes), ["11.2 GiB", "1.0 MiB", "2.0 KiB"]);
    assert_eq!(bytes(12.0), "12B");
}
