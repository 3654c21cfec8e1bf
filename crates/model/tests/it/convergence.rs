//! Loss curves, batch size and staleness against exact curves, a simulated quadratic and measured curves.

use bellwether_core::prediction::Validity;
use bellwether_des::Streams;
use bellwether_model::convergence::{
    Curve, CurveFit, Form, Observation, fit_steps, gain, steps_of_progress, steps_to_target,
};
use proptest::prelude::*;

use crate::tables;
use crate::tables::curves::{final_loss, first_reach, noise_scales, observations, smoothed};

fn points(curve: &Curve, count: u32, disturb: impl Fn(u32) -> f64) -> Vec<Observation> {
    let point = |index: u32| {
        let progress = 100.0 * f64::from(index + 1);
        Observation { progress, loss: curve.loss(progress) + disturb(index) }
    };
    (0..count).map(point).collect()
}

/// A disturbance between -1 and 1 that is the same every time.
fn wobble(index: u32) -> f64 {
    Streams::new(1).stream("wobble", index.into()).uniform_in(-1.0, 1.0)
}

const POWER: Curve =
    Curve { form: Form::Power, origin: 0.0, height: 2.0, scale: 400.0, exponent: 0.6, asymptote: 0.3 };

#[test]
fn an_exact_curve_is_followed_beyond_its_end() {
    for form in Form::ALL {
        let exponent = if form == Form::Power { 0.6 } else { 1.0 };
        let curve = Curve { form, exponent, ..POWER };
        let fit = CurveFit::fit(&points(&curve, 20, |_| 0.0), 0.0).unwrap();
        let target = curve.loss(4000.0);
        let found = fit.progress_to(target).unwrap();
        assert!((found.progress / 4000.0 - 1.0).abs() < 0.02, "{form:?}: {found:?}");
        assert!(matches!(found.validity, Validity::Extrapolated(_)), "{found:?}");
        assert_eq!(fit.loss_at(1500.0).validity, Validity::Interpolated);
        assert!(fit.progress_to(0.1).is_none(), "{form:?}: below the asymptote");
    }
}

#[test]
fn outliers_hardly_matter() {
    let clean = CurveFit::fit(&points(&POWER, 40, |i| 0.01 * wobble(i)), 0.0).unwrap();
    let spoiled =
        CurveFit::fit(&points(&POWER, 40, |i| if i % 9 == 4 { 5.0 } else { 0.01 * wobble(i) }), 0.0).unwrap();
    let (clean, spoiled, exact) =
        (clean.loss_at(8000.0).loss, spoiled.loss_at(8000.0).loss, POWER.loss(8000.0));
    assert!((clean / exact - 1.0).abs() < 0.1, "{clean} {exact}");
    assert!((spoiled / exact - 1.0).abs() < 0.15, "{spoiled} {exact}");
}

#[test]
fn the_interval_holds_the_truth_and_grows_with_the_noise() {
    let width = |noise: f64| {
        let fit = CurveFit::fit(&points(&POWER, 30, |i| noise * wobble(i)), 0.0).unwrap();
        let time = fit.progress_to(POWER.loss(5000.0)).unwrap();
        assert!(time.low <= 5000.0 && time.high.is_none_or(|high| high >= 5000.0), "{noise}: {time:?}");
        let loss = fit.loss_at(5000.0);
        assert!(loss.interval.0 <= POWER.loss(5000.0) && POWER.loss(5000.0) <= loss.interval.1, "{loss:?}");
        println!("noise {noise}: {loss:?}");
        loss.interval.1 - loss.interval.0
    };
    assert!(width(0.05) > 2.0 * width(0.0005));
}

