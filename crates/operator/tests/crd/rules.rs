//! The rules: each can be broken, and CEL and Rust agree on every object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bellwether_operator::crd::{ElasticJob, RULES, check};
use kube_cel::{CompiledSchema, Validator, analyze_rule, compile_schema};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

use crate::{digits, job, object, schema, template, with};

static JOBS: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&schema("ElasticJob")));

/// What CEL says against an object: the messages of the rules that do not hold.
pub(crate) fn by_cel(schema: &CompiledSchema, object: &Value, old: Option<&Value>) -> BTreeSet<String> {
    let (object, old) = (&crate::filled(object), old.map(crate::filled));
    let errors = Validator::new().validate_compiled(schema, object, old.as_ref()).err().into_iter().flatten();
    errors
        .map(|error| {
            assert_eq!(error.kind, kube_cel::ErrorKind::ValidationFailure, "{error:?}\n{object:#}");
            error.message
        })
        .collect()
}

/// What Rust says, of the same rules.
fn by_rust(job: &ElasticJob) -> BTreeSet<String> {
    let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.message).collect();
    let errors = check(job).err().into_iter().flatten();
    errors.map(|error| error.what).filter(|what| rules.contains(what.as_str())).collect()
}

fn native() -> Value {
    json!({"job": digits(), "elastic": {"minReplicas": 1, "maxReplicas": 4}})
}

fn torchrun() -> Value {
    json!({
        "rendezvous": {"backend": "torchrun"}, "work": {"samples": 1000}, "worker": {"template": template()},
        "elastic": {"maxReplicas": 4},
    })
}

/// Specifications that break one rule each: the first letters of its message, and the field at fault.
fn broken() -> Vec<(&'static str, &'static str, Value)> {
    let of_native = |pointer: &str, new: Value| with(native(), &[(pointer, new)]);
    let of_torchrun = |pointer: &str, new: Value| with(torchrun(), &[(pointer, new)]);
    let role = || json!({"template": template()});
    vec![
        ("minReplicas is above", "spec.elastic.minReplicas", of_native("/elastic/minReplicas", json!(5))),
        ("policy Manual needs", "spec.elastic.replicas", of_native("/elastic/policy", json!("Manual"))),
        (
            "replicas is not within",
            "spec.elastic.replicas",
            with(native(), &[("/elastic/policy", json!("Manual")), ("/elastic/replicas", json!(5))]),
        ),
        (
            "step and discreteSizes",
            "spec.elastic.step",
            with(native(), &[("/elastic/step", json!(2)), ("/elastic/discreteSizes", json!([1, 2]))]),
        ),
        (
            "discreteSizes has",
            "spec.elastic.discreteSizes",
            of_native("/elastic/discreteSizes", json!([1, 8])),
        ),
        (
            "discreteSizes does",
            "spec.elastic.discreteSizes",
            of_native("/elastic/discreteSizes", json!([1, 2, 2])),
        ),
        ("the backend native needs job", "spec.job", of_native("/job", Value::Null)),
        ("only the backend native trains", "spec.job", of_torchrun("/job", digits())),
        ("the job file says", "spec.work", of_native("/work", json!({"samples": 1}))),
        ("work is missing", "spec.work", of_torchrun("/work", Value::Null)),
        ("worker.template is missing", "spec.worker.template", of_torchrun("/worker", Value::Null)),
        ("the backend torchrun has no", "spec.server", of_torchrun("/server", role())),
        ("only the backend native has a coord", "spec.coordinator", of_torchrun("/coordinator", role())),
        (
            "only the backend native has its",
            "spec.checkpoint",
            of_torchrun("/checkpoint", json!({"volumeClaim": "a"})),
        ),
        ("only jobs of the backend", "spec.profileRef", of_torchrun("/profileRef", json!({"name": "p"}))),
        (
            "the backend native measures",
            "spec.rendezvous.throughput",
            of_native("/rendezvous", json!({"throughput": {"pattern": r"(?<samples_per_second>\d+)"}})),
        ),
        (
            "checkpoint.secretRef is for",
            "spec.checkpoint.secretRef",
            of_native("/checkpoint", json!({"secretRef": {"name": "s3"}})),
        ),
        ("exactly one of samples", "spec.work", of_torchrun(concat!("/work", "/steps"), json!(3))),
        ("steps need batchSize", "spec.work.batchSize", of_torchrun("/work", json!({"steps": 3}))),
        (
            "a rule without onExitCodes",
            "spec.failurePolicy.rules",
            of_native("/failurePolicy", json!({"rules": [{"action": "Ignore"}, {"onExitCodes": [3]}]})),
        ),
    ]
}

#[test]
fn a_good_job_breaks_no_rule() {
    for spec in [native(), torchrun(), with(torchrun(), &[("/rendezvous/backend", json!("tensorflow"))])] {
        assert_eq!(by_cel(&JOBS, &object(spec.clone()), None), BTreeSet::new());
        assert!(check(&job(spec.clone())).is_ok(), "{:?}", check(&job(spec)));
    }
}

#[test]
fn every_rule_can_be_broken_and_names_its_field() {
    let broken = broken();
    for rule in RULES {
        assert!(broken.iter().any(|(start, ..)| rule.message.starts_with(start)), "{}", rule.message);
    }
    for (start, field, spec) in broken {
        let says = |messages: &BTreeSet<String>| messages.iter().any(|message| message.starts_with(start));
        let cel = by_cel(&JOBS, &object(spec.clone()), None);
        assert!(says(&cel), "{start}: {cel:?}");
        assert_eq!(cel, by_rust(&job(spec.clone())), "{start}");
        let errors = crate::wrong(spec);
        assert!(
            errors.iter().any(|error| error.field == field && error.what.starts_with(start)),
            "{errors:?}"
        );
    }
}

