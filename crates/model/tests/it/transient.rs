//! Laws of revocation: their tables, their samples, their words, and the best checkpoint periods under them.

use bellwether_des::Streams;
use bellwether_des::statistics::Tally;
use bellwether_model::transient::{
    Bathtub, Law, LawSpec, Observed, best_period_s, checkpoint_s, daly_s, duration_s, published, samples,
    young_s,
};
use proptest::prelude::*;

const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 86_400.0;

fn law(words: &str) -> Law {
    match words.parse().expect("a law") {
        LawSpec::Law(law) => law,
        LawSpec::Samples(file) => panic!("{file} is a file"),
    }
}

/// Every kind of law, and each published one.
fn laws() -> Vec<(String, Law)> {
    let mut laws = vec![
        ("exponential".to_string(), law("exponential:15h")),
        ("exponential with a limit".to_string(), law("exponential:15h,24h")),
        ("bathtub".to_string(), law("bathtub:0.3,1h,0.2,2h,24h")),
        ("points".to_string(), law("points:90min=0.25,4h=0.25,24h=1")),
        ("samples".to_string(), samples("30min\n2h\n2h\n5h+\n7h\n24h\n24h\n", "text").expect("a law")),
    ];
    for device in published::devices() {
        laws.push((device.to_string(), law(device)));
        for region in published::regions(device) {
            laws.push((format!("{device}:{region}"), law(&format!("{device}:{region}"))));
        }
    }
    laws
}

#[test]
fn the_published_tables_come_back() {
    // Rows as they are printed, to three decimals.
    let rows: [(&str, [f64; 7]); 12] = [
        ("k80:us-east1", [0.467, 0.467, 0.467, 0.467, 0.467, 0.467, 0.467]),
        ("k80:us-central1", [0.104, 0.104, 0.146, 0.167, 0.271, 0.458, 0.563]),
        ("k80:us-west1", [0.042, 0.042, 0.146, 0.167, 0.188, 0.208, 0.229]),
        ("k80:europe-west1", [0.400, 0.400, 0.467, 0.467, 0.533, 0.667, 0.667]),
        ("p100:us-east1", [0.200, 0.400, 0.633, 0.633, 0.667, 0.667, 0.700]),
        ("p100:us-central1", [0.267, 0.333, 0.333, 0.333, 0.467, 0.533, 0.533]),
        ("p100:us-west1", [0.167, 0.300, 0.300, 0.433, 0.533, 0.667, 0.667]),
        ("p100:europe-west1", [0.000, 0.067, 0.133, 0.167, 0.233, 0.233, 0.267]),
        ("v100:us-central1", [0.667, 0.667, 0.667, 0.667, 0.667, 0.667, 0.667]),
        ("v100:us-west1", [0.300, 0.500, 0.533, 0.733, 0.733, 0.733, 0.733]),
        ("v100:europe-west4", [0.067, 0.167, 0.167, 0.200, 0.233, 0.367, 0.433]),
        ("v100:asia-east1", [0.233, 0.300, 0.367, 0.467, 0.467, 0.467, 0.467]),
    ];
    for (words, shares) in rows {
        let law = law(words);
        for (hour, share) in [1.0, 2.0, 3.0, 6.0, 12.0, 18.0, 24.0].into_iter().zip(shares) {
            let got = law.cdf(before_limit(hour * HOUR_S));
            assert!((got - share).abs() <= 0.00051, "{words} at {hour} h: {got} and not {share}");
        }
        assert_eq!(law.cdf(DAY_S), 1.0, "{words}: nothing outlives the limit");
    }
    let revoked: u32 = published::DEVICES.iter().map(|device| device.revoked.iter().sum::<u32>()).sum();
    let servers: u32 = published::DEVICES.iter().map(|device| device.servers).sum();
    assert_eq!((revoked, servers), (206, 396));
}

/// The same time, but before the provider ends the remaining servers.
fn before_limit(time_s: f64) -> f64 {
    time_s.min(DAY_S * (1.0 - 1e-12))
}

#[test]
fn every_law_is_sampled_as_it_says() {
    let draws = 20_000u32;
    for (index, (name, law)) in laws().into_iter().enumerate() {
        let mut stream = Streams::new(1).stream("law", index as u64);
        let drawn: Vec<f64> = (0..draws).map(|_| law.sample(&mut stream)).collect();
        for hour in [1.0, 2.0, 3.0, 6.0, 12.0, 18.0, 24.0] {
            let time_s = before_limit(hour * HOUR_S);
            let expected = law.cdf(time_s);
            let within = drawn.iter().filter(|lifetime_s| **lifetime_s <= time_s).count();
            let share = within as f64 / f64::from(draws);
            let error = (expected * (1.0 - expected) / f64::from(draws)).sqrt();
            assert!(
                (share - expected).abs() <= 3.0 * error + 1e-12,
                "{name} at {hour} h: {share}, law {expected}"
            );
        }
        let mean = drawn.iter().copied().collect::<Tally>();
        let error = (mean.variance() / f64::from(draws)).sqrt();
        let off = (mean.mean() - law.mean_s()).abs();
        assert!(off <= 4.0 * error, "{name}: mean {} and not {}", mean.mean(), law.mean_s());
    }
}

