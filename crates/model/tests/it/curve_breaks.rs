//! Loss curves whose learning rate falls on the way, that settle, or that rise again.

use bellwether_des::Streams;
use bellwether_model::convergence::{BreakReason, CurveFit, Observation, Trend, run_probability};

use crate::tables::curves::{final_loss, recorded};

/// A curve in steps of ten: what `smooth` says of each point, with an error of `noise` around it.
fn curve(count: usize, noise: f64, seed: u64, smooth: impl Fn(usize) -> f64) -> Vec<Observation> {
    let mut random = Streams::new(seed).stream("noise", 0);
    let point = |index: usize| {
        // The sum of twelve uniform errors is as good as normal.
        let error: f64 = (0..12).map(|_| random.uniform_in(-0.5, 0.5)).sum();
        Observation { progress: 10.0 * (index + 1) as f64, loss: (smooth(index) + noise * error).max(0.0) }
    };
    (0..count).map(point).collect()
}

/// A power law, times `after` from point `at` on.
fn power(index: usize, at: usize, after: f64) -> f64 {
    let smooth = 0.4 + 2.0 * (1.0 + (index + 1) as f64 / 6.0).powf(-0.7);
    if index < at { smooth } else { after * smooth }
}

fn dropped(count: usize, at: usize, after: f64, noise: f64, seed: u64) -> Vec<Observation> {
    curve(count, noise, seed, |index| power(index, at, after))
}

#[test]
fn a_fall_of_the_rate_that_was_seen_is_not_ignored() {
    for at in [60, 80, 100] {
        let points = dropped(120, at, 0.5, 0.01, 7);
        let fit = CurveFit::fit(&points, 0.0).unwrap();
        let last = final_loss(&points);
        for ahead in [1210.0, 2400.0, 12_000.0] {
            let loss = fit.loss_at(ahead).loss;
            assert!(loss <= last, "fallen at {at}, asked for {ahead}: {loss} above the last {last}");
        }
        let passed = fit.progress_to(last + 0.02);
        let reached = passed.unwrap_or_else(|| panic!("fallen at {at}: out of reach, though it was passed"));
        assert!(reached.reached && reached.progress <= 1200.0, "fallen at {at}: {reached:?}");
        let [found] = fit.breaks() else { panic!("fallen at {at}: {:?}", fit.breaks()) };
        assert_eq!(found.progress, 10.0 * at as f64);
        assert!(matches!(found.reason, BreakReason::Run { probability, .. } if probability < 0.01));
        // What was observed before the break is still known.
        let before = fit.loss_at(300.0).loss;
        assert!((before / power(29, at, 0.5) - 1.0).abs() < 0.05, "{before}");
    }
}

#[test]
fn no_forecast_is_above_the_last_smoothed_loss_unless_it_diverges() {
    let mut random = Streams::new(3).stream("kinds", 0);
    let mut diverging = 0;
    for seed in 0..32 {
        let (at, noise) = (random.uniform_in(5.0, 55.0) as usize, random.uniform_in(0.003, 0.1));
        let points = match seed % 4 {
            0 => dropped(60, 60, 1.0, noise, seed),
            1 => dropped(60, at, random.uniform_in(0.2, 0.9), noise, seed),
            2 => curve(60, noise, seed, |index| power(index.min(at), 60, 1.0)),
            _ => {
                curve(60, noise, seed, |index| power(index, 60, 1.0) + 0.05 * index.saturating_sub(at) as f64)
            }
        };
        let fit = CurveFit::fit(&points, 0.0).unwrap();
        let last = final_loss(&points);
        for ahead in [600.5, 700.0, 6000.0] {
            let forecast = fit.loss_at(ahead);
            assert!(
                forecast.loss <= last || forecast.trend != Trend::Falls,
                "seed {seed}: {forecast:?}, {last}"
            );
            assert!(
                forecast.interval.0 <= forecast.loss && forecast.loss <= forecast.interval.1,
                "{forecast:?}"
            );
        }
        // A loss that was passed is not out of reach, and one that was not is not behind.
        assert!(fit.progress_to(last * (1.0 + 1e-9)).is_some_and(|time| time.reached), "seed {seed}");
        let below = fit.progress_to(0.9 * fit.least());
        assert!(below.is_none(), "seed {seed}: {below:?}");
        if fit.trend() != Trend::Falls {
            diverging += 1;
            assert_eq!(seed % 4, 3, "seed {seed}: at {at}, noise {noise}: {:?}", fit.trend());
        }
    }
    assert!(diverging >= 3, "{diverging} of 8");
}

#[test]
fn a_loss_that_rises_for_good_diverges() {
    let risen =
        curve(100, 0.01, 1, |index| power(index.min(60), 100, 1.0) + 0.03 * index.saturating_sub(60) as f64);
    let fit = CurveFit::fit(&risen, 0.0).unwrap();
    let Trend::Diverges { since, lowest, last } = fit.trend() else { panic!("{:?}", fit.breaks()) };
    assert!((560.0..=660.0).contains(&since) && last > lowest + 1.0, "{since} {lowest} {last}");
    assert_eq!(fit.least(), lowest);
    assert!(fit.progress_to(lowest).unwrap().reached && fit.progress_to(lowest - 0.01).is_none());
    let forecast = fit.loss_at(2000.0);
    assert!(forecast.loss == last && forecast.interval.1.is_infinite(), "{forecast:?}");
    // A rate that rises for a new descent is none.
    let restarted =
        curve(
            100,
            0.01,
            1,
            |index| if index < 50 { power(index, 50, 1.0) } else { power(index - 50, 99, 1.0) },
        );
    let fit = CurveFit::fit(&restarted, 0.0).unwrap();
    assert_eq!((fit.trend(), fit.breaks().len()), (Trend::Falls, 1), "{:?}", fit.breaks());
    let loss = fit.loss_at(1500.0).loss;
    assert!((loss / power(99, 100, 1.0) - 1.0).abs() < 0.1, "{loss}");
}

