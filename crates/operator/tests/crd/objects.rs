//! Objects: of other versions, wrong ones, and what a good one becomes.

use bellwether_core::job::WorkerRange;
use bellwether_operator::crd::{
    Action, Backend, ElasticJob, ElasticJobSpec, ElasticJobStatus, FieldError, Phase, Policy, check, read,
};
use serde_json::{Value, json};

use crate::{digits, job, object, schema, template, with, wrong};

#[test]
fn objects_with_missing_and_unknown_fields_can_be_read() {
    let bare: ElasticJob = serde_json::from_value(json!({"metadata": {}, "spec": {}})).unwrap();
    assert_eq!(bare.spec, ElasticJobSpec::default());
    let newer = json!({
        "apiVersion": "train.bellwether.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "a"},
        "spec": {
            "job": {"of_a_later_version": true}, "colour": "red",
            "elastic": {"policy": "Predictive", "maxReplicas": 4, "burst": 2},
            "rendezvous": {"backend": "jax"},
            "failurePolicy": {"rules": [{"action": "Migrate"}]},
        },
        "status": {
            "phase": "Migrating", "replicas": 2, "mood": "good",
            "allocation": {"generation": 7, "nodes": [{"node": "n1", "slots": 2, "rack": "r"}]},
            "conditions": [{"type": "Accepted", "status": "True", "since": "x"}],
        },
    });
    let read = read(&newer).unwrap();
    assert_eq!(read.spec.elastic.policy, Policy::Unknown);
    assert_eq!(read.spec.rendezvous.backend, Backend::Unknown);
    assert_eq!(read.spec.failure_policy.rules[0].action, Action::Unknown);
    assert_eq!(read.spec.job, Some(json!({"of_a_later_version": true})));
    let status = read.status.clone().unwrap();
    assert_eq!((status.phase, status.replicas), (None, 2));
    assert_eq!(status.allocation.unwrap().nodes[0].node, "n1");
    let fields: Vec<String> = check(&read).unwrap_err().into_iter().map(|error| error.field).collect();
    for field in ["spec.elastic.policy", "spec.rendezvous.backend", "spec.failurePolicy.rules[0].action"] {
        assert!(fields.iter().any(|found| found == field), "{fields:?}");
    }
}

#[test]
fn an_object_says_again_what_it_said() {
    let spec = json!({
        "job": with(digits(), &[("/seed", json!(9_007_199_254_740_993_u64)), ("/optimizer/learning_rate", json!(0.1))]),
        "worker": {"slotsPerPod": 2,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"newField": {"x": [null, 1.5]}}}},
        "elastic": {"minReplicas": 1, "maxReplicas": 8, "discreteSizes": [1, 2, 4], "policy": "Manual", "replicas": 2},
        "checkpoint": {"url": "s3://b-b/x", "secretRef": {"name": "s"}, "intervalSeconds": 60},
        "failurePolicy": {"maxRestarts": 3, "rules": [{"onExitCodes": [42], "action": "FailJob"}]},
    });
    let status = json!({
        "phase": "Running", "observedGeneration": 3, "workers": "2/2/8", "replicas": 2, "readyReplicas": 2,
        "selector": "a=b", "run": "team-a.digits", "fixed": {"job": "0"},
        "allocation": {"generation": 7, "leaseTransitions": 2, "replicas": 2, "servers": 0,
            "nodes": [{"node": "n", "slots": 2}], "reason": "why", "since": "2026-11-20T10:00:00.25Z"},
        "restarts": {"crash": 1, "preempt": 2, "resize": 3, "coordinator": 4, "last": "2026-11-20T10:00:00Z"},
        "training": {"step": 12, "totalSteps": 100, "progressPercent": 12, "samplesPerSecond": "812.5",
            "predictedSamplesPerSecond": "800", "loss": "0.25", "lastReport": "2026-11-20T10:00:00Z",
            "expectedEnd": "2026-11-20T11:00:00Z", "digest": "d"},
        "outlook": {"waitsFor": "x", "ahead": 1, "aheadNames": ["b"], "ends": {},
            "starts": {"earliest": "2026-11-20T10:00:00Z"}},
        "conditions": [{"type": "Running", "status": "True", "reason": "Started", "message": "",
            "lastTransitionTime": "2026-11-20T10:00:00.125Z", "observedGeneration": 3}],
    });
    let written = with(object(spec), &[("/status", status)]);
    let read = read(&written).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    assert!(contains(&again, &written), "{again:#}");
    assert_eq!(serde_json::from_value::<ElasticJob>(again).unwrap(), read);
}

