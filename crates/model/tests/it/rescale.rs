//! Laws of the prediction from first steps.

use bellwether_core::prediction::Bottleneck;
use bellwether_core::record::StepRecord;
use bellwether_model::rescale::Rescale;
use proptest::prelude::*;

fn steps(count: usize, nodes: usize, node_s: f64, exchange_s: f64) -> Vec<StepRecord> {
    let step = |number: usize| {
        // Some spread, and its mean is known.
        let wobble = if number.is_multiple_of(2) { 1.01 } else { 0.99 };
        let nodes_s = vec![node_s * wobble; nodes];
        let duration_s = (nodes as f64 * node_s + exchange_s + 0.002) * wobble;
        StepRecord { duration_s, nodes_s, exchange_s, update_s: 0.001, ..StepRecord::default() }
    };
    (0..count).map(step).collect()
}

#[test]
fn a_run_that_goes_on_as_it_began_is_predicted_exactly() {
    let observed = steps(10, 4, 0.01, 0.005);
    let model = Rescale::fit(2, &observed, 8, 1 << 20, None).unwrap();
    let mean_s = observed.iter().map(|step| step.duration_s).sum::<f64>() / 10.0;
    assert!((model.step_s(2).unwrap() - mean_s).abs() < 1e-12);
    let rate = model.rate(2).unwrap();
    assert!(rate.low < rate.steps_per_s && rate.steps_per_s < rate.high);
    assert!(rate.high / rate.low < 1.05, "the spread is one per cent: {rate:?}");
}

#[test]
fn what_was_not_seen_is_not_predicted() {
    let alone = Rescale::fit(1, &steps(4, 8, 0.01, 0.0), 8, 1 << 20, None).unwrap();
    assert!(alone.step_s(1).is_some() && alone.step_s(2).is_none());
    assert!(alone.step_s(9).is_none() && alone.step_s(0).is_none());
    assert!(Rescale::fit(1, &steps(1, 8, 0.01, 0.0), 8, 1, None).is_err());
    assert!(Rescale::fit(9, &steps(4, 1, 0.01, 0.0), 8, 1, None).is_err());
    let nothing = StepRecord::default();
    assert!(Rescale::fit(1, &[nothing.clone(), nothing], 8, 1, None).is_err());
}

#[test]
fn workers_beyond_the_processors_compute_slower() {
    let observed = steps(4, 4, 0.01, 0.001);
    let crowded = Rescale::fit(2, &observed, 8, 4, Some(2)).unwrap();
    let spread = Rescale::fit(2, &observed, 8, 4, None).unwrap();
    // Two virtual nodes each and an exchange of everything with all, with two workers per processor.
    assert!((crowded.step_s(4).unwrap() - spread.step_s(4).unwrap() - 0.02 - 0.003).abs() < 1e-9);
    assert_eq!(crowded.step_s(2), spread.step_s(2));
}

#[test]
fn waiting_for_samples_goes_with_the_virtual_nodes_and_not_with_the_speed() {
    let mut observed = steps(4, 8, 0.01, 0.0);
    for step in &mut observed {
        step.duration_s += 0.16;
        step.data_wait_s = 0.16;
    }
    let model = Rescale::fit(1, &observed, 8, 4, None).unwrap().or_exchange(0.0, 2);
    let whole_s = model.step_s(1).unwrap();
    assert!((whole_s - model.step_s(2).unwrap() - 0.12).abs() < 1e-9, "half of 0.08 s and of 0.16 s");
    assert_eq!(model.bottleneck(2), Bottleneck::Data);
    let faster = model.at_speed(2.0);
    assert!((whole_s - faster.step_s(1).unwrap() - 0.04).abs() < 1e-9);
}

proptest! {
    #[test]
    fn predictions_are_positive_and_ordered(
        node_s in 1e-6f64..10.0, exchange_s in 0.0f64..10.0, observed in 1u32..9, asked in 1u32..9, bytes in 0u64..1 << 40,
    ) {
        let nodes = 8u32.div_ceil(observed) as usize;
        let model = Rescale::fit(observed, &steps(6, nodes, node_s, exchange_s), 8, bytes, Some(2)).unwrap();
        if let Some(rate) = model.rate(asked) {
            prop_assert!(rate.low > 0.0 && rate.low <= rate.steps_per_s && rate.steps_per_s <= rate.high);
            prop_assert!(rate.high.is_finite());
        } else {
            prop_assert_eq!(observed, 1);
        }
    }
}
