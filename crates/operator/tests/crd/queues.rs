//! Queues: one tree of many objects, and whose jobs may wait where.

use std::collections::BTreeSet;

use bellwether_core::queue::{Measure, Quantity, QueueTree};
use bellwether_operator::crd::{ElasticJob, Queue, file, queue_of};
use kube_cel::compile_schema;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rules::by_cel;
use crate::{object, schema, with};

fn queue_object(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "train.bellwether.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
    })
}

fn queue(name: &str, spec: Value) -> Queue {
    serde_json::from_value(queue_object(name, spec)).expect("it can be read")
}

fn job_in(queue: Value, namespace: &str) -> ElasticJob {
    let object = with(object(json!({"queue": queue})), &[("/metadata/namespace", json!(namespace))]);
    serde_json::from_value(object).expect("it can be read")
}

fn research() -> Vec<Queue> {
    vec![
        queue("vision", json!({"parent": "research", "guaranteed": {"all": "40%"}, "weight": 2})),
        queue("speech", json!({"parent": "research", "namespaces": ["speech", "team-a"]})),
        queue(
            "research",
            json!({"guaranteed": {"v100": 8, "p100": "50%"}, "namespaces": ["team-a", "team-b"]}),
        ),
        queue("batch", json!({"limit": {"all": 4}})),
    ]
}

#[test]
fn objects_make_one_tree_in_any_order() {
    let mut queues = research();
    let made = file(&queues).unwrap();
    let names: Vec<&str> = made.queues.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["batch", "research", "research/speech", "research/vision"]);
    let by_name = |name: &str| made.queues.iter().find(|entry| entry.name == name).unwrap();
    assert_eq!(by_name("research/vision").guarantee, Quantity::Each(Measure::Percent(40.0)));
    assert_eq!(by_name("research/vision").weight, 2.0);
    assert_eq!(by_name("batch").limit, Some(Quantity::Each(Measure::Devices(4))));
    assert_eq!(by_name("research").guarantee.of("p100", 10), Some(5));
    assert_eq!(by_name("research").limit, None);
    QueueTree::new(&made, "queues").unwrap();
    queues.reverse();
    assert_eq!(file(&queues).unwrap(), made);
    assert_eq!(file(&[]).unwrap().queues, []);
}

#[test]
fn what_cannot_be_names_the_queue_at_fault() {
    let cases = [
        (vec![queue("a", json!({"parent": "b"}))], "a", "spec.parent", "there is no queue `b`"),
        (
            vec![queue("a", json!({"parent": "b"})), queue("b", json!({"parent": "a"}))],
            "a",
            "spec.parent",
            "the queue is below itself: a/b/a",
        ),
        (vec![queue("a", json!({"parent": "a"}))], "a", "spec.parent", "the queue is below itself: a/a"),
        (
            vec![queue("a", json!({})), queue("default", json!({"parent": "a"}))],
            "default",
            "spec.parent",
            "jobs that name no queue",
        ),
        (
            vec![queue("a", json!({"guaranteed": {"v100": "x"}}))],
            "a",
            "spec.guaranteed.v100",
            "\"x\" is not an amount",
        ),
        (vec![queue("a", json!({"limit": {"all": -1}}))], "a", "spec.limit.all", "-1 is not an amount"),
        (vec![queue("a", json!({"limit": {"all": 1, "v100": 1}}))], "a", "spec.limit", "`all` means"),
        (vec![queue("a", json!({"weight": 0}))], "a", "spec", "invalid weight"),
        (
            vec![queue("default", json!({})), queue("a", json!({"parent": "default"}))],
            "default",
            "spec",
            "jobs that name",
        ),
    ];
    for (queues, name, field, what) in cases {
        let fault = file(&queues).expect_err(what);
        assert_eq!((fault.queue.as_deref(), fault.error.field.as_str()), (Some(name), field), "{fault:?}");
        assert!(fault.error.what.starts_with(what), "{fault:?}");
    }
    let both = |of: &str| queue(of, json!({"guaranteed": {"all": "60%"}}));
    let fault = file(&[both("a"), both("b")]).unwrap_err();
    assert_eq!(fault.queue, None, "neither of them alone");
    assert!(fault.error.what.contains("guaranteed 120 %"), "{fault:?}");
}

