//! What a derived definition lacks: limits on names and numbers, rules, and a plain look.

use serde_json::{Map, Value, json};

use super::fixed::fixed_rules;
use super::rules::{QUEUE_RULES, RULES, Rule};
use super::{ElasticJob, schema_of};
use kube::Resource;

const VALIDATIONS: &str = "x-kubernetes-validations";

/// Most letters of a job's name: those of its pods come behind it, and a label has 63.
const JOB_NAME_MAX: u32 = 52;

/// Most letters of a queue's name.
const QUEUE_NAME_MAX: u32 = 63;

/// A name without dots, as a label of Kubernetes' may be.
const NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The largest integer that every reader of JSON keeps.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Completes a derived definition.
pub(super) fn finish(definition: &mut Value) {
    let is_job = definition["spec"]["names"]["kind"] == *ElasticJob::kind(&());
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    each(schema, &mut |node| {
        bounded(node);
        node.remove("title");
        // What is inside has defaults of its own, and they are written once.
        if node.get("default").is_some_and(Value::is_object) {
            node.insert("default".into(), json!({}));
        }
        if let Some(Value::String(text)) = node.get_mut("description") {
            *text = text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        }
    });
    let most = if is_job { JOB_NAME_MAX } else { QUEUE_NAME_MAX };
    schema["properties"]["metadata"] = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": most, "pattern": NAME } },
    });
    if is_job {
        add_rules(schema, RULES);
        let rules = fixed_rules().map(|(rule, message)| json!({ "rule": rule, "message": message }));
        append(schema, &[], rules);
    } else {
        add_rules(schema, QUEUE_RULES);
    }
}

fn add_rules<T>(schema: &mut Value, rules: &[Rule<T>]) {
    for rule in rules {
        append(schema, rule.node, std::iter::once(json!({ "rule": rule.cel, "message": rule.message })));
    }
}

fn append(schema: &mut Value, node: &[&str], rules: impl Iterator<Item = Value>) {
    let mut at = schema;
    for key in node {
        at = &mut at["properties"][*key];
    }
    let all = at[VALIDATIONS].as_array().into_iter().flatten().cloned().chain(rules);
    at[VALIDATIONS] = all.collect();
}

/// Takes the rules out of a definition.
pub(super) fn without_rules(definition: &mut Value) {
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    each(schema, &mut |node| drop(node.remove(VALIDATIONS)));
}

/// Visits a schema and all schemas in it.
pub(super) fn each(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(node) = schema.as_object_mut() else { return };
    visit(node);
    for (_, property) in node.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        each(property, visit);
    }
    for key in ["items", "additionalProperties"] {
        node.get_mut(key).into_iter().for_each(|schema| each(schema, visit));
    }
}

/// Gives an integer a format that Kubernetes knows and a maximum, so that what is accepted can be read: a number that
/// is too large for its type would make the object unreadable.
fn bounded(node: &mut Map<String, Value>) {
    let (format, most) = match node.get("format").and_then(Value::as_str) {
        Some("uint8") => ("int32", 255),
        Some("uint16") => ("int32", 65_535),
        Some("uint32") => ("int32", i32::MAX as u64),
        Some("uint" | "uint64") => ("int64", EXACT_MAX),
        _ => return,
    };
    let most = node.get("maximum").and_then(Value::as_f64).map_or(most as f64, |own| own.min(most as f64));
    node.insert("format".into(), json!(format));
    node.insert("maximum".into(), json!(most));
}

/// The schema of a definition that was [finished](finish).
pub(super) fn finished(definition: &impl serde::Serialize) -> Value {
    let mut definition = serde_json::to_value(definition).unwrap_or_default();
    finish(&mut definition);
    schema_of(&definition).clone()
}