#[test]
fn the_time_lived_is_the_area_under_what_is_left() {
    for (name, law) in laws() {
        let mut area = 0.0;
        let step_s = 10.0;
        for step in 0..12_000 {
            area += step_s * (1.0 - law.cdf((f64::from(step) + 0.5) * step_s));
            let until_s = f64::from(step + 1) * step_s;
            if step % 500 == 499 {
                let got = law.lived_s(until_s);
                assert!((got - area).abs() < 1e-3 * area, "{name} by {until_s} s: {got} and not {area}");
            }
        }
    }
    assert_eq!(Law::never().mean_s(), f64::INFINITY);
    assert!((law("exponential:2h").mean_s() - 2.0 * HOUR_S).abs() < 1e-6);
}

#[test]
fn samples_with_those_that_lived_on_by_hand() {
    // Kaplan and Meier: 4 at risk at 1 h, 2 at 3 h: left 3/4, then 3/8. The last one lives on: the law ends there.
    let law = samples("1h\n2h+\n3h\n4h+", "text").unwrap();
    let at: Vec<f64> = [0.5, 1.0, 2.5, 3.0, 3.9, 4.0].iter().map(|hours| law.cdf(hours * HOUR_S)).collect();
    for (got, expected) in at.iter().zip([0.0, 0.25, 0.25, 0.625, 0.625, 1.0]) {
        assert!((got - expected).abs() < 1e-12, "{at:?}");
    }
    // 1/4 at 1 h, 3/8 at 3 h, 3/8 at 4 h.
    assert!((law.mean_s() - (0.25 + 3.0 * 0.375 + 4.0 * 0.375) * HOUR_S).abs() < 1e-6);
}

#[test]
fn what_is_no_law_is_refused() {
    for (words, says) in [
        ("k81", "did you mean `k80`?"),
        ("k80:us-eest1", "did you mean `us-east1`"),
        ("k80:mars", "us-central1"),
        ("v100:us-east1", "europe-west4"),
        ("exponential", "exponential:15h"),
        ("exponential:-3h", "expected one above 0"),
        ("exponential:15 parsecs", "s, min, h and d"),
        ("exponential:15h,0h", "expected one above 0"),
        ("points:1h=0.5,2h=1.2", "from 0 to 1"),
        ("points:1h=0.5,2h=0.4", "never fall"),
        ("points:2h=0.5,1h=0.6", "times grow"),
        ("points:1h=NaN", "from 0 to 1"),
        ("points:1h", "TIME=SHARE"),
        ("bathtub:0.7,1h,0.4,2h,24h", "so is their sum"),
        ("bathtub:0.7,1h,0.1,48h,24h", "beyond the limit"),
        ("bathtub:0.7,1h", "bathtub:SHARE"),
        ("never:5", "without a parameter"),
        ("samples", "samples:"),
        ("", "expected one of"),
    ] {
        let error = words.parse::<LawSpec>().expect_err(words).to_string();
        assert!(error.contains(says), "`{words}`: {error}");
    }
    let error = samples("1h\n# none\nsoon\n", "mine.txt").unwrap_err();
    assert_eq!(error.place, "mine.txt, line 3");
    assert_eq!(samples("\n", "mine.txt").unwrap_err().place, "mine.txt");
    assert!(Law::samples(&[Observed { lived_s: f64::NAN, revoked: true }]).is_err());
    assert_eq!("samples:a:b.txt".parse(), Ok(LawSpec::Samples("a:b.txt".into())));
    assert_eq!(law("K80:US-east1"), law("k80:us-east1"));
    assert_eq!((duration_s("90"), duration_s("1.5d")), (Ok(90.0), Ok(129_600.0)));
}

#[test]
fn the_best_period_is_that_of_theory() {
    for (mean_s, time_s) in [(3600.0, 5.0), (3600.0, 60.0), (DAY_S, 30.0), (600.0, 300.0)] {
        let law = Law::exponential(mean_s, f64::INFINITY).unwrap();
        let best_s = best_period_s(&law, 1, time_s).unwrap().unwrap();
        // At the optimum of an exponential law, exp((p + c) / m) (1 - p / m) = 1.
        let condition = ((best_s + time_s) / mean_s).exp() * (1.0 - best_s / mean_s) - 1.0;
        assert!(condition.abs() < 1e-5, "mean {mean_s} s, checkpoint {time_s} s: {best_s} s, {condition}");
        let off = daly_s(mean_s, time_s) / best_s - 1.0;
        assert!(off.abs() < if time_s < 0.1 * mean_s { 0.002 } else { 0.05 }, "Daly is {off} off");
        assert!(young_s(mean_s, time_s) > best_s);
    }
    // Eight servers of 8 h each fail like one of 1 h.
    let eight = best_period_s(&law("exponential:8h"), 8, 20.0).unwrap().unwrap();
    let one = best_period_s(&law("exponential:1h"), 1, 20.0).unwrap().unwrap();
    assert!((eight / one - 1.0).abs() < 1e-6);
    // All end at 24 h and none before: one checkpoint, complete just then.
    let atom = best_period_s(&law("points:24h=0"), 1, 60.0).unwrap().unwrap();
    assert!((atom - (DAY_S - 60.0)).abs() < 1.0, "{atom}");
    assert_eq!(best_period_s(&Law::never(), 8, 20.0), Ok(None));
    assert!(best_period_s(&law("k80"), 8, 0.0).is_err() && best_period_s(&law("k80"), 0, 1.0).is_err());
}

