//! The belief about speeds that was learnt from jobs while they ran.

use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, JobDescription, Link, Prediction, ProfiledRate, StepModel,
    Validity,
};
use bellwether_core::record::StepRecord;
use bellwether_model::observed::{ELSEWHERE, Observed};
use bellwether_model::queueing::{ClosedNetwork, low_variance};
use proptest::prelude::*;

use crate::observed_steps;

const BATCH: u64 = 64;

fn on(device: &str, count: u32) -> Configuration {
    let devices = vec![DeviceGroup { node: 0, device: device.into(), count }];
    Configuration::synchronous(devices, BATCH, Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 })
}

fn job(kind: &str) -> JobDescription {
    JobDescription { name: "job".into(), model: kind.into(), batch: BATCH, devices: 1 }
}

fn belief() -> Observed {
    Observed::new([("slot".to_string(), 1.0), ("slow".to_string(), 0.25)].into())
}

/// `count` steps of `workers` that share 12 virtual nodes of `node_s`.
fn steps(workers: u32, count: usize, node_s: f64, exchange_s: f64) -> Vec<StepRecord> {
    let nodes = 12u32.div_ceil(workers);
    let duration_s = f64::from(nodes) * node_s + exchange_s + 0.002;
    let nodes_s = vec![node_s; nodes as usize];
    vec![StepRecord { duration_s, nodes_s, exchange_s, update_s: 0.001, ..StepRecord::default() }; count]
}

fn ask(belief: &Observed, device: &str, workers: u32) -> Prediction {
    belief.predict(&job("kind"), &on(device, workers)).expect("a kind that was described")
}

fn step_s(belief: &Observed, device: &str, workers: u32) -> f64 {
    ask(belief, device, workers).step_s
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

#[test]
fn what_nothing_is_known_of_is_guessed_and_said_to_be() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 0, None);
    close(step_s(&belief, "slot", 5), 3.0);
    close(step_s(&belief, "slow", 5), 12.0);
    let guess = ask(&belief, "slot", 5);
    assert!(matches!(&guess.validity, Validity::Extrapolated(why) if why.contains("guess")));
    assert!(guess.low * 1e3 < guess.examples_per_s && guess.high > 999.0 * guess.examples_per_s);
    // Two kinds are known: the guess is their geometric mean, its interval goes from one to the other.
    belief.describe("fast", BATCH, 4, 0, Some(0.01));
    belief.describe("slow", BATCH, 4, 0, Some(1.0));
    close(step_s(&belief, "slot", 12), 0.1);
    close(ask(&belief, "slot", 12).high, BATCH as f64 / 0.01);
    belief.describe("kind", BATCH, 12, 0, Some(0.5));
    close(step_s(&belief, "slot", 12), 0.5);
    assert!(
        matches!(&ask(&belief, "slot", 12).validity, Validity::Extrapolated(why) if why.contains("declared"))
    );
}

#[test]
fn a_new_kind_of_a_known_network_is_guessed_by_regression() {
    let mut belief = belief();
    let time_s = |bytes: u64| 1e-6 * (bytes as f64).powf(0.8);
    for (number, bytes) in [1_000u64, 10_000, 50_000, 200_000, 1_000_000].into_iter().enumerate() {
        let kind = format!("known {number}");
        belief.describe(
            &kind,
            BATCH,
            12,
            bytes,
            Some(time_s(bytes) * [1.02, 0.97, 1.01, 1.03, 0.98][number]),
        );
        belief.name_network(&kind, "convnet");
    }
    belief.describe("other", BATCH, 12, 100, Some(100.0));
    belief.describe("kind", BATCH, 12, 100_000, None);
    // Of an unnamed network it is the mean of all, which tells nothing.
    assert!(!belief.knows("kind"));
    belief.name_network("kind", "convnet");
    assert!(belief.knows("kind"));
    let guess = ask(&belief, "slot", 12);
    assert!((guess.step_s / time_s(100_000) - 1.0).abs() < 0.05, "{guess:?}");
    assert!(guess.high / guess.examples_per_s < 1.2 && guess.high > BATCH as f64 / time_s(100_000));
    assert!(matches!(&guess.validity, Validity::Extrapolated(why) if why.contains("5 kinds of `convnet`")));
    // Its own steps say more.
    belief.observe("kind", 12, 1.0, &steps(12, 9, 0.5, 0.0));
    close(step_s(&belief, "slot", 12), 0.502);
}

