//! Random streams, quantiles, intervals and averages against known values.

use bellwether_des::Streams;
use bellwether_des::random::shuffled;
use bellwether_des::statistics::{
    Tally, TimeAverage, batch_means, mean, percentile, student_probability, student_quantile, warm_up,
};
use proptest::prelude::*;

#[test]
fn quantiles_of_students_t_are_those_of_the_tables() {
    // NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2, three decimals (t(0.999, 7) is
    // 4.785, where that table has 4.782: the distribution is 0.998996 there, by numerical integration); and the Cauchy
    // distribution, which is Student's t with one degree of freedom, exactly.
    let table = [
        (0.975, 1.0, 12.706),
        (0.975, 2.0, 4.303),
        (0.975, 5.0, 2.571),
        (0.975, 9.0, 2.262),
        (0.975, 19.0, 2.093),
        (0.975, 29.0, 2.045),
        (0.975, 100.0, 1.984),
        (0.95, 4.0, 2.132),
        (0.95, 10.0, 1.812),
        (0.90, 20.0, 1.325),
        (0.995, 10.0, 3.169),
        (0.995, 30.0, 2.750),
        (0.999, 7.0, 4.785),
        (0.999, 60.0, 3.232),
    ];
    for (probability, degrees, value) in table {
        let quantile = student_quantile(probability, degrees);
        assert!((quantile - value).abs() < 6e-4, "t({probability}, {degrees}) = {quantile}, not {value}");
    }
    for probability in [0.6f64, 0.9, 0.99, 0.999] {
        let cauchy = (std::f64::consts::PI * (probability - 0.5)).tan();
        assert!((student_quantile(probability, 1.0) / cauchy - 1.0).abs() < 1e-8);
        // Two degrees of freedom have a closed form as well.
        let a = 4.0 * probability * (1.0 - probability);
        let two = 2.0 * (probability - 0.5) * (2.0 / a).sqrt();
        assert!((student_quantile(probability, 2.0) / two - 1.0).abs() < 1e-8);
    }
}

#[test]
fn quantiles_of_students_t_are_right_with_many_degrees_of_freedom() {
    // The beta function in 30 digits; of infinitely many, the normal distribution.
    for (degrees, expected) in [
        (900.0, 1.962_603_330),
        (1e3, 1.962_339_081),
        (1e4, 1.960_201_240),
        (1e6, 1.959_966_357),
        (1e15, 1.959_963_985),
        (f64::INFINITY, 1.959_963_985),
    ] {
        let quantile = student_quantile(0.975, degrees);
        assert!((quantile - expected).abs() < 1e-8, "{degrees}: {quantile}");
    }
}

#[test]
fn probabilities_are_the_inverse_of_quantiles() {
    for degrees in [0.5, 1.0, 3.0, 17.5, 999.0, 1_001.0, 1e5] {
        for probability in [0.01, 0.3, 0.5, 0.8, 0.975] {
            let back = student_probability(student_quantile(probability, degrees), degrees);
            assert!((back - probability).abs() < 1e-9, "{degrees}, {probability}: {back}");
        }
    }
    assert_eq!(student_probability(f64::MAX, 3.0), 1.0);
}

