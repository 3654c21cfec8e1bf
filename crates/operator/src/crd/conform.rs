//! Whether an object is as its schema wants it. An API server has checked this, but perhaps by an older schema.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::schema::{each, finished};
use super::{ElasticJob, FieldError};
use kube::CustomResourceExt;

type Object = Map<String, Value>;

/// The schema of `ElasticJob`.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| finished(&ElasticJob::crd()));

/// The patterns in it, compiled.
static PATTERNS: LazyLock<BTreeMap<String, Regex>> = LazyLock::new(|| {
    let mut patterns = BTreeMap::new();
    each(&mut SCHEMA.clone(), &mut |node| {
        let compiled =
            node.get("pattern").and_then(Value::as_str).and_then(|text| Some((text, Regex::new(text).ok()?)));
        patterns.extend(compiled.map(|(text, regex)| (text.to_owned(), regex)));
    });
    patterns
});

/// What of a job is not as its schema wants it. Places that the schema leaves open are not looked at.
pub(super) fn check(job: &ElasticJob) -> Vec<FieldError> {
    let value = serde_json::to_value(job).unwrap_or_default();
    let mut errors = Vec::new();
    walk(&SCHEMA, &value, "", &mut errors);
    errors
}

fn walk(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(schema) = schema.as_object() else { return };
    let is_open = schema.contains_key("x-kubernetes-preserve-unknown-fields");
    // What is absent is absent: `null` only comes from fields that may be.
    if is_open || value.is_null() {
        return;
    }
    let mut wrong = |what: String| errors.push(FieldError::new(path, what));
    match value {
        Value::String(text) => string(schema, text, &mut wrong),
        Value::Number(number) => {
            bounds(schema, number.as_f64().unwrap_or(f64::NAN), "", ["minimum", "maximum"], &mut wrong)
        }
        Value::Array(values) => {
            bounds(schema, values.len() as f64, " entries", ["minItems", "maxItems"], &mut wrong);
            for (index, value) in values.iter().enumerate() {
                walk(&schema["items"], value, &format!("{path}[{index}]"), errors);
            }
        }
        Value::Object(object) => {
            bounds(schema, object.len() as f64, " entries", ["minProperties", "maxProperties"], &mut wrong);
            members(schema, object, path, errors);
        }
        Value::Bool(_) | Value::Null => {}
    }
}

fn members(schema: &Object, object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let required = schema.get("required").and_then(Value::as_array);
    for key in required.into_iter().flatten().filter_map(Value::as_str) {
        if object.get(key).is_none_or(Value::is_null) {
            errors.push(FieldError::new(below(key), "it is missing"));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, value) in object {
        let property = properties.and_then(|properties| properties.get(key));
        if let Some(property) = property.or_else(|| schema.get("additionalProperties")) {
            walk(property, value, &below(key), errors);
        }
    }
}

fn string(schema: &Object, text: &str, wrong: &mut impl FnMut(String)) {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        if !words.iter().any(|word| word == text) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let known = words.join(", ");
            // The word itself was lost when the object was read.
            wrong(match text {
                "Unknown" | "unknown" => format!("a word that this version does not know: it knows {known}"),
                _ => format!("`{text}` is none of {known}"),
            });
        }
        return;
    }
    let letters = text.chars().count();
    bounds(schema, letters as f64, " letters", ["minLength", "maxLength"], wrong);
    let pattern = schema.get("pattern").and_then(Value::as_str);
    if let Some(pattern) = pattern
        && PATTERNS.get(pattern).is_some_and(|regex| !regex.is_match(text))
    {
        wrong(format!("`{text}` does not fit {pattern}"));
    }
}

fn bounds(
    schema: &Object,
    number: f64,
    unit: &str,
    [least, most]: [&str; 2],
    wrong: &mut impl FnMut(String),
) {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let is_exclusive = schema.get("exclusiveMinimum") == Some(&Value::Bool(true));
    if let Some(least) = bound(least)
        && (number < least || (is_exclusive && number == least))
    {
        let than = if is_exclusive { "more than" } else { "at least" };
        wrong(format!("{number}{unit}, and it has to be {than} {least}"));
    }
    if let Some(most) = bound(most)
        && number > most
    {
        wrong(format!("{number}{unit}, and it may be {most} at most"));
    }
}
