//! The noise of the gradient: estimates without bias, the gain of AdaScale within its bounds.

use bellwether_runtime::noise::{Measured, Noise, SCALE_MAX, gain};
use bellwether_runtime::order::SampleOrder;
use proptest::prelude::*;

/// Gradients of a few samples, in two dimensions.
const SAMPLES: [[f64; 2]; 6] = [[1.0, -2.0], [0.5, 3.0], [-4.0, 1.0], [2.0, 2.0], [0.0, 1.5], [3.0, -1.0]];

fn add(sum: [f64; 2], other: [f64; 2]) -> [f64; 2] {
    [sum[0] + other[0], sum[1] + other[1]]
}

fn square([a, b]: [f64; 2]) -> f64 {
    a * a + b * b
}

/// Calls `each` with every sequence of this many different samples.
fn draws(count: usize, drawn: &mut Vec<usize>, each: &mut dyn FnMut(&[usize])) {
    if drawn.len() == count {
        return each(drawn);
    }
    for sample in 0..SAMPLES.len() {
        if !drawn.contains(&sample) {
            drawn.push(sample);
            draws(count, drawn, each);
            drawn.pop();
        }
    }
}

/// The mean of both estimates over all ways in which micro-batches of these sizes can be drawn, a given number of them
/// measured.
fn expectation(sizes: &[usize], measured: usize) -> (f64, f64) {
    let (mut signal, mut noise, mut count) = (0.0, 0.0, 0.0);
    draws(sizes.iter().sum(), &mut Vec::new(), &mut |drawn| {
        let mut rest = drawn;
        let (mut squares, mut all) = (0.0, [0.0; 2]);
        for (index, size) in sizes.iter().enumerate() {
            let (part, later) = rest.split_at(*size);
            rest = later;
            let sum = part.iter().fold([0.0; 2], |sum, sample| add(sum, SAMPLES[*sample]));
            squares += if index < measured { square(sum) } else { 0.0 };
            all = add(all, sum);
        }
        let measured = Measured {
            squares,
            total: square(all),
            samples: drawn.len() as u64,
            measured: sizes[..measured].iter().map(|size| *size as u64).sum(),
            measured_squared: sizes[..measured].iter().map(|size| (size * size) as u64).sum(),
            population: SAMPLES.len() as u64,
        };
        let (s, n) = measured.estimate().expect("several micro-batches");
        signal += s;
        noise += n;
        count += 1.0;
    });
    (signal / count, noise / count)
}

#[test]
fn estimates_have_the_right_expectations_whatever_the_micro_batches() {
    let count = SAMPLES.len() as f64;
    let mean = SAMPLES.iter().fold([0.0; 2], |sum, sample| add(sum, *sample)).map(|sum| sum / count);
    let signal = square(mean);
    let noise = SAMPLES.iter().map(|s| square([s[0] - mean[0], s[1] - mean[1]])).sum::<f64>() / (count - 1.0);
    for sizes in [&[1, 1][..], &[1, 1, 1, 1], &[2, 1], &[2, 2, 2], &[3, 1, 2], &[1, 0, 3]] {
        for measured in 1..=sizes.len() {
            let (s, n) = expectation(sizes, measured);
            let right = (s - signal).abs() < 1e-9 && (n - noise).abs() < 1e-9;
            assert!(right, "{measured} of {sizes:?}: {s} {n}, not {signal} {noise}");
        }
    }
}

#[test]
fn one_micro_batch_tells_nothing() {
    let alone =
        Measured { squares: 4.0, total: 4.0, samples: 8, measured: 8, measured_squared: 64, population: 100 };
    assert_eq!(alone.estimate(), None);
    let before = Noise { signal: 1.0, noise: 2.0 };
    assert_eq!(before.with(&alone, 1), before);
    assert_eq!(before.with(&Measured { samples: 8, population: 100, ..Measured::default() }, 0), before);
    assert_eq!(Noise::default().scale(), None);
}

#[test]
fn squares_of_samples_are_those_of_the_micro_batches() {
    let order = SampleOrder { samples: 103, batch: 24, virtual_nodes: 8, seed: 1, block: None };
    for step in 0..10 {
        let mut micro_batch = Vec::new();
        let squares: u64 = (0..8)
            .map(|node| {
                order.micro_batch(step, node, &mut micro_batch);
                (micro_batch.len() as u64).pow(2)
            })
            .sum();
        assert_eq!(order.samples_squared(step), squares, "step {step}");
    }
}

proptest! {
    #[test]
    fn smoothing_keeps_the_scale_of_what_stays_the_same(
        squares in 1f64..1e3, total in 0f64..1e5, steps in prop::collection::vec(1u64..20, 1..50),
    ) {
        let measured = Measured { squares, total, samples: 64, measured: 64, measured_squared: 512, population: 1000 };
        let once = Noise::default().with(&measured, 1).scale();
        let often = steps.iter().fold(Noise::default(), |noise, steps| noise.with(&measured, *steps)).scale();
        match (once, often) {
            (Some(once), Some(often)) => prop_assert!((once - often).abs() <= 1e-6 * once.max(1.0), "{once} {often}"),
            _ => prop_assert_eq!(once, often),
        }
    }

    #[test]
    fn the_gain_lies_between_one_and_the_batch(batch in 1u64..1 << 20, times in 1u64..1000, scale in 0f64..1e9) {
        let value = gain(batch, times, scale);
        prop_assert!((1.0..=times as f64).contains(&value));
        prop_assert!(gain(batch, times + 1, scale) >= value);
        prop_assert!(gain(batch, times, 2.0 * scale) >= value);
        prop_assert_eq!(gain(batch, 1, scale), 1.0);
        prop_assert_eq!(gain(batch, times, 0.0), 1.0);
    }

    #[test]
    fn any_noise_has_a_scale_within_bounds(signal in any::<f64>(), noise in any::<f64>()) {
        if let Some(scale) = (Noise { signal, noise }).scale() {
            prop_assert!((0.0..=SCALE_MAX).contains(&scale));
        }
    }
}
