//! Measured tables: cells of the published files, values between them by hand, and every text is read or refused.

use bellwether_core::prediction::{
    Configuration, DeviceGroup, JobDescription, Link, Prediction, StepModel, Validity,
};
use bellwether_model::throughput_table::{ElasticFlowTables, GavelTable};
use proptest::prelude::*;

use crate::tables;

const GAVEL: &str = tables::data!("gavel/simulation_throughputs.json");

fn job(model: &str, batch: u64) -> JobDescription {
    JobDescription { name: "j".into(), model: model.into(), batch, devices: 1 }
}

fn on(groups: &[(u32, &str, u32)], batch: u64) -> Configuration {
    let group = |(node, device, count): &(u32, &str, u32)| DeviceGroup {
        node: *node,
        device: device.to_string(),
        count: *count,
    };
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    Configuration::synchronous(groups.iter().map(group).collect(), batch, link)
}

fn is_lawful(p: &Prediction) -> bool {
    let fits = |value: f64| value.is_finite() && value > 0.0;
    [p.low, p.examples_per_s, p.high, p.step_s].into_iter().all(fits)
        && p.low <= p.examples_per_s
        && p.examples_per_s <= p.high
}

#[test]
fn gavel_cells_are_steps_per_second() {
    let table = GavelTable::parse(GAVEL.as_bytes(), "gavel.json").unwrap();
    assert_eq!(table.device_types().collect::<Vec<_>>(), ["k80", "p100", "v100"]);
    let job = job("ResNet-18 (batch size 16)", 16);
    // A line of the file: the step, not its samples, is what is counted.
    let found = table.predict(&job, &on(&[(0, "k80", 1)], 16)).unwrap();
    assert_eq!(found.examples_per_s, 4.795294551566172);
    assert_eq!((found.step_s, found.validity), (1.0 / 4.795294551566172, Validity::Interpolated));
    let p100 = table.predict(&job, &on(&[(0, "p100", 1)], 16)).unwrap();
    assert_eq!(p100.examples_per_s, 35.869203207990005);
}

#[test]
fn spread_devices_are_told_apart_only_when_asked() {
    let table = GavelTable::parse(GAVEL.as_bytes(), "gavel.json").unwrap();
    let job = job("LM (batch size 80)", 1);
    let (near, far) = (on(&[(0, "v100", 4)], 1), on(&[(0, "v100", 2), (3, "v100", 2)], 1));
    let near_rate = table.predict(&job, &near).unwrap().examples_per_s;
    assert_eq!(table.predict(&job, &far).unwrap().examples_per_s, near_rate);
    let table = table.by_nodes();
    assert_eq!(table.predict(&job, &near).unwrap().examples_per_s, near_rate);
    let far_rate = table.predict(&job, &far).unwrap().examples_per_s;
    assert_eq!(far_rate, table.steps_per_s("v100", "LM (batch size 80)", 4, true).unwrap());
    assert!(far_rate < near_rate, "{far_rate} {near_rate}");
}

#[test]
fn a_mixed_gang_goes_as_its_slowest_type_and_says_so() {
    let table = GavelTable::parse(GAVEL.as_bytes(), "gavel.json").unwrap();
    let job = job("Transformer (batch size 32)", 1);
    let mixed = table.predict(&job, &on(&[(0, "v100", 1), (1, "k80", 1)], 1)).unwrap();
    let slow = table.predict(&job, &on(&[(1, "k80", 2)], 1)).unwrap();
    assert_eq!(mixed.examples_per_s, slow.examples_per_s);
    assert!(matches!(mixed.validity, Validity::Extrapolated(why) if why.contains("several types")));
}

#[test]
fn what_gavel_did_not_measure_is_refused_with_what_was() {
    let table = GavelTable::parse(GAVEL.as_bytes(), "gavel.json").unwrap();
    let error = |model: &str, device: &str, count| {
        table.predict(&job(model, 1), &on(&[(0, device, count)], 1)).unwrap_err().to_string()
    };
    let said = error("Transformer (batch size 32)", "v100", 3);
    assert_eq!(said, "`Transformer (batch size 32)` was measured on 1, 2, 4, 8 v100, not on 3");
    // The file gives 0 steps/s there.
    assert!(error("ResNet-50 (batch size 128)", "k80", 2).contains("does not run on 2 k80"));
    assert!(
        error("Transformer (batch size 23)", "v100", 1).contains("did you mean `Transformer (batch size")
    );
    assert!(error("A3C", "v10", 1).contains("did you mean `v100`"));
}

