//! Measured throughput that the queueing model was not fitted to (CM-DARE, 12 series, 1 to 8 workers).

use bellwether_core::fitted::FittedModel;
use bellwether_core::prediction::Validity;
use bellwether_model::calibrate::asynchronous::{Prior, fit, posterior, predict};
use bellwether_model::calibrate::{IntervalScore, Noise};

use crate::tables::cm_dare::{Series, linear_intervals, mean_absolute, queueing_intervals, score, series};

fn gathered(servers: u32, errors: impl Fn(&Series) -> Vec<f64>) -> f64 {
    let all: Vec<f64> = series().iter().filter(|series| series.servers == servers).flat_map(errors).collect();
    mean_absolute(&all)
}

#[test]
fn between_one_and_eight_workers_the_error_is_small() {
    assert_eq!(series().len(), 12);
    let steady = |series: &Series| series.errors_between(0.0).unwrap();
    let exponential = |series: &Series| series.errors_between(1.0).unwrap();
    // The bars were set before anything was measured: 5 % with one server, 10 % with two.
    for (servers, bar) in [(1, 0.05), (2, 0.10)] {
        let error = gathered(servers, steady);
        assert!(error <= bar, "{servers} servers: {error}");
        for (baseline, of_baseline) in [
            ("exponential stations", gathered(servers, exponential)),
            ("asymptotes", gathered(servers, Series::errors_of_asymptotes)),
            ("power law", gathered(servers, Series::errors_of_power_law)),
        ] {
            assert!(error < of_baseline, "{servers} servers: {error}, {baseline}: {of_baseline}");
        }
    }
}

#[test]
fn intervals_beyond_the_fitted_workers_beat_those_of_linear_scaling() {
    let [mut queueing, mut linear, mut informed] = [IntervalScore::default(); 3];
    for series in series() {
        score(&series, &queueing_intervals(&series, &Prior::default()).unwrap(), &mut queueing);
        score(&series, &linear_intervals(&series, None), &mut linear);
        score(&series, &linear_intervals(&series, Some(Noise::default())), &mut informed);
    }
    assert_eq!(queueing.count(), 60);
    // So that it is not the prior of the noise alone that wins.
    let best = linear.mean_score().min(informed.mean_score());
    assert!(queueing.mean_score() < 0.5 * best, "{queueing:?} against {linear:?} and {informed:?}");
    assert!(queueing.coverage() > linear.coverage(), "{queueing:?} against {linear:?}");
    assert!(queueing.coverage() >= 0.93, "{queueing:?}");
}

/// Beyond what was measured the interval reaches down to the least gain, and no further up; a file from before it, and
/// numbers of workers within, are as they were.
#[test]
fn more_workers_may_gain_little() {
    for series in series() {
        let measurements = series.measurements(&[1, 2, 3]);
        let with = |least_gain| fit(&measurements, &Prior { least_gain, ..Prior::default() }).unwrap();
        let at = |fitted: &FittedModel, workers| predict(fitted, &series.configuration(workers)).unwrap();
        let (none, some, all) = (with(0.0), with(0.35), with(1.0));
        let mut earlier = some.clone();
        earlier.parameters.retain(|parameter| parameter.name != "least_gain");
        for workers in 1..=3 {
            assert_eq!(at(&none, workers), at(&all, workers));
        }
        for workers in 4..=8 {
            assert_eq!(at(&earlier, workers), at(&all, workers));
            let [none, some, all] = [&none, &some, &all].map(|fitted| at(fitted, workers));
            assert!(
                none.low <= some.low && some.low <= all.low,
                "{}: {none:?} {some:?} {all:?}",
                series.name
            );
            // One series bends within three workers: its station's time is known.
            let bends = series.name.starts_with("Shake-big P100");
            assert!(
                (bends || none.low < all.low) && none.high == all.high,
                "{}: {none:?} {all:?}",
                series.name
            );
            assert!(none.low <= at(&with(0.0), 3).examples_per_s, "{}", series.name);
        }
    }
    let measurements = series()[0].measurements(&[1, 2, 3]);
    for bad in [-0.1, 1.1, f64::NAN] {
        assert!(fit(&measurements, &Prior { least_gain: bad, ..Prior::default() }).is_err());
    }
}

#[test]
fn three_points_before_the_knee_leave_the_station_open() {
    for series in series() {
        let fitted = fit(&series.measurements(&[1, 2, 3]), &Prior::default()).unwrap();
        let demand = fitted.parameters.iter().find(|parameter| parameter.name == "demand_s").unwrap();
        let open = demand.standard_error.is_none();
        // One series bends within three workers.
        assert!(open || series.name.starts_with("Shake-big P100"), "{}: {demand:?}", series.name);
        let eight = predict(&fitted, &series.configuration(8)).unwrap();
        assert!(matches!(&eight.validity, Validity::Extrapolated(why) if why.contains("8 workers")));
        let two = predict(&fitted, &series.configuration(2)).unwrap();
        assert_eq!(two.validity, Validity::Interpolated);
        assert!(two.high / two.low < eight.high / eight.low, "{}: {two:?} {eight:?}", series.name);
    }
}

#[test]
fn the_summary_says_what_the_whole_posterior_says() {
    for series in series() {
        for measured in [vec![1, 8], vec![1, 2, 3]] {
            let measurements = series.measurements(&measured);
            // Without the least gain, which the posterior does not know.
            let prior = Prior { least_gain: 1.0, ..Prior::default() };
            let fitted = fit(&measurements, &prior).unwrap();
            let whole = posterior(&measurements, &prior).unwrap();
            for workers in [2, 5, 8] {
                let summary = predict(&fitted, &series.configuration(workers)).unwrap();
                for (end, p) in [(summary.low, 0.025), (summary.examples_per_s, 0.5), (summary.high, 0.975)] {
                    let exact = whole.throughput_quantile_per_s(workers, p).unwrap();
                    let context = format!("{} from {measured:?}, {workers} workers, {p}", series.name);
                    assert!((end / exact).ln().abs() < 0.1, "{context}: {end} against {exact}");
                }
            }
        }
    }
}