#[test]
fn messages_tell_the_rules_apart() {
    let messages: BTreeSet<&str> = RULES.iter().map(|rule| rule.message).collect();
    assert_eq!(messages.len(), RULES.len());
}

/// A server refuses rules that may take too long.
#[test]
fn rules_cost_little_and_know_their_words() {
    let mut nodes = vec![schema("ElasticJob"), schema("Queue")];
    let mut seen = 0;
    while let Some(node) = nodes.pop() {
        let compiled = compile_schema(&node);
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let keys: Vec<&str> = rule.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["message", "rule"], "servers of 1.25 know no others");
            let scope = kube_cel::ScopeContext::CrdValidation;
            let mut warnings = analyze_rule(rule["rule"].as_str().unwrap(), &compiled, scope);
            // It does not always find the variable of a macro again, as a server does.
            let of_macros =
                ["rule", "size", "other"].map(|name| format!("variable '{name}' is not available"));
            warnings.retain(|warning| !of_macros.iter().any(|start| warning.message.starts_with(start)));
            assert_eq!(warnings, []);
            seen += 1;
        }
        nodes.extend(node["properties"].as_object().into_iter().flatten().map(|(_, node)| node.clone()));
    }
    assert!(seen > RULES.len());
}

/// A field, or none.
fn maybe<S: Strategy<Value = Value> + 'static>(some: S) -> BoxedStrategy<Value> {
    prop_oneof![Just(Value::Null), some].boxed()
}

fn size() -> impl Strategy<Value = Value> {
    (1_u32..6).prop_map(|size| json!(size))
}

fn elastic() -> impl Strategy<Value = Value> {
    let sizes = proptest::collection::vec(1_u32..6, 1..4);
    let policy = prop_oneof![Just("Auto"), Just("Manual")];
    (
        maybe(size()),
        maybe(size()),
        maybe(size()),
        policy,
        maybe(size()),
        maybe(sizes.prop_map(|sizes| json!(sizes))),
    )
        .prop_map(|(min, max, replicas, policy, step, sizes)| {
            json!({
                "minReplicas": min, "maxReplicas": max, "replicas": replicas, "policy": policy, "step": step,
                "discreteSizes": sizes,
            })
        })
}

fn failures() -> impl Strategy<Value = Value> {
    let codes = maybe(Just(json!([3, 4])));
    let rule = (codes, any::<bool>(), prop_oneof![Just("Ignore"), Just("FailJob")])
        .prop_map(|(codes, gone, action)| json!({"onExitCodes": codes, "nodeGone": gone, "action": action}));
    proptest::collection::vec(rule, 0..4).prop_map(|rules| json!({"rules": rules}))
}

fn work() -> impl Strategy<Value = Value> {
    (maybe(size()), maybe(size()), maybe(size()))
        .prop_map(|(samples, steps, batch)| json!({"samples": samples, "steps": steps, "batchSize": batch}))
}

fn checkpoint() -> impl Strategy<Value = Value> {
    let url = maybe(Just(json!("s3://bucket/a")));
    (url, maybe(Just(json!({"name": "s3"}))), maybe(Just(json!("claim"))))
        .prop_map(|(url, secret, claim)| json!({"url": url, "secretRef": secret, "volumeClaim": claim}))
}

/// Random specifications, more often near what is allowed than far from it.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let backend = prop_oneof![2 => Just("native"), 1 => Just("torchrun"), 1 => Just("tensorflow")];
    let with_url = with(digits(), &[("/checkpoint", json!({"url": "s3://bucket/b"}))]);
    let file = prop_oneof![Just(digits()), Just(with(digits(), &[("/seed", json!(3))])), Just(with_url)];
    let throughput = Just(json!({"pattern": r"(?<samples_per_second>\d+)"}));
    let role = || maybe(Just(json!({"template": template()})));
    let profile = maybe(Just(json!({"name": "profile"})));
    let queue = maybe(prop_oneof![Just(json!("a")), Just(json!("b"))]);
    let many =
        (maybe(file), maybe(work()), maybe(throughput), role(), role(), maybe(checkpoint()), profile, queue);
    (backend, elastic(), failures(), maybe(Just(template())), maybe(size()), many).prop_map(
        |(backend, elastic, failures, template, slots, many)| {
            let (file, work, throughput, server, coordinator, checkpoint, profile, queue) = many;
            without_nulls(json!({
                "rendezvous": {"backend": backend, "throughput": throughput}, "elastic": elastic,
                "failurePolicy": failures, "worker": {"template": template, "slotsPerPod": slots}, "job": file,
                "work": work, "server": server, "coordinator": coordinator, "checkpoint": checkpoint,
                "profileRef": profile, "queue": queue,
            }))
        },
    )
}

/// Servers keep no field that is null and may be left out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let there = object.into_iter().filter(|(_, value)| !value.is_null());
            there.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rust_and_cel_agree(spec in spec()) {
        prop_assert_eq!(by_cel(&JOBS, &object(spec.clone()), None), by_rust(&job(spec)));
    }
}

/// The random specifications above break every rule, and keep every rule.
#[test]
fn random_specifications_reach_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut broken: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..2000 {
        let spec = spec().new_tree(&mut runner).unwrap().current();
        let job = job(spec);
        for rule in RULES.iter().filter(|rule| !(rule.holds)(&job)) {
            *broken.entry(rule.message).or_default() += 1;
        }
    }
    for rule in RULES {
        let times = broken.get(rule.message).copied().unwrap_or(0);
        assert!((20..1980).contains(&times), "{times} of 2000 break: {}", rule.message);
    }
}