#[test]
fn curves_that_cannot_be_are_refused() {
    let good = points(&POWER, 6, |_| 0.0);
    assert!(CurveFit::fit(&good[..3], 0.0).unwrap_err().what.contains("at least 4"));
    let mut bad = good.clone();
    bad[3].loss = f64::NAN;
    assert_eq!(CurveFit::fit(&bad, 0.0).unwrap_err().place, "loss curve, point 4");
    bad[3].loss = -1.0;
    assert!(CurveFit::fit(&bad, 0.0).is_err(), "below the floor");
    let mut back = good.clone();
    back[2].progress = 50.0;
    assert_eq!(CurveFit::fit(&back, 0.0).unwrap_err().place, "loss curve, point 3");
    let flat = vec![0, 1, 2, 3, 4].into_iter().map(|i| Observation { progress: f64::from(i), loss: 0.5 });
    let flat = CurveFit::fit(&flat.collect::<Vec<_>>(), 0.0).unwrap();
    assert!((flat.loss_at(100.0).loss - 0.5).abs() < 0.05);
    assert!(fit_steps(&[(8.0, 100.0)]).is_err() && fit_steps(&[(8.0, 100.0), (8.0, 90.0)]).is_err());
    assert!(fit_steps(&[(8.0, 100.0), (16.0, -1.0)]).is_err());
    assert!(fit_steps(&[(8.0, 100.0), (16.0, 10.0)]).is_err(), "faster than batches grow");
    assert!(fit_steps(&[]).is_err());
    // One and the same to rounding.
    assert!(fit_steps(&[(1e15, 100.0), (1e15 + 1.0, 100.0)]).is_err());
    assert!(fit_steps(&[(1.0, 1e-200), (2.0, 1e-200)]).is_err());
}

/// A quadratic of two curvatures under SGD with delayed gradients: the best step count over learning rates until the
/// expected loss has come down to `target`. Expectations are exact: noise passes through the impulse response.
fn quadratic_steps(batch: f64, staleness: usize, target: f64) -> f64 {
    const CURVATURES: [f64; 2] = [1.0, 0.02];
    const NOISE: f64 = 2.0;
    let reach = |rate: f64| -> Option<usize> {
        let mut response = [vec![0.0; staleness], vec![0.0; staleness]];
        response.iter_mut().for_each(|h| h.push(1.0));
        let mut energy = [0.0; 2];
        (0..20_000).find(|_| {
            let mut loss = 0.0;
            for ((h, energy), curvature) in response.iter_mut().zip(&mut energy).zip(CURVATURES) {
                let now = h[h.len() - 1];
                // The start of every mode is 1; the noise adds the responses to all earlier steps.
                loss += curvature * (now * now + rate * rate * NOISE / batch * *energy);
                *energy += now * now;
                let next = now - rate * curvature * h[h.len() - 1 - staleness];
                h.push(next);
            }
            loss <= target
        })
    };
    let rates = (0..220).map(|index| 2.0 * 0.95_f64.powi(index));
    rates.filter_map(reach).min().expect("a small rate reaches it") as f64
}

#[test]
fn batch_and_staleness_follow_the_law_on_a_quadratic() {
    let target = 2e-3;
    let batches = [16.0, 64.0, 256.0, 1024.0, 4096.0, 65536.0];
    let measured: Vec<(f64, f64)> =
        batches.iter().map(|&batch| (batch, quadratic_steps(batch, 0, target))).collect();
    let (least, noise) = fit_steps(&measured).unwrap();
    for &(batch, steps) in &measured {
        let ratio = steps_to_target(least, noise, batch, 0.0) / steps;
        println!("batch {batch}: {steps} steps, law over simulated {ratio:.2}");
        assert!((0.6..1.6).contains(&ratio), "batch {batch}: {ratio}");
    }
    for staleness in [1, 3, 7, 15] {
        for batch in [16.0, 256.0, 4096.0, 65536.0] {
            let steps = quadratic_steps(batch, staleness, target);
            let ratio = steps_to_target(least, noise, batch, staleness as f64) / steps;
            println!("staleness {staleness}, batch {batch}: law over simulated {ratio:.2}");
            assert!((0.55..1.7).contains(&ratio), "staleness {staleness}, batch {batch}: {ratio}");
        }
    }
}

#[test]
fn the_end_of_measured_curves_is_predicted_better_than_by_their_last_point() {
    let (mut ours, mut last, mut within, mut count) = (0.0, 0.0, 0, 0);
    for job in &tables::POLLUX {
        for (_, table) in job.curves {
            let points = observations(job, table);
            let seen = &points[..(points.len() as f64 * 0.4).round() as usize];
            let Ok(fit) = CurveFit::fit(seen, 0.0) else {
                assert_eq!(job.name, "bert", "only the two points of bert are too few");
                continue;
            };
            let measured = final_loss(&points);
            let forecast = fit.loss_at(points[points.len() - 1].progress);
            ours += (forecast.loss / measured - 1.0).abs();
            last += (final_loss(seen) / measured - 1.0).abs();
            within += u32::from((forecast.interval.0..=forecast.interval.1).contains(&measured));
            count += 1;
        }
    }
    let mean = |sum: f64| sum / f64::from(count);
    println!("{count} curves: {:.3}, last point {:.3}, {within} within", mean(ours), mean(last));
    assert_eq!(count, 20);
    assert!(ours < 0.7 * last && within >= 18);
}