#[test]
fn what_cannot_be_is_not_learnt_and_not_predicted() {
    let mut belief = belief();
    let unknown = belief.predict(&job("kimd"), &on("slot", 1)).unwrap_err().to_string();
    assert!(unknown.contains("\"kimd\""), "{unknown}");
    belief.describe("kind", BATCH, 12, 0, Some(f64::NAN));
    let before = belief.clone();
    belief.observe("other", 1, 1.0, &steps(1, 9, 0.1, 0.0));
    belief.observe("kind", 13, 1.0, &steps(13, 9, 0.1, 0.0));
    belief.observe("kind", 0, 1.0, &steps(1, 9, 0.1, 0.0));
    belief.observe("kind", 1, f64::INFINITY, &steps(1, 9, 0.1, 0.0));
    assert_eq!(belief, before);
    let nothing = StepRecord::default();
    let negative =
        StepRecord { duration_s: 1.0, nodes_s: vec![1.0], exchange_s: -9.0, ..StepRecord::default() };
    belief.observe("kind", 1, 1.0, &vec![nothing; 9]);
    belief.observe("kind", 1, 1.0, &vec![negative; 9]);
    close(step_s(&belief, "slot", 1), 12.0);
    let many = belief.predict(&job("kind"), &on("slot", 13)).unwrap_err().to_string();
    assert!(many.contains("13 workers cannot share 12 virtual nodes"), "{many}");
    assert!(belief.predict(&job("kind"), &Configuration { batch: 0, ..on("slot", 1) }).is_err());
}

#[test]
fn a_profile_speaks_until_steps_are_observed() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 1 << 20, None);
    assert!(!belief.knows("kind"));
    let rate = |workers: u32, step_s: f64| {
        let examples_per_s = BATCH as f64 / step_s;
        let (low, high) = (0.9 * examples_per_s, 1.1 * examples_per_s);
        ProfiledRate { workers, speed: 1.0, examples_per_s, low, high, bottleneck: Bottleneck::Link }
    };
    let not_a_rate = ProfiledRate { low: f64::NAN, ..rate(3, 1.0) };
    belief.foresee("kind", &[rate(1, 1.2), rate(2, 0.7), rate(4, 0.5), not_a_rate]);
    assert!(belief.knows("kind"));
    close(step_s(&belief, "slot", 4), 0.5);
    close(step_s(&belief, "slow", 4), 2.0);
    let four = ask(&belief, "slot", 4);
    assert!(matches!(&four.validity, Validity::Extrapolated(why) if why.contains("profile")));
    assert_eq!(four.bottleneck, Bottleneck::Link);
    close(four.low, 0.9 * four.examples_per_s);
    // Of three workers the profile says nothing: a guess, from the profile's own virtual nodes of 0.1 s.
    close(step_s(&belief, "slot", 3), 0.4);
    // One worker takes half as long again as profiled, and so do four.
    belief.observe("kind", 1, 1.0, &steps(1, 9, (1.8 - 0.002) / 12.0, 0.0));
    close(step_s(&belief, "slot", 4), 0.75);
    // What was observed with several workers speaks for itself.
    belief.observe("kind", 2, 1.0, &steps(2, 9, 0.1, 0.05));
    let four = ask(&belief, "slot", 4);
    assert!(matches!(&four.validity, Validity::Extrapolated(why) if why.contains("2 workers were observed")));
}

/// `count` steps of workers that do not wait: a station of 0.01 s, and 0.04 s beside it, for each of 12 virtual nodes.
fn unit_steps(workers: u32, count: usize) -> Vec<StepRecord> {
    let network = ClosedNetwork::new(0.04, &[0.01]).expect("a network");
    let per_s = low_variance(&network, 0.0, workers).expect("a solution").throughput_per_s;
    let duration_s = 12.0 / per_s;
    vec![StepRecord { duration_s, unit_count: 12, workers, ..StepRecord::default() }; count]
}