#[test]
fn a_forecast_after_a_fall_is_about_as_good_as_without_one() {
    let mut random = Streams::new(5).stream("places", 0);
    let (mut with, mut without) = (0.0, 0.0);
    let curves = 12;
    for seed in 0..curves {
        let (at, after) = (random.uniform_in(20.0, 60.0) as usize, random.uniform_in(0.3, 0.8));
        let error = |points: &[Observation], truth: f64| {
            let fit = CurveFit::fit(points, 0.0).unwrap();
            (fit.loss_at(1600.0).loss / truth - 1.0).abs()
        };
        with += error(&dropped(80, at, after, 0.02, seed), power(159, at, after));
        without += error(&dropped(80, 80, 1.0, 0.02, seed), power(159, 160, 1.0));
    }
    let [with, without] = [with, without].map(|sum: f64| sum / curves as f64);
    println!("mean error after a fall {with:.3}, without one {without:.3}");
    // Fewer points tell where it goes, and the horizon is as far away.
    assert!(with < 5.0 * without && with < 0.15, "{with} {without}");
}

/// Curves that follow a form break no more often than the level says.
#[test]
fn smooth_curves_hardly_ever_break() {
    let mut random = Streams::new(9).stream("curves", 0);
    let mut broken = 0;
    let curves = 60;
    for seed in 0..curves {
        let (asymptote, exponent, scale) =
            (random.uniform_in(0.0, 0.6), random.uniform_in(0.3, 1.5), random.uniform_in(1.0, 30.0));
        let noise = 10f64.powf(random.uniform_in(-2.5, -0.7));
        let points = curve(60, noise, seed, |index| {
            asymptote + 2.0 * (1.0 + (index + 1) as f64 / scale).powf(-exponent)
        });
        broken += usize::from(!CurveFit::fit(&points, 0.0).unwrap().breaks().is_empty());
    }
    println!("{broken} of {curves} smooth curves break");
    assert!(broken <= 2, "{broken} of {curves}");
}

#[test]
fn the_probability_of_a_run_is_that_of_all_sequences() {
    for tosses in 0..=13_usize {
        for run in 1..=tosses + 1 {
            let longest = |sequence: u32| {
                let same = |place: &usize| (sequence >> place) & 1 == (sequence >> (place - 1)) & 1;
                let (mut longest, mut now) = (usize::from(tosses > 0), 1);
                for place in 1..tosses {
                    now = if same(&place) { now + 1 } else { 1 };
                    longest = longest.max(now);
                }
                longest
            };
            let counted = (0..1_u32 << tosses).filter(|sequence| longest(*sequence) >= run).count();
            let expected = counted as f64 / f64::from(1_u32 << tosses);
            assert!((run_probability(tosses, run) - expected).abs() < 1e-12, "{run} of {tosses}: {expected}");
        }
    }
    // Where the sum ends, the bound takes over.
    let ratio = run_probability(500, 61) / (441.0 * 0.5_f64.powi(61));
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    assert!(run_probability(usize::MAX, usize::MAX) >= 0.0);
}

#[test]
fn a_known_fall_is_believed_before_a_run_shows_it() {
    // Nine points after the fall are too few for a run among 120.
    let points = dropped(120, 111, 0.6, 0.01, 2);
    let plain = CurveFit::fit(&points, 0.0).unwrap();
    let told = CurveFit::fit_with_falls(&points, 0.0, &[400.0, 1110.0]).unwrap();
    assert!(plain.breaks().is_empty(), "{:?}", plain.breaks());
    let [found] = told.breaks() else { panic!("{:?}", told.breaks()) };
    assert_eq!((found.progress, found.reason), (1110.0, BreakReason::KnownFall));
    // A fall that changes nothing does not break it, nor one that is not there.
    let smooth = dropped(120, 120, 1.0, 0.01, 2);
    let falls = [-5.0, 0.0, 600.0, 1200.0, 5000.0, f64::NAN];
    assert!(CurveFit::fit_with_falls(&smooth, 0.0, &falls).unwrap().breaks().is_empty());
}

#[test]
fn recorded_curves_are_never_predicted_to_rise_nor_denied_what_they_passed() {
    for (name, points) in recorded() {
        let seen = &points[..points.len() * 9 / 10];
        let fit = CurveFit::fit(seen, 0.0).unwrap();
        let last = final_loss(seen);
        let ahead = fit.loss_at(points[points.len() - 1].progress);
        assert!(ahead.loss <= last && ahead.trend == Trend::Falls, "{name}: {ahead:?} {last}");
        assert!(fit.progress_to(last).is_some_and(|time| time.reached), "{name}");
    }
}
