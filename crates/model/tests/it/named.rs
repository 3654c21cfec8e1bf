//! Models by name, and models with a known error.

use std::collections::BTreeMap;

use bellwether_core::prediction::{Configuration, DeviceGroup, JobDescription, Link, StepModel};
use bellwether_model::biased::Biased;
use bellwether_model::named::ModelSpec;
use bellwether_model::speedup::{Law, Speedup};
use proptest::prelude::*;

fn job(model: &str, devices: u32) -> JobDescription {
    JobDescription { name: "j".into(), model: model.into(), batch: 1, devices }
}

fn on(count: u32) -> Configuration {
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    Configuration::synchronous(vec![DeviceGroup { node: 0, device: "x".into(), count }], 1, link)
}

fn biased(error: f64, seed: u64) -> Biased<dyn StepModel + Send + Sync> {
    let linear: Box<dyn StepModel + Send + Sync> =
        Box::new(Speedup::new(Law::Linear, BTreeMap::new()).unwrap());
    Biased::new(linear, error, seed).unwrap()
}

#[test]
fn every_word_comes_back() {
    let words = [
        "linear",
        "amdahl:0.1",
        "power:0.5",
        "curve:10,20,30",
        "gavel:a/b.json",
        "gavel_by_nodes:a/b.json",
        "gavel_colocated:a/b.json",
        "elasticflow:data/elasticflow",
        "goodput:C:/tables",
        "measured:data/pollux-tables",
        "profiles:my/profiles",
        "fitted:fitted.json",
        "noisy:0.2:goodput:data/pollux-tables",
        "noisy:0:curve:1,2",
    ];
    for word in words {
        assert_eq!(word.parse::<ModelSpec>().unwrap().to_string(), word);
    }
    assert_eq!("declared".parse(), Ok(ModelSpec::Law(Law::Linear)));
    assert_eq!("goodput:C:/tables".parse(), Ok(ModelSpec::Goodput("C:/tables".into())));
}

#[test]
fn wrong_words_are_explained() {
    let error = |text: &str| text.parse::<ModelSpec>().unwrap_err().to_string();
    assert!(error("gavl:x").contains("did you mean `gavel`"), "{}", error("gavl:x"));
    assert!(error("magic").contains("expected one of declared, linear"), "{}", error("magic"));
    assert!(error("gavel").contains("expected gavel:FILE"));
    assert!(error("goodput:").contains("expected goodput:FOLDER"));
    assert!(error("declared:2").contains("without a parameter"));
    assert!(error("amdahl:2").contains("from 0 to 1"));
    assert!(error("noisy:0.2").contains("noisy:E:MODEL"));
    assert!(error("noisy:-1:linear").contains("from 0 to 3"));
    assert!(error("noisy:0.1:noisy:0.1:linear").contains("not noisy itself"));
    assert!(error("noisy:0.1:linaer").contains("did you mean `linear`"));
}

#[test]
fn the_error_is_a_fixed_factor_of_kind_and_count() {
    let model = biased(0.2, 7);
    let wrong = |kind: &str, count| model.predict(&job(kind, 1), &on(count)).unwrap();
    let found = wrong("a", 4);
    assert_eq!(found, wrong("a", 4));
    assert_eq!(found.examples_per_s, 4.0 * model.factor("a", 4));
    assert!((found.step_s * found.examples_per_s - 1.0).abs() < 1e-12);
    assert_ne!(model.factor("a", 4), model.factor("a", 5));
    assert_ne!(model.factor("a", 4), model.factor("b", 4));
    assert_ne!(model.factor("a", 4), biased(0.2, 8).factor("a", 4));
    let best = model.best_batch(&job("a", 1), &on(4), 0.0).unwrap();
    assert_eq!((best.examples_per_s, best.batch), (found.examples_per_s, 1));
    assert_eq!(biased(0.0, 7).factor("a", 4), 1.0);
    for error in [-0.1, 3.1, f64::NAN] {
        assert!(
            Biased::new(Box::new(Speedup::new(Law::Linear, BTreeMap::new()).unwrap()), error, 1).is_err()
        );
    }
}

#[test]
fn the_factors_spread_as_stated() {
    let model = biased(0.2, 1);
    let logarithms: Vec<f64> = (1..=10_000).map(|count| model.factor("a", count).ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / 1e4;
    let spread = (logarithms.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
    // Standard errors: 0.002 of the mean, 0.0014 of the spread.
    assert!(mean.abs() < 0.01, "{mean}");
    assert!((spread - 0.2).abs() < 0.007, "{spread}");
}

proptest! {
    #[test]
    fn predictions_with_errors_are_lawful(error in 0.0f64..3.0, seed in any::<u64>(), count in 1u32.., kind in ".{0,9}") {
        let found = biased(error, seed).predict(&job(&kind, 3), &on(count)).unwrap();
        let fits = |value: f64| value.is_finite() && value > 0.0;
        prop_assert!([found.low, found.examples_per_s, found.high, found.step_s].into_iter().all(fits));
        prop_assert!(found.low <= found.examples_per_s && found.examples_per_s <= found.high);
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", words in "(noisy|gavel|curve|declared|:|0\\.2|goodput|,){0,8}") {
        for text in [text, words] {
            if let Ok(named) = text.parse::<ModelSpec>() {
                prop_assert_eq!(named.to_string().parse(), Ok(named));
            }
        }
    }
}
