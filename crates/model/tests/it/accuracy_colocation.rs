//! Measured slowdowns of jobs that share a device, which the model was not fitted to (Gavel's table, three devices).

use crate::tables::colocation::{DEVICES, Rule, by_model, by_pair, measured, rooms_by_model, rooms_by_pair};

const MODEL: Rule = Rule::Demands(3);

#[test]
fn held_out_pairs_are_foreseen_better_than_by_any_simpler_rule() {
    for device in DEVICES {
        let measured = measured(device);
        assert_eq!((measured.kinds.len(), measured.pairs.len()), (26, 351));
        let ours = by_pair(&measured, MODEL);
        for rule in [Rule::NoInterference, Rule::Mean, Rule::Additive] {
            let simple = by_pair(&measured, rule);
            assert_eq!(ours.all().len(), simple.all().len());
            assert!(ours.mean() < simple.mean(), "{device}, {rule:?}: {} {}", ours.mean(), simple.mean());
            // Not by luck of the pairs.
            assert!(ours.beats(&simple) > 0.99, "{device}, {rule:?}: {}", ours.beats(&simple));
        }
    }
}

#[test]
fn held_out_models_are_foreseen_better_than_by_any_simpler_rule() {
    for device in DEVICES {
        let measured = measured(device);
        for probes in [0, 1, 3] {
            let ours = by_model(&measured, MODEL, probes);
            assert_eq!(ours.0.len(), 7, "models");
            for rule in [Rule::NoInterference, Rule::Mean, Rule::Additive] {
                let simple = by_model(&measured, rule, probes);
                assert_eq!(ours.all().len(), simple.all().len());
                let (ours, simple) = (ours.mean(), simple.mean());
                assert!(ours < simple, "{device}, {probes} probes, {rule:?}: {ours} {simple}");
            }
        }
    }
}

#[test]
fn probes_bring_newcomers_nearer() {
    for device in DEVICES {
        let measured = measured(device);
        let [blind, three] = [0, 3].map(|probes| by_model(&measured, MODEL, probes).mean());
        assert!(three < blind, "{device}: {three} after three probes, {blind} before");
    }
}

/// Better than to say that all have room, where enough have none for it to be learnt.
#[test]
fn who_has_no_room_is_foreseen_on_small_devices() {
    let [k80, p100] = ["k80", "p100"].map(|device| rooms_by_pair(&measured(device)));
    for rooms in [k80, p100] {
        assert!(rooms.accuracy() > rooms.base_rate(), "{rooms:?}");
    }
    let probed = rooms_by_model(&measured("k80"), 3);
    assert!(probed.accuracy() > probed.base_rate(), "{probed:?}");
}
