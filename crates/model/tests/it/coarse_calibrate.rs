//! Calibration finds what made its data, and its intervals cover as often as they say.

use bellwether_core::fitted::{FittedModel, Measurement};
use bellwether_core::prediction::{Bottleneck, Configuration, DeviceGroup, Link, Protocol, Validity};
use bellwether_des::{Stream, Streams};
use bellwether_model::calibrate::asynchronous::{self, Prior, ServerTime};
use bellwether_model::calibrate::{Noise, all_reduce, interval_score, predict};
use bellwether_model::collective::Algorithm;
use bellwether_model::queueing::{ClosedNetwork, low_variance};

fn configuration(protocol: Protocol, servers: u32, workers: u32, batch: u64) -> Configuration {
    let devices = vec![DeviceGroup { node: 0, device: "gpu".into(), count: workers }];
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    Configuration { protocol, servers, ..Configuration::synchronous(devices, batch, link) }
}

fn asynchronous_at(workers: u32) -> Configuration {
    configuration(Protocol::Asp, 1, workers, 32 * u64::from(workers))
}

fn synchronous_at(workers: u32, samples: u64) -> Configuration {
    configuration(Protocol::Bsp, 0, workers, samples * u64::from(workers))
}

fn measured(configuration: Configuration, step_s: f64) -> Measurement {
    Measurement { configuration, step_s, exchange_s: None }
}

/// A relative deviation from the default prior of the noise: scaled inverse chi-squared.
fn drawn_noise(draws: &mut Stream) -> f64 {
    let noise = Noise::default();
    let squares: f64 = (0..noise.weight as u32).map(|_| draws.normal(0.0, 1.0).powi(2)).sum();
    noise.relative_deviation * (noise.weight / squares).sqrt()
}

fn lone_station(delay_s: f64, demand_s: f64) -> impl Fn(u32) -> f64 {
    let network = ClosedNetwork::new(delay_s, &[demand_s]).expect("a station");
    move |workers| low_variance(&network, 0.0, workers).expect("some workers").cycle_s
}

#[test]
fn exact_asynchronous_data_give_step_and_station_back() {
    let step_s = lone_station(0.09, 0.01);
    let measurements: Vec<Measurement> =
        [1, 8, 16, 32].iter().map(|&w| measured(asynchronous_at(w), step_s(w))).collect();
    let fitted = asynchronous::fit(&measurements, &Prior::default()).unwrap();
    let value = |name| fitted.value(name).unwrap();
    assert!((value("demand_s") / 0.01 - 1.0).abs() < 0.02, "{fitted:?}");
    assert!((value("delay_s") / 0.09 - 1.0).abs() < 0.02, "{fitted:?}");
    assert!(fitted.parameters[1].standard_error.unwrap() < 0.001);
    assert!(fitted.mean_absolute_residual() < 0.01);
    assert_eq!((fitted.workers, fitted.batch), ((1, 32), (32, 1024)));
    let prediction = predict(&fitted, &asynchronous_at(10)).unwrap();
    assert!((prediction.step_s / step_s(10) - 1.0).abs() < 0.02);
    assert!((prediction.examples_per_s * prediction.step_s - 320.0).abs() < 1e-9);
    assert!(prediction.low < prediction.examples_per_s && prediction.examples_per_s < prediction.high);
    assert_eq!(prediction.validity, Validity::Interpolated);
    assert_eq!(prediction.bottleneck, Bottleneck::Server);
    assert_eq!(predict(&fitted, &asynchronous_at(4)).unwrap().bottleneck, Bottleneck::Compute);
    // Another number of servers is a guess, and says so.
    let two = Configuration { servers: 2, ..asynchronous_at(16) };
    let two = predict(&fitted, &two).unwrap();
    assert!(two.examples_per_s > predict(&fitted, &asynchronous_at(16)).unwrap().examples_per_s);
    assert!(matches!(two.validity, Validity::Extrapolated(why) if why.contains("2 servers")));
}

