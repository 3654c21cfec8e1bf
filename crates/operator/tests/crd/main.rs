//! The custom resources: what a server is given, what objects of other versions become, and what is wrong with others.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod chart;
mod golden;
mod objects;
mod pages;
mod queues;
mod rules;
mod structural;
mod updates;

use bellwether_operator::crd::{ElasticJob, FieldError, check, definitions};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The schema of a kind of object, as a server gets it.
fn schema(kind: &str) -> Value {
    let all = definitions(true).into_iter().map(|definition| serde_json::to_value(definition).unwrap());
    let mut of_kind = all.filter(|definition| definition["spec"]["names"]["kind"] == kind);
    of_kind.next().expect(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// An object as a server completes it: it fills defaults into what it filled in by default, too, which `kube_cel` does
/// not do at once.
fn filled(object: &Value) -> Value {
    static SCHEMAS: LazyLock<[(&str, Value); 2]> =
        LazyLock::new(|| ["ElasticJob", "Queue"].map(|kind| (kind, schema(kind))));
    let schema =
        SCHEMAS.iter().find(|(kind, _)| object["kind"] == *kind).map(|(_, schema)| schema).expect("a kind");
    let mut filled = object.clone();
    loop {
        let next = kube_cel::apply_defaults(schema, &filled);
        if next == filled {
            return filled;
        }
        filled = next;
    }
}

/// A small job file.
fn digits() -> Value {
    json!({
        "steps": 100,
        "model": {"kind": "mlp", "hidden": [8]},
        "data": {"kind": "digits"},
        "batch": {"size": 64, "virtual_nodes": 8},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    })
}

/// A template whose first container has a command.
fn template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "user:1", "command": ["python", "train.py"]}]}})
}

/// An object with this specification.
fn object(spec: Value) -> Value {
    json!({
        "apiVersion": "train.bellwether.dev/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": "digits", "namespace": "team-a"}, "spec": spec,
    })
}

#[track_caller]
fn job(spec: Value) -> ElasticJob {
    serde_json::from_value(object(spec)).expect("it can be read")
}

/// What is wrong with a specification.
#[track_caller]
fn wrong(spec: Value) -> Vec<FieldError> {
    check(&job(spec)).expect_err("something is wrong")
}

/// The same object, changed at places such as `/elastic/minReplicas`; `null` takes a field away.
fn with(mut value: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, new) in changes {
        let mut at = &mut value;
        let (parents, last) = pointer.rsplit_once('/').expect("a pointer has a slash");
        for part in parents.split('/').skip(1) {
            at = match part.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[part],
            };
        }
        match at.as_object_mut() {
            Some(object) if new.is_null() => drop(object.remove(last)),
            _ => at[last] = new.clone(),
        }
    }
    value
}
