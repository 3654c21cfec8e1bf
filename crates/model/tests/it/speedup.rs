//! Declared laws of speed: values by hand, the laws of a step model, and every text is read or refused.

use std::collections::BTreeMap;

use bellwether_core::prediction::{
    Configuration, DeviceGroup, JobDescription, Link, Prediction, StepModel, Validity,
};
use bellwether_model::speedup::{Law, Speedup};
use proptest::prelude::*;

fn job(devices: u32) -> JobDescription {
    JobDescription { name: "j".into(), model: "m".into(), batch: 1, devices }
}

fn on(groups: &[(&str, u32)]) -> Configuration {
    let group = |(node, (device, count)): (usize, &(&str, u32))| DeviceGroup {
        node: node as u32,
        device: device.to_string(),
        count: *count,
    };
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    Configuration::synchronous(groups.iter().enumerate().map(group).collect(), 1, link)
}

fn speedup(law: &str, speeds: &[(&str, f64)]) -> Speedup {
    let speeds = speeds.iter().map(|(device, speed)| (device.to_string(), *speed)).collect();
    Speedup::new(law.parse().unwrap(), speeds).unwrap()
}

fn rate(law: &str, asked: u32, count: u32) -> f64 {
    speedup(law, &[]).predict(&job(asked), &on(&[("v100", count)])).unwrap().examples_per_s
}

#[test]
fn laws_by_hand() {
    // The work of a job is its declared seconds: speed 1 on the devices that it asked for.
    for law in ["linear", "amdahl:0.3", "power:0.7"] {
        assert_eq!(rate(law, 4, 4), 1.0, "{law}");
    }
    assert_eq!(rate("linear", 4, 6), 1.5);
    // s(4) = 1 / (0.2 + 0.2) = 2.5, s(2) = 1 / (0.2 + 0.4) = 1.6667: half the devices, two thirds of the speed.
    assert!((rate("amdahl:0.2", 4, 2) - 2.0 / 3.0).abs() < 1e-12);
    // (16 / 4)^0.5 = 2
    assert!((rate("power:0.5", 4, 16) - 2.0).abs() < 1e-12);
    assert_eq!(rate("curve:10,20,30,38,46,49,50,50", 99, 4), 38.0);
}

#[test]
fn beyond_its_end_a_curve_is_flat_and_says_so() {
    let model = speedup("curve:10,20,30,38,46,49,50,50", &[]);
    let at = |count| model.predict(&job(1), &on(&[("v100", count)])).unwrap();
    assert_eq!((at(8).examples_per_s, at(8).validity), (50.0, Validity::Interpolated));
    assert_eq!(at(100).examples_per_s, 50.0);
    assert_eq!(at(100).validity, Validity::Extrapolated("the curve ends at 8 devices".into()));
}

#[test]
fn a_gang_goes_as_fast_as_its_slowest_device() {
    let model = speedup("linear", &[("k80", 0.25), ("a100", 3.0)]);
    let rate = |groups: &[(&str, u32)]| model.predict(&job(2), &on(groups)).unwrap().examples_per_s;
    assert_eq!(rate(&[("a100", 2)]), 3.0);
    assert_eq!(rate(&[("other", 2)]), 1.0);
    assert_eq!(rate(&[("a100", 2), ("k80", 2)]), 0.5);
    // An empty group slows no other.
    assert_eq!(rate(&[("a100", 2), ("k80", 0)]), 3.0);
}

#[test]
fn what_it_cannot_know_is_refused() {
    let model = speedup("linear", &[]);
    assert!(model.predict(&job(1), &on(&[])).unwrap_err().to_string().contains("no device"));
    assert!(
        model.predict(&job(0), &on(&[("v100", 1)])).unwrap_err().to_string().contains("asks for no device")
    );
    let mut shared = on(&[("v100", 1)]);
    shared.shared_with.push("k".into());
    assert!(model.predict(&job(1), &shared).unwrap_err().to_string().contains("for themselves"));
    let mut empty = on(&[("v100", 1)]);
    empty.batch = 0;
    assert!(model.predict(&job(1), &empty).is_err());
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let speeds = BTreeMap::from([("v100".to_string(), speed)]);
        assert!(Speedup::new(Law::Linear, speeds).unwrap_err().what.contains("v100"));
    }
}

#[test]
fn a_wrong_law_is_met_with_the_nearest() {
    let error = |text: &str| text.parse::<Law>().unwrap_err().to_string();
    assert!(error("linaer").contains("did you mean `linear`"), "{}", error("linaer"));
    assert!(error("quadratic").contains("expected one of linear, amdahl, power, curve"));
    assert!(error("amdahl").contains("amdahl:0.1"));
    assert!(error("amdahl:1.5").contains("from 0 to 1"));
    assert!(error("power:x").contains("exponent"));
    assert!(error("power:NaN").contains("exponent"));
    assert!(error("linear:2").contains("without a parameter"));
    assert!(error("curve:10,,30").contains("\"\""));
    assert!(error("curve:10,-1").contains("\"-1\""));
    assert!(error("curve:").contains("\"\""));
}

/// The laws of [`StepModel`] that hold for one prediction.
fn is_lawful(p: &Prediction) -> bool {
    let fits = |value: f64| value.is_finite() && value > 0.0;
    [p.low, p.examples_per_s, p.high, p.step_s].into_iter().all(fits)
        && p.low <= p.examples_per_s
        && p.examples_per_s <= p.high
}

fn law() -> impl Strategy<Value = Law> {
    prop_oneof![
        Just(Law::Linear),
        (0.0..=1.0).prop_map(Law::Amdahl),
        (0.0..=1.0).prop_map(Law::Power),
        prop::collection::vec(1e-300f64..1e300, 1..20).prop_map(Law::Curve),
    ]
}

proptest! {
    #[test]
    fn predictions_are_lawful_and_texts_come_back(
        law in law(), asked in 0u32..100_000, count in 0u32.., speed in 1e-300f64..1e300, batch in 0u64..,
    ) {
        prop_assert_eq!(law.to_string().parse(), Ok(law.clone()));
        let model = Speedup::new(law, BTreeMap::from([("x".to_string(), speed)])).unwrap();
        let mut configuration = on(&[("x", count)]);
        configuration.batch = batch;
        if let Ok(found) = model.predict(&job(asked), &configuration) {
            prop_assert!(is_lawful(&found), "{found:?}");
            prop_assert_eq!(model.predict(&job(asked), &configuration), Ok(found));
        }
    }

    #[test]
    fn relative_laws_never_lose_by_a_device(serial in 0.0f64..=1.0, power in 0.0f64..=1.0, k in 1u32..10_000) {
        for law in [Law::Linear, Law::Amdahl(serial), Law::Power(power)] {
            prop_assert!((law.at(1) - 1.0).abs() < 1e-12);
            prop_assert!(law.at(k + 1) >= law.at(k) * (1.0 - 1e-12));
            prop_assert!(law.at(k) <= f64::from(k) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", numbers in "(linear|amdahl|power|curve):[-0-9eE.,:naif]{0,30}") {
        for text in [text, numbers] {
            if let Ok(law) = text.parse::<Law>() {
                prop_assert!(law.at(3) > 0.0 && law.at(3).is_finite());
            }
        }
    }
}