/// Whether a value says all that a part says.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(part) => part.iter().all(|(key, value)| contains(&whole[key], value)),
        Value::Array(parts) => whole.as_array().is_some_and(|whole| {
            whole.len() == parts.len() && whole.iter().zip(parts).all(|(whole, part)| contains(whole, part))
        }),
        _ => whole == part,
    }
}

/// A server fills in the defaults of its schema, and Rust those of its types.
#[test]
fn servers_and_rust_have_the_same_defaults() {
    for spec in [
        json!({}),
        json!({"elastic": {"maxReplicas": 4}, "rendezvous": {"throughput": {"pattern": "x"}}}),
        json!({"job": digits(), "checkpoint": {}, "profileRef": {"name": "p"}, "failurePolicy": {"rules": [{}]}}),
    ] {
        let filled = crate::filled(&object(spec.clone()));
        let by_rust = serde_json::to_value(&job(spec.clone()).spec).unwrap();
        assert_eq!(filled["spec"], by_rust, "{spec}");
    }
    // The defaults are what the documentation says.
    let spec = ElasticJobSpec::default();
    assert_eq!((spec.elastic.start_timeout_seconds, spec.failure_policy.max_restarts), (300, 10));
    assert_eq!((spec.rendezvous.port, spec.managed_by.as_str()), (29_500, "train.bellwether.dev/controller"));
}

#[test]
fn a_job_becomes_what_the_engine_takes() {
    let spec = json!({
        "job": with(digits(), &[("/workers", json!("2..6"))]),
        "worker": {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}},
        "checkpoint": {"url": "s3://bucket/runs", "intervalSeconds": 30, "volumeClaim": "claim", "path": "runs/a"},
    });
    let checked = check(&job(spec.clone())).unwrap();
    let trained = checked.job.unwrap();
    assert_eq!(trained.name, "digits", "the object's");
    assert_eq!(checked.workers, WorkerRange { min: 2, max: 6 }, "the job file's");
    assert_eq!(trained.checkpoint.url.as_ref().unwrap().to_string(), "s3://bucket/runs");
    assert_eq!(trained.checkpoint.every.get(), 30.0);
    let narrower = with(spec.clone(), &[("/elastic", json!({"maxReplicas": 4}))]);
    assert_eq!(check(&job(narrower)).unwrap().workers, WorkerRange { min: 2, max: 4 });
    let wider = with(spec, &[("/worker/slotsPerPod", json!(2)), ("/elastic", json!({"maxReplicas": 4}))]);
    let checked = check(&job(wider)).unwrap();
    assert_eq!((checked.slots_per_pod, checked.workers), (2, WorkerRange { min: 4, max: 8 }));
}

#[test]
fn what_this_version_cannot_do_is_refused_with_the_field() {
    let refused = |more: &[(&str, Value)]| {
        let spec = with(json!({"job": digits(), "elastic": {"minReplicas": 1, "maxReplicas": 4}}), more);
        bellwether_operator::spec::of(&job(spec)).map_err(|errors| errors[0].field.clone()).err()
    };
    let gaps = ("/elastic/discreteSizes", json!([1, 4]));
    for (more, field) in [
        (vec![("/worker", json!({"slotsPerPod": 2}))], Some("spec.worker.slotsPerPod")),
        (vec![gaps.clone()], Some("spec.elastic.discreteSizes")),
        // Who chooses the number needs no policy that knows of gaps.
        (vec![gaps, ("/elastic/policy", json!("Manual")), ("/elastic/replicas", json!(4))], None),
        (vec![("/elastic/preemptible", json!(false))], Some("spec.elastic.preemptible")),
        (vec![("/checkpoint", json!({"onPreempt": false}))], Some("spec.checkpoint.onPreempt")),
        (vec![("/activeDeadlineSeconds", json!(60))], None),
    ] {
        assert_eq!(refused(&more).as_deref(), field, "{more:?}");
    }
}