#[test]
fn steps_without_waiting_teach_too() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 1 << 20, None);
    belief.observe("kind", 2, 1.0, &unit_steps(2, 9));
    let two_s = unit_steps(2, 1)[0].duration_s;
    close(step_s(&belief, "slot", 2), two_s);
    assert_eq!(ask(&belief, "slot", 2).validity, Validity::Interpolated);
    // Nothing is known of what more workers wait for: in proportion at best, and at worst nothing.
    let four = ask(&belief, "slot", 4);
    close(four.step_s, two_s / 2.0);
    close(four.low, BATCH as f64 / two_s);
    close(step_s(&belief, "slot", 1), 2.0 * two_s);
    // Six are beyond the knee of five; so are eight, and no more are faster.
    belief.observe("kind", 6, 1.0, &unit_steps(6, 9));
    belief.observe("kind", 8, 1.0, &unit_steps(8, 9));
    for workers in [1, 3, 4, 12] {
        let (told_s, true_s) = (step_s(&belief, "slot", workers), unit_steps(workers, 1)[0].duration_s);
        assert!((told_s / true_s - 1.0).abs() < 0.05, "{workers} workers: {told_s} for {true_s}");
    }
    assert_eq!(ask(&belief, "slot", 12).bottleneck, Bottleneck::Server);
    assert_eq!(ask(&belief, "slot", 4).validity, Validity::Interpolated);
    assert_ne!(ask(&belief, "slot", 12).validity, Validity::Interpolated);
}

#[test]
fn one_worker_knows_no_exchange() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 1 << 20, None);
    belief.observe("kind", 1, 1.0, &steps(1, 9, 0.1, 0.0));
    close(step_s(&belief, "slot", 4), 0.302);
    let more = ask(&belief, "slot", 4);
    assert!(matches!(&more.validity, Validity::Extrapolated(why) if why.contains("exchange")));
    // It may be no faster at all.
    close(more.low, ask(&belief, "slot", 1).low);
    // A larger number that is seen, too, tells of the exchange: (1.202 - 0.1 * 4 - 0.03) / (1.202 - 0.1 * 2 - 0.04) is
    // the part of the way from 1 to 6 workers that 3 workers go. Bytes: 2 (2/3) of 2 (5/6) are 0.8, and 3 workers of 12
    // virtual nodes hold one complete subtree (of 4) each, 6 workers too.
    belief.observe("kind", 6, 1.0, &steps(6, 9, 0.1, 0.05));
    let part = (1.202 - (0.4 + 0.04 + 0.002)) / (1.202 - (0.2 + 0.05 + 0.002));
    close(step_s(&belief, "slot", 3), 1.202 + part * (0.252 - 1.202));
    assert_eq!(ask(&belief, "slot", 3).validity, Validity::Interpolated);
    assert_eq!(ask(&belief, "slot", 6).validity, Validity::Interpolated);
    assert_ne!(ask(&belief, "slot", 8).validity, Validity::Interpolated);
}

#[test]
fn steps_of_a_busy_machine_are_believed_less() {
    let calm = |wait: f64| {
        let mut belief = belief();
        belief.describe("kind", BATCH, 12, 1 << 20, None);
        belief.observe_beside("kind", 2, 1.0, &steps(2, 9, 0.1, 0.05), wait);
        belief
    };
    let (free, some, busy) =
        (ask(&calm(0.0), "slot", 2), ask(&calm(0.2), "slot", 2), ask(&calm(0.6), "slot", 2));
    assert_eq!(free, some, "a little waiting is usual");
    close(busy.step_s, free.step_s);
    close(busy.high, 1.6 * free.high);
    close(busy.low, free.low / 1.6);
    assert!(matches!(&busy.validity, Validity::Extrapolated(why) if why.contains("60 % of that time")));
    // Calm steps that follow are believed again.
    let mut belief = calm(0.6);
    belief.observe("kind", 2, 1.0, &steps(2, 90, 0.1, 0.05));
    assert_eq!(ask(&belief, "slot", 2).validity, Validity::Interpolated);
}

