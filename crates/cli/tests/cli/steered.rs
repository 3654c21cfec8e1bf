//! The whole road through the command: what is measured is fitted, planned, scheduled by, and met again beside what
//! followed.

use std::fs;

use serde_json::{Value, json};

use crate::harness::Scene;
use crate::served::{Served, ledger, synthetic};

fn read(scene: &Scene, name: &str) -> Value {
    let text = fs::read_to_string(scene.path(name)).expect("a file that was written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn predictions_steer_the_cluster() {
    let job = synthetic("job", 1, 300, 4.0);
    let scene = Scene::new(&job);
    let call = |words: &[&str]| {
        let ended = scene.call(words);
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
        ended.stdout
    };

    // Profile, and what a run of it leaves behind.
    call(&["profile", "job.toml", "-o", "profile.json"]);
    call(&["run", "job.toml", "--workers", "1..2", "--resize", "100:2", "--steps", "200"]);
    call(&["fit", "job", "profile.json", "-o", "fitted.json"]);
    let fitted: Value =
        serde_json::from_str(&call(&["predict", "fitted.json", "--workers", "2", "--format", "json"]))
            .expect("an array");
    let profiled: Value =
        serde_json::from_str(&call(&["predict", "profile.json", "--workers", "2", "--format", "json"]))
            .expect("an array");
    for row in [&fitted[0], &profiled[0]] {
        // 16 samples in 8 virtual nodes of 4 ms on two workers: 1,000 per second, less what else there is.
        let rate = row["examples_per_s"].as_f64().expect("a number");
        assert!(rate > 100.0 && rate < 1_100.0, "{row}");
    }

    // A plan, which is for this job and no other.
    let profile = read(&scene, "profile.json");
    let prices = format!(
        "[[machine]]\nname = \"here\"\ndevice = {}\nregion = \"home\"\nprice = \"$1/h\"\nprovision = \"1s\"\njoin = \"1s\"\n",
        profile["device"]
    );
    scene.write("prices.toml", prices);
    let plan =
        call(&["plan", "profile.json", "--catalog", "prices.toml", "--steps", "300", "--format", "json"]);
    scene.write("plan.json", &plan);
    let plan: Value = serde_json::from_str(&plan).expect("a plan");
    assert_eq!(plan["computation"], profile["computation"]);
    call(&["run", "job.toml", "--plan", "plan.json", "--steps", "10"]);
    let other =
        scene.call(&["run", "job.toml", "--plan", "plan.json", "--set", "batch.size=32", "--steps", "10"]);
    other.refused_with(&["plan", "another job", "bellwether profile"]);

    // A daemon decides by the profile, and shows what it expected beside what it measured.
    let daemon = Served::start(&scene, &["--slots", "3", "--policy", "hell"]);
    call(&["submit", "job.toml", "--name", "steered", "--workers", "1..8", "--profile", "profile.json"]);
    daemon.until("it has ended", |jobs| jobs["steered"]["state"] == "finished");
    let lines = fs::read_to_string(ledger(&scene)).expect("a ledger");
    let lines: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let submitted = lines.iter().find(|line| line["name"] == "steered").expect("the submission");
    assert_eq!(submitted["profiled"].as_array().map(Vec::len), Some(3), "{submitted}");
    let decisions = daemon.ask("GET", "/v1/decisions", None).body;
    let actions = decisions.to_string();
    assert!(actions.contains("expected_examples_per_s"), "{actions}");
    daemon.interrupt();

    // What was decided is decided again.
    let ledger = ledger(&scene).display().to_string();
    let replayed: Value = serde_json::from_str(&call(&["simulate", "--replay", &ledger, "--format", "json"]))
        .expect("an object");
    assert_eq!(replayed["decisions"]["first_difference"], json!(null), "{replayed}");
}