#[test]
fn there_are_no_more_workers_than_the_batch_is_worth() {
    let most = |least: u64, min: u32| {
        let elastic = json!({"minReplicas": min, "maxReplicas": 4});
        let spec = json!({"job": digits(), "elastic": elastic, "hints": {"minLocalBatch": least}});
        let checked = check(&job(spec)).unwrap();
        (checked.workers, checked.job.unwrap().batch.size)
    };
    let (free, batch) = most(1, 1);
    assert_eq!(free, WorkerRange { min: 1, max: 4 });
    assert_eq!(most(batch / 2, 1).0, WorkerRange { min: 1, max: 2 });
    assert_eq!(most(batch * 2, 3).0, WorkerRange { min: 3, max: 3 }, "no fewer than its author's fewest");
}

#[test]
fn a_chosen_number_of_workers_is_rounded_down_to_a_size() {
    let elastic = json!({"minReplicas": 1, "maxReplicas": 8, "discreteSizes": [2, 4], "policy": "Manual"});
    for (replicas, workers) in [(1, 2), (3, 2), (4, 4), (8, 4)] {
        let spec =
            json!({"job": digits(), "elastic": with(elastic.clone(), &[("/replicas", json!(replicas))])});
        let checked = check(&job(spec)).unwrap();
        assert_eq!(checked.workers, WorkerRange { min: workers, max: workers }, "{replicas}");
        assert_eq!(checked.job.unwrap().workers, WorkerRange { min: 2, max: 4 });
    }
}

