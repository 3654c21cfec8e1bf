//! The examples train, and the schema knows every key they use.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Summary;
use serde_json::Value;

use crate::harness::Scene;

/// The examples' folder.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Those that are jobs.
const JOBS: [&str; 10] = [
    "digits",
    "convnet",
    "resnet",
    "transformer",
    "teacher",
    "synthetic",
    "goodput",
    "asynchronous",
    "verified",
    "streamed",
];

fn trains(name: &str) {
    let scene = Scene::new("");
    let path = format!("{FOLDER}/{name}.toml");
    let ended = scene.call(&["run", &path, "--steps", "3", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    let summary: Summary = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!((summary.job.as_str(), summary.steps, summary.outcome.word()), (name, 3, "finished"));
}

#[test]
fn every_example_trains() {
    JOBS.into_iter().for_each(trains);
    let files = std::fs::read_dir(FOLDER).expect("the examples are there").flatten();
    let names_of_files = files.filter_map(|entry| entry.file_name().into_string().ok());
    // Federations are not jobs.
    let jobs = names_of_files.filter(|name| name.ends_with(".toml") && !name.starts_with("federation-"));
    assert_eq!(jobs.count(), JOBS.len(), "an example is not named here");
}

#[test]
fn the_streamed_example_trains_what_it_would_in_memory() {
    let digest = |streamed: &str| {
        let scene = Scene::new("");
        let path = format!("{FOLDER}/streamed.toml");
        let ended = scene.call(&["run", &path, "--steps", "8", "--set", streamed, "--format", "json"]);
        serde_json::from_str::<Summary>(&ended.stdout).expect("a summary").params_digest
    };
    assert_eq!(digest("data.streamed=true"), digest("data.streamed=false"));
}

#[test]
fn the_asynchronous_example_switches() {
    let scene = Scene::new("");
    let path = format!("{FOLDER}/asynchronous.toml");
    let ended = scene.call(&["run", &path, "--steps", "8", "--format", "json"]);
    let summary: Summary = serde_json::from_str(&ended.stdout).expect("a summary");
    let phases: Vec<(Protocol, u64)> =
        summary.phases.iter().map(|phase| (phase.protocol, phase.steps)).collect();
    assert_eq!(phases, [(Protocol::Bsp, 2), (Protocol::Asp, 6)], "{ended:?}");
    assert!(summary.staleness.is_some_and(|staleness| staleness.updates() > 0));
}

/// All names of properties, at any depth.
fn properties(schema: &Value, found: &mut Vec<String>) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        found.extend(properties.keys().cloned());
    }
    match schema {
        Value::Object(map) => map.values().for_each(|value| properties(value, found)),
        Value::Array(values) => values.iter().for_each(|value| properties(value, found)),
        _ => {}
    }
}

#[test]
fn the_schema_names_every_key() {
    let ended = Scene::new("").call(&["schema", "job"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(
        schema["$schema"].as_str().is_some_and(|s| s.starts_with("https://json-schema.org/")),
        "{schema}"
    );
    assert_eq!(schema["type"], "object");
    let mut known = Vec::new();
    properties(&schema, &mut known);
    for name in JOBS {
        let text = std::fs::read_to_string(format!("{FOLDER}/{name}.toml")).expect("an example");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let key = line.split_once('=').map(|(key, _)| key.trim()).or(line.strip_prefix('['));
            let Some(keys) = key.map(|key| key.trim_end_matches(']')) else { continue };
            for key in keys.split('.') {
                assert!(known.iter().any(|k| k == key), "`{key}` of {name} is not in the schema");
            }
        }
    }
    for key in [
        "mode",
        "workers",
        "epochs",
        "checkpoint",
        "keep",
        "folder",
        "betas",
        "clip_norm",
        "header",
        "test_files",
    ] {
        assert!(known.iter().any(|k| k == key), "`{key}` is not in the schema");
    }
}