#[test]
fn other_devices_compute_at_their_own_speed_and_exchange_as_fast() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 1 << 20, None);
    belief.observe("kind", 2, 1.0, &steps(2, 9, 0.1, 0.7));
    close(step_s(&belief, "slow", 2), 4.0 * 0.6 + 0.7 + 0.002);
    assert_eq!(ask(&belief, "slot", 2).bottleneck, Bottleneck::Link);
    assert_eq!(ask(&belief, "slow", 2).bottleneck, Bottleneck::Compute);
    let mut mixed = on("slot", 1);
    mixed.devices.push(DeviceGroup { node: 1, device: "slow".into(), count: 1 });
    let mixed = belief.predict(&job("kind"), &mixed).unwrap();
    close(mixed.step_s, step_s(&belief, "slow", 2));
    assert_ne!(mixed.validity, Validity::Interpolated);
    // Once seen there, that counts.
    belief.observe("kind", 2, 0.25, &steps(2, 9, 0.5, 0.7));
    close(step_s(&belief, "slow", 2), 3.702);
    assert_eq!(ask(&belief, "slow", 2).validity, Validity::Interpolated);
    // Twice the samples in a step.
    let double = belief.predict(&job("kind"), &Configuration { batch: 2 * BATCH, ..on("slot", 2) }).unwrap();
    close(double.step_s, 2.0 * 0.6 + 0.7 + 0.002);
}

#[test]
fn a_slow_change_is_followed_in_bounded_memory() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 0, None);
    belief.observe("kind", 1, 1.0, &steps(1, 5_000, 0.1, 0.0));
    let size = serde_json::to_string(&belief).unwrap().len();
    belief.observe("kind", 1, 1.0, &steps(1, 500, 0.2, 0.0));
    // 500 steps ago counts 1 / e.
    close(
        (step_s(&belief, "slot", 1) * 1e3).round(),
        (2_402.0f64 - 1_200.0 * (1.0f64 - 1.0 / 500.0).powi(500)).round(),
    );
    belief.observe("kind", 1, 1.0, &steps(1, 5_000, 0.2, 0.0));
    assert!((step_s(&belief, "slot", 1) - 2.402).abs() < 1e-3);
    let text = serde_json::to_string(&belief).unwrap();
    assert!(text.len() < size + 60 && size < 600, "{size}, then {}", text.len());
    assert_eq!(serde_json::from_str::<Observed>(&text).unwrap(), belief);
    // Cut into other virtual nodes it is another job; declared again it is the same.
    belief.describe("kind", BATCH, 12, 0, Some(9.0));
    assert!((step_s(&belief, "slot", 1) - 2.402).abs() < 1e-3);
    belief.describe("kind", BATCH, 6, 0, Some(9.0));
    close(step_s(&belief, "slot", 6), 9.0);
}

/// Steps without spread or exchange: all that is open is what numbers of workers differ in.
#[test]
fn another_number_of_workers_is_less_certain() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 12, 0, None);
    belief.observe("kind", 2, 1.0, &steps(2, 8, 0.01, 0.0));
    let (seen, more) = (ask(&belief, "slot", 2), ask(&belief, "slot", 4));
    close(seen.high / seen.low, 1.0);
    close(more.high / more.examples_per_s, 1.0 + ELSEWHERE);
    close(more.examples_per_s / more.low, 1.0 + ELSEWHERE);
    belief.observe("kind", 6, 1.0, &steps(6, 8, 0.01, 0.0));
    let between = ask(&belief, "slot", 4);
    assert!(between.high / between.low > 1.0 + ELSEWHERE, "{between:?}");
}

#[test]
fn the_slowest_of_more_workers_is_slower() {
    let mut belief = belief();
    belief.describe("kind", BATCH, 4, 0, None);
    let step = StepRecord { duration_s: 4.0, nodes_s: vec![0.9, 1.1, 0.9, 1.1], ..StepRecord::default() };
    belief.observe("kind", 1, 1.0, &vec![step; 9]);
    // 1.0293754 is the mean of the largest of 4 normal numbers, 0.1 (4/3)^(1/2) the standard deviation of a node.
    let expected_s = 1.0 + 1.029_375_4 * 0.1 * (4.0f64 / 3.0).sqrt();
    assert!((step_s(&belief, "slot", 4) - expected_s).abs() < 1e-4);
}

