//! `bellwether simulate --queues`: what it prints of queues, and what it refuses.

use std::fs;

use serde_json::Value;

use crate::harness::Scene;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate");

/// Two teams on eight GPUs: `a` comes first and takes all, and then `b` comes.
const TRACE: &str = "job_id,submit_time,num_gpu,duration,queue\n\
                     0,0,4,100,a\n1,1,4,100,a\n2,2,4,100,a\n3,10,4,50,b\n4,20,2,10,\n";
const QUEUES: &str =
    "[[queues]]\nname = \"a\"\nguarantee = \"50%\"\n\n[[queues]]\nname = \"b\"\nguarantee = 4\n";

fn scene() -> Scene {
    let scene = Scene::new("");
    scene.write("trace.csv", TRACE);
    scene.write("queues.toml", QUEUES);
    scene
}

const SIMULATE: [&str; 7] = ["simulate", "--cluster", "1x8", "--trace", "trace.csv", "--policy", "fifo"];

fn simulated(scene: &Scene, more: &[&str]) -> Value {
    let ended = scene.call(&[&SIMULATE[..], &["--format", "json"], more].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("an array of objects")
}

#[test]
fn each_queue_has_its_guarantee_and_its_figures() {
    let scene = scene();
    let alone = simulated(&scene, &[]);
    let with = simulated(&scene, &["--queues", "queues.toml", "--queues-out", "queues.csv"]);
    let of = |results: &Value, queue: &str| {
        let queues = results[0]["queues"].as_array().expect("queues").clone();
        queues.into_iter().find(|one| one["queue"] == queue).expect("it is there")
    };
    // Job 3 waits for a place among those of `a`, or takes its guarantee from job 1, which started last.
    assert_eq!((&of(&alone, "b")["avg_jct_s"], &of(&with, "b")["avg_jct_s"]), (&141.0.into(), &50.0.into()));
    assert_eq!(of(&with, "a")["preemptions"], 1.0);
    assert_eq!(of(&with, "b")["guarantee_received"], 1.0);
    assert_eq!(of(&alone, "b")["guarantee_received"], Value::Null);
    // 9 s of 4 GPUs before job 3 came, and what no other job wanted after it ended.
    assert!(of(&with, "a")["borrowed_device_hours"].as_f64() > Some(4.0 * 9.0 / 3600.0));
    // A job without a queue is in the default one.
    assert_eq!(of(&with, "default")["finished"], 1.0);
    let rows = fs::read_to_string(scene.path("queues.csv")).expect("it was written");
    assert!(rows.starts_with("policy,queue,jobs,finished,refused,avg_jct_s,"), "{rows}");
    assert_eq!(rows.lines().count(), 4);
    let table = scene.call(&[&SIMULATE[..], &["--queues", "queues.toml"]].concat());
    assert!(table.stdout.contains("of guarantee"), "{table:?}");
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let scene = scene();
    let refused = |queues: &str, expected: &[&str]| {
        scene.write("other.toml", queues);
        let ended = scene.call(&[&SIMULATE[..], &["--queues", "other.toml"]].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in expected {
            assert!(ended.stderr.contains(part), "{part} is not in {ended:?}");
        }
    };
    refused("[[queues]]\nname = \"a\"\nlimmit = \"50%\"", &["line 3", "did you mean `limit`?"]);
    refused("[[queues]]\nname = \"a\"\nguarantee = \"half\"", &["share of devices", "\"60%\""]);
    refused("[[queues]]\nname = \"a\"", &["trace.csv, row 5: job `3`", "there is no queue `b`"]);
    refused("[[queues]]\nname = \"x/a\"", &["queue `x/a`", "there is no queue `x` above it"]);
    let many = "[[queues]]\nname = \"a\"\nguarantee = 5\n[[queues]]\nname = \"b\"\nguarantee = 4";
    refused(many, &["guaranteed 9 devices of type `gpu`, and it has 8", "lower a `guarantee`"]);
    refused("[[queues]]\nname = \"a\"\nguarantee = 4\nlimit = 3", &["may hold 3", "raise `limit`"]);
    let inner = "[[queues]]\nname = \"a\"\n[[queues]]\nname = \"a/x\"\n[[queues]]\nname = \"b\"";
    refused(inner, &["`a` has queues below it", "write for example `a/x`"]);
}

#[test]
fn the_example_runs() {
    let scene = Scene::new("");
    let [queues, teams] = ["queues.toml", "teams.toml"].map(|file| format!("{FOLDER}/{file}"));
    let arguments = ["simulate", "--cluster", "16x4", "--trace", &teams, "--policy", "fifo,srtf,equi"];
    let ended = scene.call(&[&arguments[..], &["--queues", &queues, "--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results: Value = serde_json::from_str(&ended.stdout).expect("an array of objects");
    for result in results.as_array().expect("an array") {
        let names: Vec<&str> = result["queues"]
            .as_array()
            .expect("queues")
            .iter()
            .map(|queue| queue["queue"].as_str().expect("a name"))
            .collect();
        assert_eq!(names, ["product", "sweeps", "research/vision", "research/speech"]);
        assert_eq!(result["finished"], 400);
    }
}