#[test]
fn knowing_the_servers_time_narrows_the_interval() {
    let step_s = lone_station(0.09, 0.01);
    let one: Vec<Measurement> = vec![measured(asynchronous_at(1), step_s(1))];
    let known = ServerTime::About { demand_s: 0.01, relative_deviation: 0.1 };
    let told = asynchronous::fit(&one, &Prior { server_time: known, ..Prior::default() }).unwrap();
    let told = predict(&told, &asynchronous_at(20)).unwrap();
    let truth = 20.0 * 32.0 / step_s(20);
    assert!(told.low < truth && truth < told.high && told.high / told.low < 2.0, "{told:?} {truth}");
    let three: Vec<Measurement> = (1..=3).map(|w| measured(asynchronous_at(w), step_s(w))).collect();
    let guessed = asynchronous::fit(&three, &Prior::default()).unwrap();
    let guessed = predict(&guessed, &asynchronous_at(20)).unwrap();
    assert!(guessed.low < truth && truth < guessed.high, "{guessed:?} {truth}");
    assert!(guessed.high / guessed.low > told.high / told.low);
}

#[test]
fn asynchronous_intervals_cover_as_often_as_they_say() {
    let mut draws = Streams::new(7).stream("asynchronous", 0);
    let (mut covered, jobs) = (0, 1_000);
    for _ in 0..jobs {
        // Drawn from the prior: the knee log-uniform up to 1,000 workers, and the noise.
        let share = (-draws.uniform() * 1_000f64.ln()).exp();
        let step_s = lone_station(1.0 - share, share);
        let noise = drawn_noise(&mut draws);
        let mut noisy = |w| step_s(w) * draws.normal(0.0, noise).exp();
        let measurements: Vec<Measurement> =
            (1..=3).map(|w| measured(asynchronous_at(w), noisy(w))).collect();
        let truth = 8.0 * 32.0 / noisy(8);
        let fitted = asynchronous::fit(&measurements, &Prior::default()).unwrap();
        let prediction = predict(&fitted, &asynchronous_at(8)).unwrap();
        covered += u32::from((prediction.low..=prediction.high).contains(&truth));
    }
    // Three standard deviations of 1,000 draws around 95 % are 2.1 points.
    let coverage = f64::from(covered) / f64::from(jobs);
    assert!((0.925..=0.975).contains(&coverage), "{coverage}");
}

/// Seconds of a synchronous step: 5 ms, 1 ms per sample, 100 MB at 0.1 ns per byte and link, 2 ms per hop.
fn synchronous_step_s(workers: u32, samples: u64) -> f64 {
    let exchange_s = 2.0 * f64::from(workers - 1) * (1e8 * 1e-10 / f64::from(workers) + 2e-3);
    5e-3 + 1e-3 * samples as f64 + exchange_s
}

#[test]
fn exact_synchronous_data_give_all_terms_back() {
    let measurements: Vec<Measurement> = [(1, 8), (1, 32), (2, 16), (4, 16), (8, 8), (8, 32)]
        .map(|(w, s)| measured(synchronous_at(w, s), synchronous_step_s(w, s)))
        .to_vec();
    let fitted = all_reduce::fit(&measurements, 100_000_000, Algorithm::Ring, &Noise::default()).unwrap();
    for (name, truth) in
        [("fixed_s", 5e-3), ("per_sample_s", 1e-3), ("s_per_byte", 1e-10), ("latency_s", 2e-3)]
    {
        let value = fitted.value(name).unwrap();
        assert!((value / truth - 1.0).abs() < 1e-4, "{name}: {value}");
    }
    let count = fitted.parameters.len();
    assert_eq!(fitted.covariance.len(), count * count);
    let error = fitted.parameters[1].standard_error.unwrap();
    assert!((fitted.covariance[count + 1].sqrt() / error - 1.0).abs() < 1e-9);
    let beyond = predict(&fitted, &synchronous_at(16, 16)).unwrap();
    assert!((beyond.step_s / synchronous_step_s(16, 16) - 1.0).abs() < 1e-3);
    assert_eq!(beyond.bottleneck, Bottleneck::Link);
    assert!(matches!(beyond.validity, Validity::Extrapolated(why) if why.contains("16 workers")));
    assert_eq!(predict(&fitted, &synchronous_at(4, 32)).unwrap().bottleneck, Bottleneck::Compute);
}

