//! `deploy/crds.yaml` is what the program prints.
//!
//! Where a change is wanted, `BELLWETHER_SNAPSHOTS=write cargo test --release -p bellwether-operator --test crd
//! golden::` writes it, and the difference is read like any other.

use std::path::Path;

use bellwether_operator::crd::{crds, definitions};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds.yaml");

/// Bytes that an object may have for `kubectl apply` to note down what was applied.
const APPLIED_MAX: usize = 262_144;

#[test]
fn the_file_for_installing_is_what_the_program_prints() {
    let text = crds(true);
    if std::env::var("BELLWETHER_SNAPSHOTS").is_ok_and(|value| value == "write") {
        std::fs::write(Path::new(FILE), &text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).position(|(kept, found)| kept != found);
    let line = differs.or((kept != text).then(|| kept.lines().count().min(text.lines().count())));
    let hint = "where that is wanted, set BELLWETHER_SNAPSHOTS=write and test again";
    assert_eq!(line.map(|line| line + 1), None, "deploy/crds.yaml differs from this line on; {hint}");
}

#[test]
fn the_text_is_yaml_and_says_what_the_definitions_say() {
    for rules in [true, false] {
        let text = crds(rules);
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        let said: Vec<Value> =
            definitions(rules).iter().map(|definition| serde_json::to_value(definition).unwrap()).collect();
        // YAML does not tell 1 from 1.0.
        let plain = |value: &Value| numbers_as_floats(value.clone());
        assert_eq!(read.iter().map(plain).collect::<Vec<_>>(), said.iter().map(plain).collect::<Vec<_>>());
    }
}

fn numbers_as_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(values) => values.into_iter().map(numbers_as_floats).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (key, numbers_as_floats(value))).collect()
        }
        other => other,
    }
}

#[test]
fn rules_are_left_out_for_old_servers_and_nothing_else_is() {
    let [with, without] = [true, false].map(|rules| json!(definitions(rules)));
    fn drop_rules(value: &mut Value) -> usize {
        match value {
            Value::Object(object) => {
                let own = object
                    .remove("x-kubernetes-validations")
                    .map_or(0, |rules| rules.as_array().unwrap().len());
                own + object.values_mut().map(drop_rules).sum::<usize>()
            }
            Value::Array(values) => values.iter_mut().map(drop_rules).sum(),
            _ => 0,
        }
    }
    let mut dropped = with.clone();
    assert!(drop_rules(&mut dropped) > 30);
    assert_eq!(dropped, without);
}

#[test]
fn kubectl_apply_can_note_the_definitions_down() {
    for definition in definitions(true) {
        let bytes = serde_json::to_string(&definition).unwrap().len();
        assert!(bytes < APPLIED_MAX / 2, "{bytes} bytes");
    }
}

#[test]
fn columns_and_subresources_name_fields_that_exist() {
    for definition in definitions(true) {
        let version = &definition.spec.versions[0];
        let schema = super::schema(&definition.spec.names.kind);
        let exists = |path: &str| {
            let plain = path.split("[?").next().unwrap();
            let mut parts = plain.split('.').skip(1);
            plain == ".metadata.creationTimestamp"
                || parts.try_fold(&schema, |at, part| at["properties"].get(part)).is_some()
        };
        let columns = version.additional_printer_columns.iter().flatten();
        let mut paths: Vec<String> = columns.map(|column| column.json_path.clone()).collect();
        let subresources = version.subresources.as_ref().unwrap();
        assert!(subresources.status.is_some());
        if let Some(scale) = &subresources.scale {
            paths.extend([scale.spec_replicas_path.clone(), scale.status_replicas_path.clone()]);
            paths.extend(scale.label_selector_path.clone());
        }
        for path in paths {
            assert!(exists(&path), "{path}");
        }
    }
    assert_eq!(
        super::schema("ElasticJob")["properties"]["spec"]["properties"]["elastic"]["properties"]["replicas"]
            ["type"],
        "integer"
    );
}