#[test]
fn noise_scales_of_one_batch_predict_the_steps_of_others() {
    let (mut ours, mut perfect, mut none) = (0.0, 0.0, 0.0);
    for job in tables::POLLUX.iter().filter(|job| job.name != "bert") {
        let initial = job.initial_batch as f64;
        let base_table = job.curves[0].1;
        let base = smoothed(&observations(job, base_table));
        let scales = noise_scales(job.initial_batch, &tables::curve(base_table));
        let target = base[base.len() / 2].loss;
        let progress = first_reach(&base, target);
        for (batch, table) in &job.curves[1..] {
            let curve = smoothed(&observations(job, table));
            let Some(at) = curve.iter().position(|point| point.loss <= target) else { continue };
            let (batch, measured) = (*batch as f64, tables::curve(table)[at][1]);
            let size = |steps: f64| (steps / measured).ln().abs();
            ours += size(steps_of_progress(&scales, initial, batch, progress).unwrap());
            perfect += size(progress * initial / batch);
            none += size(progress);
        }
    }
    println!("{ours:.2} {perfect:.2} {none:.2}");
    assert!(ours < 0.7 * perfect && ours < 0.7 * none, "{ours} {perfect} {none}");
}

proptest! {
    #[test]
    fn more_of_anything_bad_costs_steps(
        least in 1.0f64..1e5, noise in 0.0f64..1e6, batch in 1.0f64..1e5, staleness in 0.0f64..64.0, factor in 1.0f64..8.0,
    ) {
        let steps = steps_to_target(least, noise, batch, staleness);
        prop_assert!(steps >= least);
        prop_assert!(steps_to_target(least, noise, batch, staleness * factor) >= steps);
        let larger = steps_to_target(least, noise, batch * factor, staleness);
        prop_assert!(larger <= steps && larger * factor >= steps * (1.0 - 1e-12), "fewer steps, more samples");
        // W workers without waiting need the samples of one batch W b.
        let asynchronous = batch * steps_to_target(least, noise, batch, factor - 1.0);
        let synchronous = factor * batch * steps_to_target(least, noise, factor * batch, 0.0);
        prop_assert!((asynchronous / synchronous - 1.0).abs() < 1e-9);
    }

    #[test]
    fn progress_is_the_sum_of_gains(
        scales in prop::collection::vec(1.0f64..1e4, 1..6), initial in 1.0f64..100.0, factor in 1.0f64..50.0, part in 0.1f64..2.0,
    ) {
        let batch = initial * factor;
        let list: Vec<(f64, f64)> = scales.iter().enumerate().map(|(i, s)| (100.0 * (i + 1) as f64, *s)).collect();
        let progress = part * 100.0 * scales.len() as f64;
        let steps = steps_of_progress(&list, initial, batch, progress).unwrap();
        prop_assert!(steps <= progress * (1.0 + 1e-12) && steps >= progress / factor * (1.0 - 1e-12));
        if scales.len() == 1 {
            prop_assert!((steps * gain(scales[0], initial, batch) / progress - 1.0).abs() < 1e-9);
        }
        prop_assert!((steps_of_progress(&list, initial, initial, progress).unwrap() / progress - 1.0).abs() < 1e-9);
    }

    #[test]
    fn exact_steps_give_their_noise_scale_back(least in 1.0f64..1e4, noise in 1.0f64..1e4) {
        let measured: Vec<(f64, f64)> =
            [4.0, 32.0, 500.0].iter().map(|&batch| (batch, steps_to_target(least, noise, batch, 0.0))).collect();
        let (found_least, found_noise) = fit_steps(&measured).unwrap();
        prop_assert!((found_least / least - 1.0).abs() < 1e-6 && (found_noise / noise - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_time_to_a_loss_is_the_inverse_of_the_loss(
        height in 0.1f64..10.0, scale in 10.0f64..1e4, exponent in 0.2f64..3.0, asymptote in 0.0f64..2.0, progress in 1.0f64..1e4,
    ) {
        for form in Form::ALL {
            let exponent = if form == Form::Power { exponent } else { 1.0 };
            let curve = Curve { form, origin: 0.0, height, scale, exponent, asymptote };
            let loss = curve.loss(progress);
            if loss - asymptote > 1e-6 {
                let back = curve.progress_to(loss).unwrap();
                prop_assert!((back / progress - 1.0).abs() < 1e-4, "{curve:?}: {back}");
            }
        }
    }
}
