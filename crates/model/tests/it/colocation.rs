//! Laws of the model of jobs that share a device, and of the table that it is fitted to.

use bellwether_core::prediction::{Configuration, DeviceGroup, JobDescription, Link, StepModel};
use bellwether_model::biased::Biased;
use bellwether_model::colocation::{
    Colocated, Demand, Newcomers, Pair, Probe, RESOURCES, fit, probed, share, together,
};
use proptest::prelude::*;

use crate::tables::colocation::table;

fn job(model: &str) -> JobDescription {
    JobDescription { name: "j".into(), model: model.into(), batch: 1, devices: 1 }
}

fn on(device: &str, count: u32) -> Configuration {
    let group = DeviceGroup { node: 0, device: device.into(), count };
    Configuration::synchronous(vec![group], 1, Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 })
}

#[test]
fn the_table_says_what_its_file_says() {
    let table = table();
    let (small, large) = (job("ResNet-18 (batch size 16)"), job("ResNet-50 (batch size 128)"));
    // 2.410 of 4.795 steps per second.
    let kept = table.shared(&small, &on("k80", 1), &small).unwrap().unwrap();
    assert!((kept - 0.5025).abs() < 5e-4, "{kept}");
    assert_eq!(table.shared(&small, &on("k80", 1), &large), Ok(None));
    // No gang was measured that shares.
    assert_eq!(table.shared(&small, &on("k80", 2), &small), Ok(None));
    assert!(table.shared(&small, &on("k80", 1), &job("unknown")).is_err());
    // An error of speeds is none of shares.
    let biased = Biased::new(Box::new(table.clone()), 0.3, 1).unwrap();
    assert_eq!(biased.shared(&small, &on("k80", 1), &small), Ok(Some(kept)));
}

#[test]
fn a_fitted_table_answers_within_the_law() {
    let table = table();
    // Everything with a Transformer is held out.
    let kept = |_: &str, kinds: [&str; 2]| !kinds.iter().any(|kind| kind.starts_with("Transformer"));
    let believed = Colocated::fit(table.clone(), kept).unwrap();
    for device in ["k80", "p100", "v100"] {
        let kinds: Vec<JobDescription> = table.kinds(device).map(job).collect();
        for a in &kinds {
            for b in &kinds {
                let ab = believed.shared(a, &on(device, 1), b).unwrap();
                let ba = believed.shared(b, &on(device, 1), a).unwrap();
                assert_eq!(ab.is_some(), ba.is_some());
                assert!(ab.is_none_or(|kept| kept > 0.0 && kept <= 1.0));
            }
            assert_eq!(believed.predict(a, &on(device, 1)), table.predict(a, &on(device, 1)));
        }
    }
    assert_eq!(believed.shared(&job("A3C"), &on("k80", 2), &job("A3C")), Ok(None));
    assert!(Colocated::fit(table, |_, _| false).is_err());
}

#[test]
fn what_cannot_be_is_refused() {
    let pair = |jobs, shares| Pair { jobs, shares };
    assert!(fit(2, &[], 1).is_err());
    assert!(fit(2, &[pair([0, 1], None)], 1).is_err());
    assert!(fit(2, &[pair([0, 1], Some([0.5, 0.5]))], 0).is_err());
    assert!(fit(2, &[pair([0, 2], Some([0.5, 0.5]))], 1).unwrap_err().what.contains("no job 2"));
    for wrong in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        assert!(fit(2, &[pair([0, 1], Some([0.5, wrong]))], 1).is_err(), "{wrong}");
    }
    assert!(Newcomers::fit(&[], &[]).is_err());
}

/// Demands from which pairs are made.
fn demands() -> impl Strategy<Value = Vec<Demand>> {
    let one = (prop::collection::vec(0.1_f64..2.0, 2), prop::collection::vec(0.1_f64..2.0, 2), 0.1_f64..0.45);
    let one = one.prop_map(|(exposure, pressure, footprint)| Demand { exposure, pressure, footprint });
    prop::collection::vec(one, 8..14)
}

fn all_pairs(demands: &[Demand]) -> Vec<Pair> {
    let pair = |(a, b): (usize, usize)| Pair { jobs: [a, b], shares: together(&demands[a], &demands[b]) };
    (0..demands.len()).flat_map(|a| (a..demands.len()).map(move |b| (a, b))).map(pair).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// What is made of two resources is described by three, to the speed.
    #[test]
    fn invented_demands_come_back_as_their_speeds(demands in demands()) {
        let pairs = all_pairs(&demands);
        let found = fit(demands.len(), &pairs, RESOURCES).unwrap();
        let (mut sum, mut count) = (0.0, 0.0);
        for pair in &pairs {
            let [a, b] = pair.jobs;
            for (a, b) in [(a, b), (b, a)] {
                sum += (share(&demands[a], &demands[b]) / share(&found[a], &found[b])).ln().abs();
                count += 1.0;
            }
        }
        prop_assert!(sum / count < 0.02, "mean error {}", sum / count);
        prop_assert_eq!(&found, &fit(demands.len(), &pairs, RESOURCES).unwrap());
    }

    /// A share is within 0 and 1 whatever the pairs say, and a newcomer's too.
    #[test]
    fn any_pairs_give_lawful_shares(
        shares in prop::collection::vec((0_usize..6, 0_usize..6, 1e-6_f64..1.0, 1e-6_f64..1.0, any::<bool>()), 1..30),
        profile in prop::collection::vec(-1e9_f64..1e9, 6),
    ) {
        let mut pairs: Vec<Pair> = shares
            .iter()
            .map(|&(a, b, first, second, fits)| Pair { jobs: [a, b], shares: fits.then_some([first, second]) })
            .collect();
        pairs.push(Pair { jobs: [0, 1], shares: Some([0.5, 0.5]) });
        let found = fit(6, &pairs, RESOURCES).unwrap();
        let profiles: Vec<Vec<f64>> = profile.iter().map(|&x| vec![x]).collect();
        let expected = Newcomers::fit(&found, &profiles).unwrap().expect(&[profile[0] / 2.0]);
        let probe = |(place, pair): (usize, &Pair)| Probe { beside: &found[place % 6], shares: pair.shares };
        let probed = probed(&expected, &pairs.iter().enumerate().map(probe).collect::<Vec<_>>());
        for a in found.iter().chain([&expected, &probed]) {
            prop_assert!(a.footprint.is_finite());
            for b in found.iter().chain([&expected, &probed]) {
                let kept = share(a, b);
                prop_assert!(kept > 0.0 && kept <= 1.0, "{kept}: {a:?} {b:?}");
            }
        }
    }
}
