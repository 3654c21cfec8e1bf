//! What a micro-batch takes by its size: the closed form, bounds, and held-out batches of public tables.

use bellwether_model::batch_times::BatchTimes;
use bellwether_model::elastic::{BatchLimits, Goodput, Throughput};
use proptest::prelude::*;

use crate::tables::batches::{Errors, held_out, series};

fn mean_size(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

#[test]
fn measured_sizes_are_met_and_others_lie_between() {
    let points = [(4.0, 0.010), (16.0, 0.012), (64.0, 0.040)];
    let times = BatchTimes::new(&[points[2], points[0], points[1]]).unwrap();
    for (samples, seconds) in points {
        let at = times.at(samples);
        assert!((at.seconds / seconds - 1.0).abs() < 1e-12 && at.error < 1e-12 && at.inside, "{at:?}");
    }
    assert_eq!(times.range(), (4.0, 64.0));
    let between = times.at(40.0);
    assert!((between.seconds - 0.026).abs() < 1e-12 && between.inside);
    // If each sample were as fast as in the largest size, they would take 0.025 s.
    assert!((between.error - 1.0 / 26.0).abs() < 1e-12, "{between:?}");
    // No micro-batch takes less than the one of 16.
    assert!((times.at(17.0).error - (1.0 - 0.012 / times.at(17.0).seconds)).abs() < 1e-12);
}

#[test]
fn beyond_the_measured_sizes_errors_grow() {
    let times = BatchTimes::new(&[(10.0, 0.02), (20.0, 0.03), (40.0, 0.06)]).unwrap();
    let (near, far) = (times.at(44.0), times.at(400.0));
    assert!((far.seconds - 0.6).abs() < 1e-12 && !far.inside);
    // Each sample of the last piece takes as long as one of the largest size: both beliefs agree.
    assert!(near.error < 1e-12 && far.error < 1e-12, "{near:?} {far:?}");
    // With a fixed part they do not.
    let fixed = BatchTimes::new(&[(10.0, 0.02), (20.0, 0.03)]).unwrap();
    assert!(fixed.at(200.0).error > fixed.at(25.0).error && fixed.at(25.0).error > 0.0);
    let small = times.at(2.0);
    assert!((small.seconds - 0.012).abs() < 1e-12 && !small.inside);
    assert!(
        (small.error - (0.02 / 0.012 - 1.0)).abs() < 1e-12,
        "no batch may be shorter than the smallest one"
    );
    assert!(times.at(5.0).error < small.error);
    // Whose time falls with the size is noise: it does not fall for ever.
    let noisy = BatchTimes::new(&[(1.0, 1.0), (2.0, 0.9)]).unwrap();
    assert_eq!(noisy.at(1e6).seconds, 0.9);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (points, why) in [
        (&[(1.0, 1.0)][..], "1 sizes of a micro-batch"),
        (&[(1.0, 1.0), (1.0, 2.0)], "or one twice"),
        (&[(0.0, 1.0), (1.0, 2.0)], "samples of a micro-batch is 0"),
        (&[(1.0, f64::NAN), (2.0, 2.0)], "seconds of a micro-batch is NaN"),
    ] {
        let error = BatchTimes::new(points).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

proptest! {
    #[test]
    fn times_are_positive_and_between_measured_sizes_monotone(
        steps in prop::collection::vec((1.0..50.0f64, 0.0..0.1f64), 2..6),
        samples in 0.5..400.0f64,
    ) {
        let mut points = vec![(4.0, 0.01)];
        for (more, longer) in steps {
            let (samples, seconds) = points[points.len() - 1];
            points.push((samples + more, seconds + longer));
        }
        let times = BatchTimes::new(&points).unwrap();
        let (here, beyond) = (times.at(samples), times.at(samples * 1.1));
        prop_assert!(here.seconds > 0.0 && here.error.is_finite());
        prop_assert!(beyond.seconds >= here.seconds * (1.0 - 1e-12), "{here:?} {beyond:?}");
    }
}

#[test]
fn held_out_batches_of_public_tables_are_met_within_5_percent_on_average() {
    let mut all = Errors::default();
    series().iter().for_each(|series| all.add(held_out(series)));
    let (law, line) = (mean_size(&all.law), mean_size(&all.line));
    assert_eq!(all.law.len(), 77);
    assert!(law < 0.05 && law < 0.8 * line, "{law} against a line's {line}");
    assert!(mean_size(&all.proportional) > 2.0 * line);
}

#[test]
fn goodput_knows_that_small_batches_do_not_fill_a_device() {
    let line = Throughput {
        alpha_c: 0.0,
        beta_c: 0.001,
        alpha_n: 0.01,
        beta_n: 0.0,
        alpha_r: 0.01,
        beta_r: 0.0,
        gamma: 1.0,
    };
    let limits = BatchLimits { initial: 16, largest: 1024, local: (4, 256) };
    let goodput = Goodput::new(line, 200.0, limits).unwrap();
    let times = BatchTimes::new(&[(4.0, 0.064), (64.0, 0.064), (256.0, 0.256)]).unwrap();
    let measured = goodput.clone().with_batch_times(times);
    // Where the device is full both say the same, and below it the line is too fast.
    let at = |goodput: &Goodput, batch| goodput.evaluate(1, 2, batch, 0).examples_per_s;
    assert!((at(&measured, 128) / at(&goodput, 128) - 1.0).abs() < 1e-12);
    assert!(at(&measured, 16) < 0.5 * at(&goodput, 16));
    let (best, believed) = (measured.optimum(1, 2).unwrap(), goodput.optimum(1, 2).unwrap());
    assert!(best.local_batch >= 64 && believed.local_batch < 64, "{best:?} {believed:?}");
}
