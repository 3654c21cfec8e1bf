//! A server takes a schema only if it is structural, as Kubernetes' page on custom resource definitions has it.

use bellwether_operator::crd::{ElasticJob, Queue};
use bellwether_testkit::Random;
use serde_json::{Map, Value, json};

use crate::schema;

const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Keys that a node may have. What is not here is unknown to servers, or forbidden.
const KEYS: [&str; 23] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

/// Formats that servers know.
const FORMATS: [&str; 4] = ["int32", "int64", "double", "date-time"];

/// What of a schema is not structural, or breaks a house rule.
fn faults(node: &Value, path: &str, found: &mut Vec<String>) {
    let Some(object) = node.as_object() else { return found.push(format!("{path}: not an object")) };
    let mut wrong = |what: &str| found.push(format!("{path}: {what}"));
    let has = |key: &str| object.contains_key(key);
    for key in object
        .keys()
        .filter(|key| !KEYS.contains(&key.as_str()) && ![OPEN, INT_OR_STRING].contains(&key.as_str()))
    {
        wrong(&format!("the key {key}"));
    }
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
    if !["object", "array", "string", "integer", "number", "boolean"].contains(&kind)
        && !has(OPEN)
        && !has(INT_OR_STRING)
    {
        wrong(&format!("the type {kind:?}"));
    }
    if has(INT_OR_STRING) && has("type") {
        wrong("a type beside int-or-string");
    }
    if has("properties") && has("additionalProperties") {
        wrong("properties beside additionalProperties");
    }
    if (kind == "array") != has("items")
        || (kind != "object" && (has("properties") || has("additionalProperties")))
    {
        wrong("what is inside does not fit the type");
    }
    let format = object.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| !FORMATS.contains(&format)) {
        wrong("an unknown format");
    }
    let keys = object.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    for key in keys.into_iter().flatten() {
        if !object["items"]["required"].as_array().is_some_and(|required| required.contains(key)) {
            wrong("the key of a list is not required");
        }
    }
    for name in object.get("required").and_then(Value::as_array).into_iter().flatten() {
        if object["properties"].get(name.as_str().unwrap_or_default()).is_none() {
            wrong(&format!("{name} is required and not there"));
        }
    }
    if let Some(default) = object.get("default") {
        mismatches(node, default, path, found);
    }
    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        faults(property, &format!("{path}.{name}"), found);
    }
    for key in ["items", "additionalProperties"] {
        object.get(key).into_iter().for_each(|node| faults(node, &format!("{path}.{key}"), found));
    }
}

/// Whether a default is what its own schema wants.
fn mismatches(node: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let is_of_type = match node["type"].as_str() {
        Some("object") => value.is_object() && node.get("required").is_none(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => false,
    };
    let is_word = node["enum"].as_array().is_none_or(|words| words.contains(value));
    if !is_of_type || !is_word || value.as_object().is_some_and(|value| !value.is_empty()) {
        found.push(format!("{path}: the default {value}"));
    }
}

#[test]
fn the_schemas_are_structural() {
    for kind in ["ElasticJob", "Queue"] {
        let schema = schema(kind);
        let mut found = Vec::new();
        faults(&schema, kind, &mut found);
        assert_eq!(found, [""; 0]);
        let metadata = schema["properties"]["metadata"]["properties"].as_object().unwrap();
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["name"], "nothing else of it may be limited");
    }
}

#[test]
fn every_field_has_a_description() {
    fn silent(node: &Value, path: &str, found: &mut Vec<String>) {
        for (name, property) in node["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            silent(property, &path, found);
            silent(&property["items"], &path, found);
        }
    }
    for kind in ["ElasticJob", "Queue"] {
        let mut found = Vec::new();
        silent(&schema(kind), kind, &mut found);
        let known = [".metadata", ".spec", ".status", ".name"];
        // The job file's own comments say what they say.
        found.retain(|path| {
            !path.starts_with("ElasticJob.spec.job") && !known.iter().any(|end| path.ends_with(end))
        });
        assert_eq!(found, [""; 0]);
    }
}

/// A random value that fits a schema, patterns apart.
fn value(node: &Value, random: &mut Random) -> Value {
    if node["nullable"] == true && random.chance(0.1) {
        return Value::Null;
    }
    if let Some(words) = node["enum"].as_array() {
        return words[random.below(words.len() as u64) as usize].clone();
    }
    let bound = |key: &str, otherwise: f64| node[key].as_f64().unwrap_or(otherwise);
    let mut number = |least: f64, most: f64| match random.below(4) {
        0 => least,
        1 => most,
        _ => (least + (most - least) * random.unit()).floor(),
    };
    match node["type"].as_str() {
        Some("integer") => json!(number(bound("minimum", -9e18), bound("maximum", 9e18)) as i64),
        Some("number") => json!(number(bound("minimum", -1e300), bound("maximum", 1e300))),
        Some("boolean") => json!(random.chance(0.5)),
        Some("string") => {
            json!("x".repeat(number(bound("minLength", 0.0), bound("maxLength", 8.0)) as usize))
        }
        Some("array") => {
            let length = number(bound("minItems", 0.0), bound("maxItems", 4.0).min(4.0));
            (0..length as u64).map(|_| value(&node["items"], random)).collect()
        }
        Some("object") => {
            let required: Vec<&str> =
                node["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let mut object = Map::new();
            for (name, property) in node["properties"].as_object().into_iter().flatten() {
                if required.contains(&name.as_str()) || random.chance(0.5) {
                    object.insert(name.clone(), value(property, random));
                }
            }
            if node["additionalProperties"].is_object() {
                object.insert("a".into(), value(&node["additionalProperties"], random));
            }
            if node[OPEN] == true {
                object.insert("unknownHere".into(), json!([1, {"a": null}]));
            }
            Value::Object(object)
        }
        _ => [json!(3), json!("3%"), json!(-9_000_000_000_000_i64)][random.below(3) as usize].clone(),
    }
}

/// An object that a server took and that cannot be read would hide all others.
#[test]
fn whatever_a_server_takes_can_be_read() {
    let (jobs, queues) = (schema("ElasticJob"), schema("Queue"));
    let mut random = Random::new(7);
    for _ in 0..3000 {
        let object = value(&jobs, &mut random);
        let read = serde_json::from_value::<ElasticJob>(with_metadata(object.clone()));
        assert!(read.is_ok(), "{read:?}\n{object:#}");
        // Nothing here panics, whatever is said.
        let _ = bellwether_operator::crd::check(&read.unwrap());
        let object = value(&queues, &mut random);
        let read = serde_json::from_value::<Queue>(with_metadata(object.clone()));
        assert!(read.is_ok(), "{read:?}\n{object:#}");
        let _ = bellwether_operator::crd::file(&[read.unwrap()]);
    }
}

fn with_metadata(mut object: Value) -> Value {
    object["metadata"] = json!({"name": "a", "namespace": "b"});
    object
}
