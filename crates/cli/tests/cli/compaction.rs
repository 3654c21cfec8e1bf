//! The ledger of a daemon that is killed is compacted by the next one, and every command still knows all jobs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Scene, wait_for};
use crate::served::{Served, ledger, synthetic};

fn is_compacted(ledger: &Path) -> bool {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    text.lines().next().is_some_and(|line| line.contains("\"compacted\""))
}

#[test]
fn commands_know_all_jobs_of_a_ledger_that_was_compacted() {
    let scene = Scene::new("");
    let first = Served::start(&scene, &["--policy", "fifo", "--slots", "2"]);
    for (number, steps) in [(0, 20), (1, 30)] {
        let job = synthetic("job", number, steps, 4.0);
        assert_eq!(first.submit(&format!("job-{number}"), &job, json!({ "workers": "1" })).status, 201);
    }
    first.until_all("finished");
    let long = synthetic("long", 7, 300, 4.0);
    assert_eq!(first.submit("long", &long, json!({ "workers": "1..2" })).status, 201);
    first.until("it trains", |jobs| jobs["long"]["step"].as_u64() > Some(3));
    let before = first.jobs();
    first.kill();
    let ledger = ledger(&scene);
    assert!(!is_compacted(&ledger));

    let second = Served::start(&scene, &["--compact-at", "1KiB"]);
    assert!(is_compacted(&ledger));
    wait_for(
        || format!("it says so: {}", second.stderr()),
        || second.stderr().contains("compacted from").then_some(()),
    );
    assert!(second.stderr().contains("ledger.jsonl.before"), "{}", second.stderr());
    second.kill();
    let third = Served::start(&scene, &[]);
    third.until_all("finished");
    let ended = third.jobs();
    for name in ["job-0", "job-1"] {
        assert_eq!(ended[name], before[name], "nothing of it changed");
    }
    assert_eq!(ended["long"]["digest"], crate::served::undisturbed(&long));
    let table = scene.call(&["jobs"]);
    assert!(["job-0", "job-1", "long"].iter().all(|name| table.stdout.contains(name)), "{table:?}");
    let shown = scene.call(&["show", "job-1", "--format", "json"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("job-1"), "{shown:?}");

    let replay = |ledger: &Path| -> Value {
        let path = ledger.display().to_string();
        let ended = scene.call(&["simulate", "--replay", &path, "--format", "json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).expect("JSON")
    };
    let told = replay(&ledger);
    let names: Vec<&str> =
        told["jobs"].as_array().unwrap().iter().filter_map(|job| job["job"].as_str()).collect();
    assert_eq!(names, ["job-0", "job-1", "long"]);
    assert!(told["jobs"].as_array().unwrap().iter().all(|job| job["measured_s"].is_number()), "{told}");
    assert_eq!((&told["decisions"]["all"], &told["allocations"]), (&told["decisions"]["same"], &Value::Null));
    assert!(told["remarks"].to_string().contains("ledger.jsonl.before"), "{told}");
    let earlier = replay(&ledger.with_file_name("ledger.jsonl.before"));
    assert!(earlier["decisions"]["all"].as_u64() > Some(2), "{earlier}");
    assert!(earlier["allocations"]["measured"].is_number(), "{earlier}");
    assert_eq!(third.interrupt(), Some(0));
}