#[test]
fn no_other_period_saves_more_work() {
    let saved_s = |law: &Law, workers: u32, period_s: f64| {
        let left = |time_s: f64| (1.0 - law.cdf(time_s)).powf(f64::from(workers));
        let cycles = (1u32..).map(|cycle| left(f64::from(cycle) * (period_s + 30.0) * (1.0 - 1e-12)));
        period_s * cycles.take_while(|share| *share > 1e-12).sum::<f64>()
    };
    for (name, law) in laws() {
        for workers in [1, 8] {
            let best_s = best_period_s(&law, workers, 30.0).unwrap().unwrap();
            let best = saved_s(&law, workers, best_s);
            for step in 0..2000 {
                let period_s = 10.0 * 1.0046f64.powi(step);
                let other = saved_s(&law, workers, period_s);
                assert!(
                    other <= best * 1.001,
                    "{name}, {workers}: {period_s} s and not {best_s} s, {}",
                    other / best
                );
            }
        }
    }
}

#[test]
fn the_time_of_a_checkpoint_is_the_line_through_the_measured_ones() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/cm-dare/whole_data.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let (size, duration) = (column("Checkpoint Size (MB)"), column("Duration"));
    let rows: Vec<(f64, f64)> = lines
        .filter(|row| row.len() > size && !row[size].is_empty())
        .map(|row| (row[size].parse().unwrap(), row[duration].parse().unwrap()))
        .collect();
    assert_eq!(rows.len(), 100);
    let n = rows.len() as f64;
    let (mean_x, mean_y) =
        (rows.iter().map(|r| r.0).sum::<f64>() / n, rows.iter().map(|r| r.1).sum::<f64>() / n);
    let slope = rows.iter().map(|r| (r.0 - mean_x) * (r.1 - mean_y)).sum::<f64>()
        / rows.iter().map(|r| (r.0 - mean_x).powi(2)).sum::<f64>();
    for megabytes in [5.0, 50.0, 200.0] {
        let line = mean_y + slope * (megabytes - mean_x);
        assert!((checkpoint_s(megabytes) - line).abs() < 0.01, "{megabytes} MB: {line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_curve_and_its_inverse_agree(
        shares in prop::collection::vec(0.0f64..1.0, 1..9), limit_h in 1.0f64..48.0, uniform in 0.0001f64..0.9999,
    ) {
        let mut shares = shares;
        shares.sort_by(f64::total_cmp);
        let step_s = limit_h * HOUR_S / shares.len() as f64;
        let points = (1..).zip(&shares).map(|(k, share)| (f64::from(k) * step_s * 0.999, *share));
        let points: Vec<(f64, f64)> = points.collect();
        let law = Law::points(&points, limit_h * HOUR_S).unwrap();
        let lifetime_s = law.lifetime_s(uniform);
        prop_assert!(law.cdf(lifetime_s * (1.0 + 1e-9)) >= uniform - 1e-6);
        prop_assert!(law.cdf(lifetime_s * (1.0 - 1e-9)) <= uniform + 1e-6);
    }

    #[test]
    fn any_bathtub_is_a_law(
        early_share in 0.0f64..1.0, part in 0.0f64..1.0, early_h in 0.01f64..30.0, late_h in 0.001f64..24.0,
        uniform in 0.0f64..1.0,
    ) {
        let law = Law::bathtub(Bathtub {
            early_share, early_mean_s: early_h * HOUR_S, late_share: part * (1.0 - early_share),
            late_growth_s: late_h * HOUR_S, limit_s: DAY_S,
        });
        // Rounding may bring the sum of the shares above 1.
        if let Ok(law) = law {
            let lifetime_s = law.lifetime_s(uniform);
            prop_assert!((0.0..=DAY_S).contains(&lifetime_s));
            let mut before = 0.0;
            for hour in 1..=24 {
                let share = law.cdf(f64::from(hour) * HOUR_S);
                prop_assert!(share >= before && share <= 1.0);
                before = share;
            }
            prop_assert!(law.mean_s() > 0.0 && law.mean_s() <= DAY_S);
        }
    }

    #[test]
    fn any_words_are_a_law_or_refused(words in "[a-z0-9:=,.+-]{0,30}", kind in 0usize..5) {
        let kinds = ["", "exponential:", "points:", "bathtub:", "k80:"];
        let _ = format!("{}{words}", kinds[kind]).parse::<LawSpec>();
        let _ = samples(&words, "text");
    }
}