#[test]
fn gavel_texts_that_are_no_table_are_refused() {
    let error = |text: &str| GavelTable::parse(text.as_bytes(), "t.json").unwrap_err();
    assert_eq!(error("").place, "t.json");
    assert!(error("{}").what.contains("empty"));
    assert!(error(r#"{"v100": {"A3C": {"null": 1}}}"#).place.contains("v100: A3C"));
    assert!(error(r#"{"v100": {"('A3C', 0)": {"null": 1}}}"#).what.contains("names no kind"));
    assert!(error(r#"{"v100": {"('A3C', 1)": {"null": -1}}}"#).what.contains("-1"));
    assert!(error(r#"{"v100": {"('A3C', 1)": {"null": "x"}}}"#).what.contains("line 1"));
}

fn elasticflow() -> ElasticFlowTables {
    let mut found = ElasticFlowTables::default();
    for (device, network, csv) in tables::ELASTICFLOW {
        found.add(device, network, csv, &format!("{device}/{network}.csv")).unwrap();
    }
    found
}

#[test]
fn every_measured_cell_comes_back() {
    let found = elasticflow();
    let mut cells = 0;
    for (device, network, csv) in tables::ELASTICFLOW {
        for (batch, row) in tables::elasticflow(csv, 8) {
            let p = found.predict(&job(network, batch), &on(&[(0, device, row.replicas)], batch)).unwrap();
            assert!((p.step_s / row.step_s - 1.0).abs() < 1e-12, "{device} {network} {batch} {row:?}");
            assert!((p.examples_per_s * row.step_s / batch as f64 - 1.0).abs() < 1e-12);
            assert_eq!(p.validity, Validity::Interpolated);
            cells += 1;
        }
    }
    assert_eq!(cells, 169);
}

#[test]
fn between_cells_by_hand() {
    let mut found = ElasticFlowTables::default();
    found.add("A", "net", "global_batch_size,1,4\n64,2,4\n256,1,\n", "net.csv").unwrap();
    let at = |count, batch| found.examples_per_s("A", "net", count, batch).unwrap();
    // Steps of 0.5 and 1 s: the geometric mean at the geometric mean.
    assert!((at(1, 128).0 - 128.0 / 0.5f64.sqrt()).abs() < 1e-9);
    // 128 samples/s on one device and 256 on four: their geometric mean on two.
    assert!((at(2, 64).0 - 128.0 * 2f64.sqrt()).abs() < 1e-9);
    assert_eq!(at(2, 64).1, None);
    // Below the smallest batch a step is no shorter, above the largest a sample is no faster.
    assert_eq!(at(1, 32).0, 64.0);
    assert_eq!(at(1, 512), (256.0, Some("no batch beyond 256 samples was measured".into())));
    assert_eq!(at(4, 256).0, 256.0);
    // On two devices the larger batch was measured on one side only.
    assert!(at(2, 256).1.is_some());
    let error = found.examples_per_s("A", "net", 8, 64).unwrap_err().to_string();
    assert_eq!(error, "`net` was measured on 1, 4 A, not on 8");
    assert!(found.examples_per_s("A", "ne", 1, 64).unwrap_err().to_string().contains("did you mean `net`"));
    assert!(found.examples_per_s("B", "net", 1, 64).unwrap_err().to_string().contains("expected one of A"));
    assert!(found.examples_per_s("A", "net", 1, 0).is_err());
}

#[test]
fn elasticflow_texts_that_are_no_table_are_refused() {
    let error = |csv: &str| ElasticFlowTables::default().add("A", "net", csv, "net.csv").unwrap_err();
    assert_eq!(error("").place, "net.csv, line 1");
    assert_eq!(error("batch,one\n64,1\n").place, "net.csv, line 1");
    assert_eq!(error("batch,1\n64,1\nx,1\n").place, "net.csv, line 3");
    assert_eq!(error("batch,1\n64,1,2\n").place, "net.csv, line 2");
    assert!(error("batch,1\n64,-1\n").what.contains("`-1`"));
    assert!(error("batch,1\n64,inf\n").what.contains("`inf`"));
    assert!(error("batch,1\n64,1\n64,2\n").what.contains("two rows of batch 64"));
    assert!(error("batch,1\n64,nan\n").what.contains("no cell"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn predictions_are_lawful(table in 0usize..13, count in 0u32..80, batch in 0u64..) {
        let found = elasticflow();
        let (device, network, _) = tables::ELASTICFLOW[table];
        if let Ok(p) = found.predict(&job(network, batch), &on(&[(0, device, count)], batch)) {
            prop_assert!(is_lawful(&p), "{p:?}");
        }
    }

    #[test]
    fn no_text_panics(
        text in ".{0,80}",
        csv in "[a-z]{1,3}(,[0-9]{0,3}){0,4}\n([0-9]{0,5}(,[-0-9.enai]{0,6}){0,4}\n){0,4}",
        json in r#"\{("v"|"w_unconsolidated"): ?\{"(\('x', [0-9]\)|y)": ?\{("null": ?[-0-9e.]{1,5})?\}?\}\}"#,
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        for text in [&text, &csv] {
            let mut found = ElasticFlowTables::default();
            if found.add("A", "net", text, "net.csv").is_ok()
                && let Ok(p) = found.predict(&job("net", 7), &on(&[(0, "A", 2)], 7)) {
                prop_assert!(is_lawful(&p), "{p:?}");
            }
        }
        let bytes = [text.as_bytes(), json.as_bytes(), &bytes];
        for bytes in bytes {
            if let Ok(table) = GavelTable::parse(bytes, "t.json")
                && let Ok(p) = table.predict(&job("x", 1), &on(&[(0, "v", 2)], 1)) {
                prop_assert!(is_lawful(&p), "{p:?}");
            }
        }
    }
}