#[track_caller]
fn only(spec: Value) -> FieldError {
    let mut errors = wrong(spec);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn a_bad_job_file_names_the_field() {
    for (pointer, new, field, what) in [
        ("/batch/size", json!(65), "spec.job.batch.size", "65 samples do not divide into 8"),
        ("/batch/size", json!("many"), "spec.job.batch.size", "invalid type: string"),
        ("/optimzer", json!({}), "spec.job.optimzer", "unknown field `optimzer`"),
        ("/model/hiden", json!([8]), "spec.job.model.hiden", "unknown field `hiden`"),
        ("/model/kind", json!("mpl"), "spec.job.model.kind", "unknown variant `mpl`"),
        ("/optimizer/momentum", json!(2.0), "spec.job.optimizer.momentum", "2"),
        ("/batch", Value::Null, "spec.job", "missing field `batch`"),
        (
            "/data",
            json!({"kind": "csv", "path": "train.csv"}),
            "spec.job.data.path",
            "`train.csv` is relative",
        ),
        ("/checkpoint", json!({"url": "file://a"}), "spec.job.checkpoint.url", "invalid place"),
    ] {
        let error = only(json!({"job": with(digits(), &[(pointer, new)])}));
        assert_eq!(error.field, field, "{error}");
        assert!(error.what.starts_with(what), "{error}");
    }
    let error = only(json!({"job": with(digits(), &[("/optimzer", json!({}))])}));
    assert!(error.hint.starts_with("did you mean `optimizer`?"), "{error}");
}

#[test]
fn what_only_a_program_can_tell_names_the_field() {
    let groups = |pattern: &str| {
        json!({
            "rendezvous": {"backend": "torchrun", "throughput": {"pattern": pattern}},
            "work": {"samples": 1000}, "worker": {"template": template()},
        })
    };
    let native = |pointer: &str, new: Value| with(json!({"job": digits()}), &[(pointer, new)]);
    for (spec, field, what) in [
        (
            groups("step (\\d+"),
            "spec.rendezvous.throughput.pattern",
            "not a regular expression: unclosed group",
        ),
        (groups("step (\\d+)"), "spec.rendezvous.throughput.pattern", "it has none of the named groups"),
        (groups("(?<step>\\d+)"), "spec.work.batchSize", "the pattern counts steps"),
        (
            with(groups("(?<samples>\\d+)"), &[("/worker/template/spec/containers/0/command", Value::Null)]),
            "spec.worker.template.spec.containers[0].command",
            "the first container needs",
        ),
        (
            native("/worker", json!({"template": {"spec": {"containers": [{"name": 3}]}}})),
            "spec.worker.template.spec.containers[0].name",
            "invalid type",
        ),
        (
            native(
                "/server",
                json!({"template": {"metadata": {"labels": {"train.bellwether.dev/job": "x"}}}}),
            ),
            "spec.server.template.metadata.labels",
            "`train.bellwether.dev/job` is one",
        ),
        (
            native("/elastic", json!({"maxReplicas": 9})),
            "spec.elastic.maxReplicas",
            "9 workers cannot share 8",
        ),
        (native("/checkpoint", json!({"url": "gs://bucket"})), "spec.checkpoint.url", "invalid place"),
        (native("/checkpoint", json!({"url": "runs"})), "spec.checkpoint.url", "a relative folder"),
        (native("/checkpoint", json!({"path": "a/../b"})), "spec.checkpoint.path", "`a/../b` does not fit"),
        (native("/weight", json!(0)), "spec.weight", "0, and it has to be more than 0"),
        (native("/elastic", json!({"maxReplicas": 5000})), "spec.elastic.maxReplicas", "5000, and it may be"),
        (native("/queue", json!("Research")), "spec.queue", "`Research` does not fit"),
        (native("/managedBy", json!("x")), "spec.managedBy", "1 letters"),
    ] {
        let errors = wrong(spec);
        let found =
            errors.iter().find(|error| error.field == field).unwrap_or_else(|| panic!("{field}: {errors:?}"));
        assert!(found.what.starts_with(what), "{found}");
    }
    let both = json!({
        "job": with(digits(), &[("/checkpoint", json!({"url": "s3://bucket/a"}))]),
        "checkpoint": {"url": "s3://bucket/b"},
    });
    assert_eq!(only(both).field, "spec.checkpoint.url");
    let by_job =
        json!({"job": with(digits(), &[("/workers", json!("1..4"))]), "elastic": {"minReplicas": 6}});
    assert_eq!(only(by_job).field, "spec.elastic.minReplicas");
}

#[test]
fn names_have_room_for_those_of_pods() {
    for (name, is_good) in [
        ("a".repeat(52), true),
        ("a".repeat(53), false),
        ("a.b".to_owned(), false),
        ("A".to_owned(), false),
        ("3d-unet".to_owned(), true),
        ("a-".to_owned(), false),
    ] {
        let mut job = job(json!({"job": digits()}));
        job.metadata.name = Some(name.clone());
        assert_eq!(check(&job).is_ok(), is_good, "{name}: {:?}", check(&job));
    }
}

#[test]
fn an_object_of_another_form_names_the_field() {
    let error = read(&object(json!({"elastic": {"minReplicas": "two"}}))).unwrap_err();
    assert_eq!(error.field, "spec.elastic.minReplicas");
    let error = read(&json!({"metadata": {"name": "a"}})).unwrap_err();
    assert!(error.what.contains("missing field `spec`"), "{error}");
}

/// The operator's own writer, and its reader.
#[test]
fn a_status_of_nothing_is_empty() {
    let status = serde_json::to_value(ElasticJobStatus::default()).unwrap();
    assert_eq!(status, json!({"replicas": 0, "readyReplicas": 0}), "what `/scale` reads is always there");
    for (phase, word) in [
        (bellwether_serve::snapshot::Phase::Stopping, "Resizing"),
        (bellwether_serve::snapshot::Phase::Finished, "Succeeded"),
        (bellwether_serve::snapshot::Phase::Cancelled, "Failed"),
    ] {
        assert_eq!(json!(Phase::of(phase)), word);
    }
}

/// The job files of the project are jobs here, with absolute paths.
#[test]
fn the_schema_of_the_job_file_takes_every_example() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let of_job = &schema("ElasticJob")["properties"]["spec"]["properties"]["job"];
    let mut seen = 0;
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let is_toml = path.extension().is_some_and(|extension| extension == "toml");
            let Some(parsed) = is_toml.then(|| bellwether_core::parse::job(&text, "job", &[]).ok()).flatten()
            else {
                continue;
            };
            let file = serde_json::to_value(&*parsed).unwrap();
            let mut found = Vec::new();
            fits(of_job, &file, "job", &mut found);
            assert_eq!(found, [""; 0], "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen} job files");
}

/// What of a value does not fit its schema.
fn fits(node: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let is_type = match node["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if value.is_null() && node["nullable"] == true {
        return;
    }
    if !is_type || node["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{path}: {value}"));
    }
    for key in node["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(key).is_none() {
            found.push(format!("{path}: without {key}"));
        }
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match node["properties"].get(key) {
            Some(node) => fits(node, value, &format!("{path}.{key}"), found),
            None if node["type"] == "object" && node["properties"].is_object() => {
                found.push(format!("{path}.{key} is unknown"));
            }
            None => {}
        }
    }
    for value in value.as_array().into_iter().flatten() {
        fits(&node["items"], value, &format!("{path}[]"), found);
    }
}
