//! Tests of the weights that gradients are compared at.

use bellwether_runtime::workload::{Layout, Tensor};

use crate::probe;

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    Tensor { name: name.into(), shape: shape.to_vec() }
}

#[test]
fn weights_keep_activations_at_one_size() {
    let layout = Layout {
        parameters: vec![tensor("w", &[64, 256]), tensor("b", &[64])],
        state: vec![tensor("m", &[3])],
    };
    let (mut parameters, mut state) = (vec![0.0; 65 * 256], vec![0.0; 3]);
    parameters.truncate(layout.parameter_count());
    probe::weights(&layout, 1, &mut parameters, &mut state);
    let (matrix, vector) = parameters.split_at(64 * 256);
    // 64 is the smaller number of inputs: the variance is 1/64.
    let variance = matrix.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / matrix.len() as f64;
    assert!((variance * 64.0 - 1.0).abs() < 0.05, "{variance}");
    assert!(vector.iter().all(|b| (0.75..1.25).contains(b)));
    assert_eq!(state, [1.0; 3]);
    let mut again = vec![0.0; parameters.len()];
    probe::weights(&layout, 1, &mut again, &mut state);
    assert_eq!(probe::digest(&[&again]), probe::digest(&[&parameters]));
    probe::weights(&layout, 2, &mut again, &mut state);
    assert_ne!(probe::digest(&[&again]), probe::digest(&[&parameters]));
}

#[test]
fn bits_are_compared_not_numbers() {
    let tensors = [tensor("a", &[2]), tensor("b", &[1])];
    let nan = f32::NAN;
    assert_eq!(probe::first_difference(&tensors, &[1.0, nan, 0.0], &[1.0, nan, 0.0]), None);
    assert_eq!(probe::first_difference(&tensors, &[1.0, 2.0, 0.0], &[1.0, 2.0, -0.0]), Some("b"));
}
