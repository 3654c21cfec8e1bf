//! Tests of what the networks share and the public interface hides: masks, initial values, the loss.

use super::declaration::Initial;
use super::pass::dropout_mask;
use super::*;
use crate::random::Stream;

#[test]
fn a_dropout_mask_drops_its_share_and_keeps_the_mean() {
    let mask = dropout_mask(Stream::new(1, 2), 0.3, 100_000);
    let dropped = mask.iter().filter(|factor| **factor == 0.0).count() as f64 / 100_000.0;
    let mean = mask.iter().copied().map(f64::from).sum::<f64>() / 100_000.0;
    assert!((dropped - 0.3).abs() < 0.01 && (mean - 1.0).abs() < 0.01, "{dropped} {mean}");
    assert!(mask.iter().all(|factor| *factor == 0.0 || (*factor - 1.0 / 0.7).abs() < 1e-6));
}

#[test]
fn initial_values_follow_their_distribution_and_seed() {
    let mut declaration = Declaration::default();
    declaration.linear("layer", [600, 100], Initial::kaiming(600));
    declaration.parameter("table", &[100, 100], Initial::Normal(0.02));
    declaration.batch_norm("norm", 3);
    let draw = |seed: u64| {
        let (mut parameters, mut state) = (vec![f32::NAN; 70_106], vec![f32::NAN; 6]);
        declaration.initialize(seed, &mut parameters, &mut state);
        (parameters, state)
    };
    let (parameters, state) = draw(1);
    assert_eq!(draw(1).0, parameters);
    assert_ne!(draw(2).0, parameters);
    let variance = |values: &[f32]| {
        values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / values.len() as f64
    };
    assert!((variance(&parameters[..60_000]) * 300.0 - 1.0).abs() < 0.02);
    assert!(parameters[..60_000].iter().all(|value| value.abs() <= 0.1));
    assert!(parameters[60_000..60_100].iter().all(|value| *value == 0.0));
    assert!((variance(&parameters[60_100..70_100]) / 4e-4 - 1.0).abs() < 0.05);
    assert_eq!(parameters[70_100..], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(state, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn cross_entropy_of_hand_checked_scores() {
    // Equal scores of four classes: the loss is ln 4, the gradient ¼ less one at the target.
    let mut each = Vec::new();
    let losses = cross_entropy(&[7.0; 4], &[2], 0.5, |loss, best| each.push((loss, best)));
    assert!(each.len() == 1 && (each[0].0 - 4f64.ln()).abs() < 1e-7 && each[0].1 == 0, "{each:?}");
    assert!((losses.sum - 0.5 * 4f64.ln()).abs() < 1e-7);
    assert_eq!(losses.gradient, [0.125, 0.125, -0.375, 0.125]);
    assert_eq!(losses.correct, 0);
    // Huge scores neither overflow nor lose the row's sum of zero.
    let losses = cross_entropy(&[1e4, 0.0, -1e4, 0.0], &[0, 1], 1.0, |_, _| ());
    assert_eq!((losses.sum, losses.correct), (0.0, 2));
    assert!(losses.gradient.iter().all(|slope| slope.is_finite()));
    // What is not a number stays one: the runtime must see it.
    assert!(cross_entropy(&[f32::NAN, 0.0], &[0], 1.0, |_, _| ()).sum.is_nan());
}