#[test]
fn one_batch_and_one_size_leave_out_what_they_cannot_tell() {
    let measurements: Vec<Measurement> =
        [1, 4].map(|w| measured(synchronous_at(w, 16), synchronous_step_s(w, 16))).to_vec();
    let fitted = all_reduce::fit(&measurements, 100_000_000, Algorithm::Ring, &Noise::default()).unwrap();
    assert!(fitted.value("fixed_s").is_none() && fitted.value("latency_s").is_none());
    let two = predict(&fitted, &synchronous_at(2, 16)).unwrap();
    assert_eq!(two.validity, Validity::Interpolated);
    let other = predict(&fitted, &synchronous_at(2, 20)).unwrap();
    assert!(matches!(other.validity, Validity::Extrapolated(why) if why.contains("proportional")));
    // The share of the exchange helps where it was measured.
    let mut told = measurements;
    told[1].exchange_s = Some(0.5 * (synchronous_step_s(4, 16) - synchronous_step_s(1, 16)));
    let told = all_reduce::fit(&told, 100_000_000, Algorithm::Ring, &Noise::default()).unwrap();
    assert!(told.value("s_per_byte").unwrap() < fitted.value("s_per_byte").unwrap());
}

#[test]
fn synchronous_intervals_cover_as_often_as_they_say() {
    let mut draws = Streams::new(11).stream("synchronous", 0);
    let (mut covered, jobs) = (0, 1_000);
    for _ in 0..jobs {
        let noise = drawn_noise(&mut draws);
        let mut noisy = |w, s| synchronous_step_s(w, s) * draws.normal(0.0, noise).exp();
        let measurements: Vec<Measurement> = [(1, 8), (1, 32), (2, 16), (4, 16), (8, 8), (8, 32), (4, 64)]
            .map(|(w, s)| measured(synchronous_at(w, s), noisy(w, s)))
            .to_vec();
        let truth = 16.0 * 16.0 / noisy(16, 16);
        let fitted = all_reduce::fit(&measurements, 100_000_000, Algorithm::Ring, &Noise::default()).unwrap();
        let prediction = predict(&fitted, &synchronous_at(16, 16)).unwrap();
        covered += u32::from((prediction.low..=prediction.high).contains(&truth));
    }
    let coverage = f64::from(covered) / f64::from(jobs);
    assert!((0.925..=0.975).contains(&coverage), "{coverage}");
}

#[test]
fn a_fitted_model_survives_its_file() {
    let step_s = lone_station(0.09, 0.01);
    let measurements: Vec<Measurement> =
        [1, 8].iter().map(|&w| measured(asynchronous_at(w), step_s(w))).collect();
    let fitted = asynchronous::fit(&measurements, &Prior::default()).unwrap();
    let text = serde_json::to_string(&fitted).unwrap();
    let read: FittedModel = serde_json::from_str(&text).unwrap();
    assert_eq!(predict(&read, &asynchronous_at(5)), predict(&fitted, &asynchronous_at(5)));
}

#[test]
fn the_interval_score_by_hand() {
    assert_eq!(interval_score(1.0, 3.0, 2.0), 2.0);
    assert!((interval_score(1.0, 3.0, 3.5) - (2.0 + 40.0 * 0.5)).abs() < 1e-9);
    assert!((interval_score(1.0, 3.0, 0.5) - (2.0 + 40.0 * 0.5)).abs() < 1e-9);
}

/// The error's text, which must say what to do.
fn refused<T: std::fmt::Debug>(result: Result<T, bellwether_core::InputError>, what: &str) {
    let error = result.expect_err("this must be refused");
    assert!(error.to_string().contains(what), "{error}");
    assert!(!error.hint.is_empty(), "{error}");
}