#[test]
fn a_job_reaches_only_queues_that_are_open_to_its_namespace() {
    let queues = research();
    let of = |queue: Value, namespace: &str| queue_of(&job_in(queue, namespace), &queues);
    assert_eq!(of(json!("vision"), "team-b").unwrap(), "research/vision");
    assert_eq!(of(json!("speech"), "team-a").unwrap(), "research/speech");
    assert_eq!(of(json!("batch"), "anyone").unwrap(), "batch");
    assert_eq!(of(Value::Null, "anyone").unwrap(), "default", "even where no object describes it");
    // `speech` allows it, and `research` above it does not.
    let foreign = of(json!("speech"), "speech").unwrap_err();
    assert_eq!(foreign.field, "spec.queue");
    let missing = of(json!("spech"), "speech").unwrap_err();
    assert_eq!(foreign.what.replace("speech`", "spech`"), missing.what.replace("speech`", "spech`"));
    for error in [&foreign, &missing] {
        assert!(!error.hint.contains("vision") && error.hint.contains("batch"), "{error}");
    }
    assert!(of(json!("visoin"), "team-a").unwrap_err().hint.contains("did you mean `vision`?"));
    assert!(of(json!("research"), "team-a").unwrap_err().what.contains("has queues below it"));
    let closed = [queue("default", json!({"namespaces": ["team-a"]}))];
    assert!(queue_of(&job_in(Value::Null, "team-b"), &closed).is_err(), "a default queue may be closed, too");
    assert_eq!(queue_of(&job_in(Value::Null, "team-a"), &closed).unwrap(), "default");
}

#[test]
fn a_circle_of_queues_is_closed_to_all() {
    let queues = [queue("a", json!({"parent": "b"})), queue("b", json!({"parent": "a"}))];
    assert!(queue_of(&job_in(json!("a"), "team-a"), &queues).is_err());
}

#[test]
fn a_queue_stays_in_its_place() {
    let schema = compile_schema(&schema("Queue"));
    let [before, below, other] =
        [json!({}), json!({"parent": "a"}), json!({"parent": "b"})].map(|spec| queue_object("q", spec));
    for (old, new, may) in [
        (&before, &before, true),
        (&below, &below, true),
        (&before, &below, false),
        (&below, &before, false),
        (&below, &other, false),
    ] {
        assert_eq!(by_cel(&schema, new, Some(old)).is_empty(), may, "{old} {new}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Of the rules about a queue alone; those about several are for Rust.
    #[test]
    fn rust_refuses_what_cel_refuses(
        name in prop_oneof![Just("default"), Just("a")],
        parent in prop_oneof![Just(Value::Null), Just(json!("a")), Just(json!("b"))],
        types in proptest::collection::btree_set(prop_oneof![Just("all"), Just("v100"), Just("p100")], 0..3),
    ) {
        let amounts = types.iter().map(|name| ((*name).to_owned(), json!(1)));
        let amounts: Value = amounts.collect::<serde_json::Map<_, _>>().into();
        let mut spec = json!({"limit": amounts});
        if !parent.is_null() {
            spec["parent"] = parent;
        }
        let refused = by_cel(&compile_schema(&schema("Queue")), &queue_object(name, spec.clone()), None);
        let beside = ["a", "b"].into_iter().filter(|other| *other != name).map(|other| queue(other, json!({})));
        let all: Vec<Queue> = beside.chain([queue(name, spec)]).collect();
        prop_assert_eq!(refused == BTreeSet::new(), file(&all).is_ok(), "{:?} {:?}", refused, file(&all));
    }
}