/// Recorded runs; the errors stand in docs/accuracy.md. Bounds are a little above them.
#[test]
fn held_out_numbers_of_workers_of_recorded_runs() {
    let all = observed_steps::all();
    let worst = |kind: &str, speed: f64, workers: &[u32], asked: &[u32]| {
        let belief = observed_steps::learnt(&all, kind, speed, workers);
        let runs = all.iter().filter(|run| run.kind == kind && asked.contains(&run.workers));
        runs.map(|run| observed_steps::told(&belief, run).1.abs()).fold(0.0, f64::max)
    };
    assert!(worst("synthetic", 1.0, &[1], &[1]) < 0.01, "half the speed, the same number of workers");
    assert!(worst("synthetic", 1.0, &[1], &[2, 3]) < 0.02);
    assert!(worst("synthetic", 1.0, &[2], &[1]) < 0.01);
    assert!(worst("synthetic", 1.0, &[2], &[2, 3, 4]) < 0.08);
    assert!(worst("synthetic", 1.0, &[4], &[1, 2, 6, 8]) < 0.03);
    assert!(worst("synthetic", 1.0, &[2, 8], &[3, 4, 6]) < 0.05);
    // What is measured counts, and what it says of others is far off here: two processors, and steps of half a
    // millisecond, most of which is the exchange.
    assert!(worst("digits", 1.0, &[2], &[2]) < 0.03);
    assert!(worst("digits", 1.0, &[1], &[2]) > 0.5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_laws_of_a_step_model_hold(
        seen in prop::collection::vec((1u32..14, 0usize..3, 4usize..8, 1e-9f64..1e6, 0.0f64..1e6), 0..5),
        declared in prop::option::of(1e-9f64..1e6),
        bytes in 0u64..1 << 40,
        asked in 1u32..14,
        batch in 1u64..1 << 40,
    ) {
        let mut belief = belief();
        belief.describe("kind", BATCH, 12, bytes, declared);
        for (workers, speed, count, node_s, exchange_s) in seen {
            belief.observe("kind", workers, [1.0, 0.25, 3.0][speed], &steps(workers, count, node_s, exchange_s));
        }
        for device in ["slot", "slow", "other"] {
            let question = Configuration { batch, ..on(device, asked) };
            let answer = belief.predict(&job("kind"), &question);
            prop_assert_eq!(&answer, &belief.predict(&job("kind"), &question));
            match answer {
                Ok(Prediction { examples_per_s, low, high, step_s, .. }) => {
                    prop_assert!(0.0 < low && low <= examples_per_s && examples_per_s <= high && high.is_finite());
                    prop_assert!(step_s.is_finite() && step_s > 0.0);
                }
                Err(why) => prop_assert!(asked > 12, "{}", why),
            }
        }
    }

    #[test]
    fn between_two_measurements_more_workers_are_not_slower_by_the_mixture_alone(
        first in (1u32..12, 1e-3f64..1.0), last in (1u32..12, 1e-3f64..1.0),
    ) {
        prop_assume!(first.0 < last.0);
        let mut belief = belief();
        belief.describe("kind", BATCH, 12, 1 << 20, None);
        for (workers, node_s) in [first, last] {
            belief.observe("kind", workers, 1.0, &steps(workers, 9, node_s, 0.0));
        }
        let steps_s: Vec<f64> = (first.0..=last.0).map(|workers| step_s(&belief, "slot", workers)).collect();
        let faster = steps_s[0] >= steps_s[steps_s.len() - 1];
        for pair in steps_s.windows(2) {
            // Without an exchange each forecast by itself gets faster: so does what lies between, where the last is.
            let (one, other) = if faster { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
            prop_assert!(other <= one + 1e-12, "{steps_s:?}");
        }
    }
}