#[test]
fn unusable_measurements_are_refused() {
    let prior = Prior::default();
    let fit = |measurements: &[Measurement]| asynchronous::fit(measurements, &prior);
    let good = |workers| measured(asynchronous_at(workers), 0.1);
    refused(fit(&[]), "no measurements");
    refused(fit(&[good(2), good(2)]), "all measurements are of 2 workers");
    refused(fit(&[good(1), measured(asynchronous_at(2), 0.0)]), "measurement 1");
    refused(fit(&[good(1), measured(asynchronous_at(2), f64::NAN)]), "NaN");
    refused(fit(&[good(1), measured(asynchronous_at(0), 0.1)]), "number of workers is 0");
    refused(fit(&[good(1), measured(synchronous_at(2, 32), 0.1)]), "protocol bsp");
    let two_servers = Configuration { servers: 2, ..asynchronous_at(2) };
    refused(fit(&[good(1), measured(two_servers, 0.1)]), "2 servers");
    let other_batch = Configuration { batch: 2, ..asynchronous_at(2) };
    refused(fit(&[good(1), measured(other_batch, 0.1)]), "samples");
    let none = Prior { noise: Noise { relative_deviation: 0.0, weight: 3.0 }, ..prior };
    refused(asynchronous::fit(&[good(1), good(2)], &none), "relative standard deviation");
    let negative = ServerTime::About { demand_s: -1.0, relative_deviation: 0.1 };
    refused(asynchronous::fit(&[good(1)], &Prior { server_time: negative, ..prior }), "seconds per step");
    let certain = ServerTime::About { demand_s: 1e-3, relative_deviation: 1e-200 };
    refused(asynchronous::fit(&[good(1)], &Prior { server_time: certain, ..prior }), "excludes every time");

    let fit = |measurements: &[Measurement]| {
        all_reduce::fit(measurements, 1_000_000, Algorithm::Ring, &Noise::default())
    };
    let good = |workers, samples| measured(synchronous_at(workers, samples), 0.1);
    refused(fit(&[]), "no measurements");
    refused(fit(&[good(1, 8), good(1, 16)]), "no measurement has several workers");
    refused(fit(&[good(1, 8), good(2, 16), good(4, 16)]), "3 measurements do not determine 4 parameters");
    refused(fit(&[good(1, 8), measured(asynchronous_at(2), 0.1)]), "protocol asp");
    let mut bad = good(2, 8);
    bad.exchange_s = Some(-1.0);
    refused(fit(&[good(1, 8), bad]), "exchange in seconds");
}

#[test]
fn unusable_questions_are_refused() {
    let measurements = [1, 2].map(|w| measured(asynchronous_at(w), 0.1));
    let fitted = asynchronous::fit(&measurements, &Prior::default()).unwrap();
    refused(predict(&fitted, &asynchronous_at(0)), "number of workers is 0");
    refused(predict(&fitted, &synchronous_at(2, 32)), "protocol bsp");
    refused(predict(&fitted, &Configuration { batch: 3, ..asynchronous_at(2) }), "samples");
    let mut lacking = fitted.clone();
    lacking.parameters.retain(|parameter| parameter.name != "demand_s");
    refused(predict(&lacking, &asynchronous_at(2)), "`demand_s`");
    refused(predict(&FittedModel { model: "magic".into(), ..fitted }, &asynchronous_at(2)), "`magic`");
    let measurements = [1, 2].map(|w| measured(synchronous_at(w, 8), 0.1));
    let fitted = all_reduce::fit(&measurements, 1, Algorithm::Ring, &Noise::default()).unwrap();
    refused(predict(&fitted, &synchronous_at(2, 0)), "batch in samples");
    refused(
        predict(&FittedModel { model: "collective::magic".into(), ..fitted }, &synchronous_at(2, 8)),
        "collective::magic",
    );
}
