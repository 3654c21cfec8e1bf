//! What of a job cannot be changed once it was accepted.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bellwether_operator::crd::{ElasticJob, check, check_update, fixed};
use kube_cel::{CompiledSchema, compile_schema};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rules::{by_cel, spec};
use crate::{digits, job, object, schema, with};

static JOBS: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&schema("ElasticJob")));

/// The same job, as it is once it was accepted.
fn accepted(spec: &Value) -> Value {
    with(object(spec.clone()), &[("/status", json!({"fixed": fixed(&job(spec.clone()).spec)}))])
}

fn read(object: &Value) -> ElasticJob {
    serde_json::from_value(object.clone()).expect("it can be read")
}

/// What CEL says against a change.
fn refused(new: &Value, old: &Value) -> BTreeSet<String> {
    let mut messages = by_cel(&JOBS, new, Some(old));
    messages.retain(|message| message.contains("cannot be changed"));
    messages
}

#[test]
fn an_accepted_job_keeps_what_it_was_and_limits_move() {
    let before = json!({
        "job": digits(), "queue": "a", "deadlineSeconds": 60, "profileRef": {"name": "p"},
        "elastic": {"minReplicas": 1, "maxReplicas": 4}, "checkpoint": {"volumeClaim": "c", "path": "x"},
    });
    let old = accepted(&before);
    for (pointer, new) in [
        ("/job/seed", json!(7)),
        ("/queue", json!("b")),
        ("/queue", Value::Null),
        ("/deadlineSeconds", json!(61)),
        ("/profileRef/name", json!("q")),
        ("/managedBy", json!("kueue.x-k8s.io/multikueue")),
        ("/worker", json!({"slotsPerPod": 2})),
        ("/checkpoint/volumeClaim", json!("d")),
        ("/checkpoint/path", json!("y")),
        ("/checkpoint/url", json!("s3://bucket/a")),
        ("/checkpoint", Value::Null),
    ] {
        let spec = with(before.clone(), &[(pointer, new)]);
        let changed = with(old.clone(), &[("/spec", spec.clone())]);
        let cel = refused(&changed, &old);
        assert!(!cel.is_empty(), "{pointer}");
        let errors = check_update(&read(&old), &read(&changed)).expect_err(pointer);
        let field = format!("spec{}", pointer.replace('/', "."));
        assert!(
            errors.iter().any(|error| field.starts_with(&error.field) || error.field.starts_with(&field))
        );
        // An operator that sees only what is there now finds it, too.
        let found = check(&read(&changed)).expect_err(pointer);
        assert!(errors.iter().all(|error| found.contains(error)), "{found:?}");
        // And before the job was accepted, everything may change.
        assert_eq!(refused(&object(spec.clone()), &object(before.clone())), BTreeSet::new());
        assert_eq!(check_update(&job(before.clone()), &job(spec)), Ok(()));
    }
    for (pointer, new) in [
        ("/elastic/minReplicas", json!(2)),
        ("/elastic/maxReplicas", json!(8)),
        ("/elastic/replicas", json!(3)),
        ("/weight", json!(2.5)),
        ("/suspend", json!(true)),
        ("/worker", json!({"template": crate::template()})),
        ("/checkpoint/intervalSeconds", json!(5)),
        ("/failurePolicy", json!({"maxRestarts": 1})),
    ] {
        let changed = with(old.clone(), &[("/spec", with(before.clone(), &[(pointer, new)]))]);
        assert_eq!(refused(&changed, &old), BTreeSet::new(), "{pointer}");
        assert_eq!(check_update(&read(&old), &read(&changed)), Ok(()), "{pointer}");
        assert!(check(&read(&changed)).is_ok(), "{pointer}: {:?}", check(&read(&changed)));
    }
}

#[test]
fn what_an_earlier_version_did_not_fix_is_free() {
    let spec = json!({"job": digits(), "queue": "a"});
    let mut old = accepted(&spec);
    old["status"]["fixed"].as_object_mut().unwrap().remove("queue");
    let changed = with(old.clone(), &[("/spec/queue", json!("b"))]);
    assert!(check(&read(&changed)).is_ok());
    // Nor does the order of keys matter, or a field of which only another version knows.
    old["status"]["fixed"]["colour"] = json!("red");
    assert!(check(&read(&old)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn rust_and_cel_agree_on_changes(old in spec(), new in spec()) {
        let old_object = accepted(&old);
        let new_object = with(old_object.clone(), &[("/spec", new)]);
        let errors = check_update(&read(&old_object), &read(&new_object)).err().into_iter().flatten();
        let rust: BTreeSet<String> = errors.map(|error| error.what).collect();
        prop_assert_eq!(refused(&new_object, &old_object), rust);
    }
}