#[test]
fn percentiles_and_means_by_hand() {
    let sorted = [1.0, 2.0, 4.0, 9.0];
    assert_eq!(mean(&sorted), 4.0);
    assert!(mean(&[]).is_nan());
    for (p, value) in [(-1.0, 1.0), (0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (1.0, 9.0), (2.0, 9.0)] {
        assert_eq!(percentile(&sorted, p), Some(value));
    }
    assert_eq!(percentile(&[7.0], 0.3), Some(7.0));
    assert_eq!(percentile(&[], 0.5), None);
}

#[test]
fn the_order_of_a_shuffle_never_changes() {
    // Published accuracies depend on it: these orders are a contract, as the bits of a stream are.
    assert_eq!(shuffled(8, 0), SHUFFLED);
    assert_ne!(shuffled(8, 1), SHUFFLED);
    assert!(shuffled(0, 3).is_empty());
}

const SHUFFLED: [usize; 8] = [1, 2, 6, 5, 4, 0, 3, 7];

#[test]
fn distributions_have_their_moments() {
    let count = 200_000;
    let mut stream = Streams::new(7).stream("moments", 0);
    let check = |name: &str, mean: f64, deviation: f64, draw: &mut dyn FnMut() -> f64| {
        let tally: Tally = (0..count).map(|_| draw()).collect();
        let interval = tally.interval(0.9999);
        assert!(interval.contains(mean), "{name}: {interval:?} instead of {mean}");
        assert!(interval.relative() < 0.02, "{name} proves nothing");
        let ratio = tally.variance().sqrt() / deviation;
        assert!((ratio - 1.0).abs() < 0.03, "{name}: deviation {ratio} times what it should be");
    };
    check("uniform", 3.5, 1.0 / 12f64.sqrt(), &mut || stream.uniform_in(3.0, 4.0));
    check("exponential", 2.0, 2.0, &mut || stream.exponential(2.0));
    check("normal", 5.0, 1.5, &mut || stream.normal(5.0, 1.5));
    check("lognormal", 0.6, 0.18, &mut || stream.lognormal(0.6, 0.3));
    check("choice", 2.5, 1.25f64.sqrt(), &mut || *stream.choice(&[1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn the_normal_distribution_has_its_quantiles() {
    // Shares below -1.96, -1, 0, 1 and 1.96 deviations.
    let mut stream = Streams::new(8).stream("normal", 0);
    let draws: Vec<f64> = (0..200_000).map(|_| stream.normal(0.0, 1.0)).collect();
    for (bound, share) in
        [(-1.959964, 0.025), (-1.0, 0.158655), (0.0, 0.5), (1.0, 0.841345), (1.959964, 0.975)]
    {
        let got = draws.iter().filter(|draw| **draw < bound).count() as f64 / draws.len() as f64;
        let error = 4.0 * (share * (1.0 - share) / draws.len() as f64).sqrt();
        assert!((got - share).abs() < error, "{got} of {share} below {bound}");
    }
}

#[test]
fn streams_are_uniform_and_independent_of_each_other() {
    // Chi-square over 256 cells of pairs (one number of each of two neighbouring streams): 255 degrees of
    // freedom, p = 0.001 at 330.5. The pairs are neighbours in index, in seed and in name.
    let streams = [
        (Streams::new(1).stream("a", 0), Streams::new(1).stream("a", 1)),
        (Streams::new(1).stream("a", 0), Streams::new(2).stream("a", 0)),
        (Streams::new(1).stream("a", 0), Streams::new(1).stream("b", 0)),
    ];
    for (number, (mut first, mut second)) in streams.into_iter().enumerate() {
        let mut counts = [0f64; 256];
        for _ in 0..256 * 200 {
            let cell = (first.number() >> 60) * 16 + (second.number() >> 60);
            counts[cell as usize] += 1.0;
        }
        let chi: f64 = counts.iter().map(|count| (count - 200.0).powi(2) / 200.0).sum();
        assert!(chi < 330.5, "pair {number}: {chi}");
    }
}

#[test]
fn the_bits_of_a_stream_never_change() {
    // Remembered results must come out again: these words are the contract.
    let mut stream = Streams::new(42).stream("contract", 1);
    let words: Vec<u64> = (0..3).map(|_| stream.number()).collect();
    assert_eq!(words, CONTRACT, "{words:#x?}");
    assert_eq!(stream.number_at(1), words[1]);
}

const CONTRACT: [u64; 3] = [0xcc62_5ef5_b9c6_1dcd, 0xccfe_ead3_1567_6020, 0x354a_94ad_4a22_a428];

#[test]
fn a_uniform_number_is_never_zero_or_one() {
    let mut stream = Streams::new(0).stream("ends", 0);
    assert!((0..100_000).map(|_| stream.uniform()).all(|u| u > 0.0 && u < 1.0));
}

proptest! {
    #[test]
    fn a_tally_is_the_two_pass_formula(samples in prop::collection::vec(-1e3..1e3f64, 2..60)) {
        let tally: Tally = samples.iter().copied().collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        prop_assert!((tally.mean() - mean).abs() < 1e-9);
        prop_assert!((tally.variance() - squares / (samples.len() - 1) as f64).abs() < 1e-6);
    }

    #[test]
    fn a_time_average_is_the_area_over_the_time(
        steps in prop::collection::vec((0.0..5.0f64, -9.0..9.0f64), 1..30),
    ) {
        let mut average = TimeAverage::new(2.0, 1.0);
        let (mut now_s, mut value, mut area) = (2.0, 1.0, 0.0);
        for (wait_s, next) in steps {
            now_s += wait_s;
            area += value * wait_s;
            value = next;
            average.set(now_s, value);
        }
        prop_assert!((average.average(now_s + 1.0) * (now_s - 1.0) - (area + value)).abs() < 1e-6);
        average.restart(now_s);
        prop_assert!((average.average(now_s + 3.0) - value).abs() < 1e-9);
    }
}

/// A first-order autoregressive series around 10.
fn series(run: u64, length: usize, start: f64) -> Vec<f64> {
    let mut noise = Streams::new(11).stream("series", run);
    let mut deviation = start;
    let next = |_| {
        deviation = 0.8 * deviation + noise.normal(0.0, 1.0);
        10.0 + deviation
    };
    (0..length).map(next).collect()
}

#[test]
fn batch_means_cover_where_single_samples_do_not() {
    // 400 series of correlated samples: 95 % of the intervals hold the mean, to within what 400 tell.
    let covers = |batches: usize| {
        let held = |run: &u64| batch_means(&series(*run, 4_000, 0.0), batches, 0.95).contains(10.0);
        (0..400u64).filter(held).count()
    };
    let (in_batches, one_by_one) = (covers(20), covers(4_000));
    assert!((365..=393).contains(&in_batches), "{in_batches} of 400");
    assert!(one_by_one < 250, "without batches, {one_by_one} of 400: the series is not correlated");
}

#[test]
fn the_warm_up_is_found() {
    let cuts: Vec<usize> = (0..20).map(|run| warm_up(&series(run, 2_000, 60.0), 5)).collect();
    // 60 · 0.8^n falls below the noise (deviation 1.7) after 16 samples.
    assert!(cuts.iter().all(|cut| (10..1_000).contains(cut)), "{cuts:?}");
    let steady: usize = (100..120).map(|run| warm_up(&series(run, 2_000, 0.0), 5)).sum();
    assert!(steady / 20 < 400, "{} samples of a steady series are cut on average", steady / 20);
    assert_eq!(warm_up(&[], 5), 0);
}

#[test]
fn too_few_samples_have_an_infinite_interval() {
    assert_eq!(Tally::new().interval(0.95).half_width, f64::INFINITY);
    assert_eq!(batch_means(&[1.0, 2.0, 3.0], 5, 0.95).half_width, f64::INFINITY);
}
